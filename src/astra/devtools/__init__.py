"""Tools of the project's own development: parameters, dependencies, reference pages, probes.

``params.py`` composes ``params.yaml``, ``closure.py`` writes the code dependencies in
``dvc.yaml``, ``train_same.py`` shows that changed code trains as before. They may import every
room; no stage imports them.
"""
