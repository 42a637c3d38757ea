"""Compositions of questions and plans for them: what is asked, of whom, in which order.

Read ``shapes.py`` for the compositions and ``plan.py`` for how one is filled with entities. It
imports ``qa/knowledge`` and nothing later in ``qa``.
"""
