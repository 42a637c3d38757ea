"""Stage ``sft_set``: trajectories are judged in seven dimensions; the best become training data.

Read ``sft_set.py`` first, then ``judge.py``, ``floors.py`` and ``select.py``. ``rules.py`` and
``suspects.py`` decide and mark without a judge. ``export.py`` and ``card.py`` are for people who
take the set elsewhere. It imports no other domain.
"""
