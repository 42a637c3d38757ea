"""How a domain asks a language model: asks, endpoints, the cache of answers, budgets.

Read ``protocol.py`` for what an ask is, then ``openai_backend.py`` for the way of one ask and
``cache.py`` for its key. ``pool.py`` is the flow of many items. The room imports prompts, store,
text and tracking, and no domain.
"""
