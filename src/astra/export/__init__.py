"""Arenas as packages and files that other RL frameworks load.

Read ``write.py`` for the formats and ``episode.py`` for the one episode that each of them runs.
``bundle.py`` copies the code that a package carries. The room imports ``arena`` and what is below
it.
"""
