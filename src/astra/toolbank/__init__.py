"""Stage ``tools``: documents of any format and live servers become one clean bank of tools.

Read ``tools.py`` first (the flow), then ``connectors.py`` (what is read) and ``normalise.py``
(what is kept). ``schema.py`` makes any parameter schema a valid one; ``domains.py`` and
``results.py`` ask a teacher what documents leave out. It imports ``agent`` and ``llm``, and no
other domain.
"""
