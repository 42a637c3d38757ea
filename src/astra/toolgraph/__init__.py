"""Stages ``graph`` and ``chains``: tools that feed each other, and walks over them that make sense.

Read ``graph.py`` and ``chains.py`` first, then ``walks.py``. ``arguments.py`` says where a chain's
arguments come from. The room imports no other domain.
"""
