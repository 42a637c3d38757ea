"""Policies and data sets as folders that others load: files, card, evidence, proof that they load.

Read ``policies.py`` and ``data_sets.py`` for what is written, ``record.py`` for what is refused and
``evidence.py`` for how a card's numbers come from files. ``probes/`` holds scripts of their own
processes, which know nothing of this project. The room imports the domains and ``report``.
"""
