"""The recipe of the committed tiny policy in ``policies/tiny``: corpus, tokenizer, pretraining.

Read ``base.py`` first (``make tiny-base`` runs it). It imports ``rollout`` and ``text``; no stage
imports it.
"""
