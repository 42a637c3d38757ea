"""Judges of a sampled chain, found by name: the file's name is a key of ``chains.operators``.

A new file here is a new choice (docs/extending.md shows one). An operator sees one chain and
accepts it or says why not.
"""
