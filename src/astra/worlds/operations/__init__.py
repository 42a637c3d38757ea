"""What the tools of all domains do, over archetypes: look-ups, contracts, accounts.

Read ``reading.py`` first: an operation makes a ``ToolSpec`` from a domain's layout. ``shared.py``
holds what several of them are built of.
"""
