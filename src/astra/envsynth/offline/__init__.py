"""The offline teacher of environment synthesis: rules that answer every ask of the domain.

Read ``handlers.py`` first: it maps each ask's template to a rule. The rules may import their
domain; nothing of the domain imports them, the stage file hands them over.
"""
