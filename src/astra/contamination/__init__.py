"""The index of benchmark suites that training data must not touch, as hashes of n-grams.

Read ``index.py`` first; ``grams.py`` says what counts as shared. Domains import it where they
filter. It imports records, settings and text.
"""
