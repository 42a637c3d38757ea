"""The offline judge of stage ``sft_set``: each judgement computed from the transcript by rule.

``handlers.py`` maps each ask's template to its rule. Rules may import their domain; the stage file
hands them over.
"""
