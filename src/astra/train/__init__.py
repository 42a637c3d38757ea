"""Stages ``sft`` and ``rl``: TRL's trainers with our own rollouts, masks and checkpoints.

Read ``sft.py`` and ``rl.py`` first, then ``grpo.py`` and ``groups.py``. ``advantages.py``,
``filling.py`` and ``roc.py`` are pure functions with the paper's formulas. The room imports
``rollout`` and ``arena``, and never a teacher, so that no judge's outage can reach a gradient.
"""
