"""The offline agent, user and emulator: they read their own conversation and answer by rule.

Read ``handlers.py`` and ``expert.py`` first. ``world.py`` is what the emulated tools tell of.
Rules may import their domain; the stage file hands them over.
"""
