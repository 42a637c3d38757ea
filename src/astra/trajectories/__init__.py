"""Stage ``trajectories``: an agent does the tasks on live servers and on emulated tools.

Read ``trajectories.py`` first (the flow), then ``conversation.py`` and ``follow_up.py`` (what users
ask for second). ``live.py`` and ``emulated.py`` are the two kinds of environment. It imports
``agent`` and ``llm``, no other domain.
"""
