"""Code-interpreter arenas: problems with a known answer, and one stateful ``python`` tool.

Read ``arenas.py`` first, then ``problems.py``. ``envsynth/envs_merged.py``, the flow of the stage,
imports the room.
"""
