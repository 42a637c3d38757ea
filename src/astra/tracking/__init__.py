"""Runs in MLflow: parameters, digests, figures by step, traces of rollouts.

``mlflow.py`` is all there is. Training, the benchmark and the log of asks call it. It imports
records, settings and store.
"""
