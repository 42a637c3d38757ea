"""The offline teacher and judge of stage ``tasks``: questions by grammar, scores by rule.

Read ``handlers.py`` first, then ``grammar.py``. Rules may import their domain; the stage file
hands them over.
"""
