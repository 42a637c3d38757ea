"""Stages ``qa`` and ``qa_valid``: decomposed questions over knowledge, and their verifiers.

Read ``qa.py`` and ``qa_valid.py`` first. Its rooms build on each other: ``knowledge``, then
``questions``, then the flow here, then ``offline``. ``replies.py`` says what a teacher must
answer, ``rules.py`` what is checked before a judge is asked. It imports no other domain.
"""
