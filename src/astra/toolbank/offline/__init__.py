"""The offline teacher of stage ``tools``: a rule that labels domains, and one that guesses nothing.

``handlers.py`` is all there is. Rules may import their domain; the stage file hands them over.
"""
