"""The offline teacher of stage ``tools``: a rule that labels a server's domain.

``handlers.py`` is all there is. Rules may import their domain; the stage file hands them over.
"""
