"""Stage ``tasks``: user tasks are written for chains and servers, augmented, scored and selected.

Read ``tasks.py`` first: it is the flow. ``writing.py``, ``augmenting.py`` and ``scoring.py`` are
its steps. It reads chains from disk and imports no other domain.
"""
