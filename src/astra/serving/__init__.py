"""A checkpoint behind an OpenAI-compatible endpoint, with the training template and our parser.

Read ``server.py`` for the endpoint and ``main.py`` for its process; ``engine.py`` is the batched
loop that requests join and leave. The room imports ``rollout``; ``bench`` and ``astra serve`` use
it.
"""
