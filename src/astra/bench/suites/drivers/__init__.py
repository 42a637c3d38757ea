"""Programs that play suites inside the bench environment, beside the suites' own packages.

They run where this project is not installed, so they import no astra: only the harness that they
drive and ``wire.py``, which holds what they share.
"""
