"""Formats of tool documents, found by name: the file's name is the ``format`` of a source list.

A new file here is a new choice (docs/extending.md shows one). It turns a document into raw
servers, and imports ``toolbank/raw.py``.
"""
