"""Stages ``graph`` and ``chains``: tools that feed each other, and walks over them that make sense.

Read ``graph.py`` and ``chains.py`` first, then ``walks.py``. ``proposals.py`` says which sources of
arguments a teacher may propose, ``arguments.py`` which ones a chain takes. The room imports no
other domain.
"""
