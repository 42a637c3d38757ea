"""Stage ``bench``: checkpoints play held-out arenas and external suites, and are compared.

Read ``bench.py`` first, then ``statistics.py``. ``suites/`` has a file per external suite, and
``harness/`` runs them. The room imports ``rollout`` and ``serving``, and no other domain.
"""
