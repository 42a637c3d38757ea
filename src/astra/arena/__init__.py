"""The RL environment: an arena as tools in a sandbox, its state, its answers and its reward.

Read ``env.py`` and ``reward.py`` first. ``scripted.py`` plays arenas without a model. Rewards come
from executed calls alone: the room imports the sandbox and the agent loop, and never a teacher.
"""
