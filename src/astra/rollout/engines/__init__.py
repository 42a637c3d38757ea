"""Generation engines, found by name: the file's name is the ``type`` of ``rl.engine``.

``astra/rollout/engine.py`` states what an engine does. A new file here is a new choice
(docs/extending.md shows one).
"""
