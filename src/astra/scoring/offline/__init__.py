"""The offline judge of stage ``sft_set``: each judgement computed from the transcript by rule.

``handlers.py`` maps each ask's template to its rule; ``parts.py`` cuts a conversation into its
requests, ``declining.py`` judges one for which nothing was called. Rules may import their domain;
the stage file hands them over.
"""
