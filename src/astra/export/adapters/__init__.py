"""Modules that are copied into an exported package, one or more for each framework.

Each imports its framework, which need not be installed here, and ``astra.export.episode``;
``export/bundle.py`` rewrites these imports while it copies.
"""
