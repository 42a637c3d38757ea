"""The offline teacher of stages ``graph`` and ``chains``: proposals and votes by rule.

``handlers.py`` maps each ask's template to its rule. Rules may import their domain; the stage
files hand them over.
"""
