"""Stages ``envs`` and ``envs_merged``: questions become tools that run, and tools become arenas.

Read ``envs.py`` and ``envs_merged.py`` first: each is the flow of its stage. ``verify.py`` proves
a tool by execution, ``merge.py`` joins the tools of an instance, ``bands.py`` finds irrelevant
ones. It reads the questions as records from disk and imports no other domain.
"""
