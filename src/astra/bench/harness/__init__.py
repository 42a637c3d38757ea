"""What runs external suites: checkpoints served one by one, harnesses caged, results journalled.

Read ``protocol.py`` for what a suite is, then ``play.py``. Suites themselves are in
``bench/suites``. It may import what ``bench`` may.
"""
