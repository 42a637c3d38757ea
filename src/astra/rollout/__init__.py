"""Episodes as tokens: a policy, an engine that generates, and drivers that roll many at once.

Read ``live.py`` first (one episode, and the mask of its tokens), then ``driver.py`` and
``engine.py``. ``chat.py`` turns messages into ids, ``build.py`` makes engine and driver. The room
imports ``arena`` and torch, and never a teacher.
"""
