"""The offline teacher and judge of ``qa`` and ``qa_valid``: rules over what a prompt shows.

Read ``handlers.py`` first, then ``decompose.py`` and ``judge.py``. The rules read what a model
would read, and compute answers by their own code, so that they check the plan instead of copying
it.
"""
