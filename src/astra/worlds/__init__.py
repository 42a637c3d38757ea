"""Persistent worlds: domains as data become tables, tools, rules and rows, each of them proved.

Read ``domain.py`` (what a domain says), ``generator.py`` (a world of it) and ``proofs.py`` (what a
world has to hold). Imports the arena, the sandbox and lower rooms.
"""
