"""The offline teacher and judge of ``qa`` and ``qa_valid``: rules over what a prompt shows.

Read ``handlers.py`` first, then ``decompose.py``, ``free.py`` and ``judge.py``. The rules read what
a model would read, and the judge shares no code with the rules that check a question.
"""
