"""The external suites: each file here is one, found by its name and listed in ``bench.suites``.

A file holds a ``SUITE``; read ``bfcl.py`` as a short example and ``arenas.py`` as our own. It
imports ``bench/harness``, and never another suite.
"""
