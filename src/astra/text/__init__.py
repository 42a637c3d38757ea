"""Small algorithms over text: languages, words, names, values of a schema, near-duplicates.

Each file stands alone; ``similarity.py`` and ``values.py`` are the ones that most rooms use. It
imports records alone.
"""
