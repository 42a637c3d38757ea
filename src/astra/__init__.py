"""ASTRA-DVC: from tool documents to trained tool-use agents, as one reproducible build.

Each package below is a room. A stage of ``dvc.yaml`` is a thin file in ``stages/``; its work is in
the domain package that makes its table. Packages are layered: a room imports rooms of lower layers
only (``pyproject.toml`` lists the layers, ``lint-imports`` checks them).
"""
