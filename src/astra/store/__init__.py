"""What lies on disk beside the code: tables, metrics, journals, shelves, caches' files.

Read ``tables.py`` for parquet and ``metrics.py`` for what a stage counts. It imports records and
errors alone.
"""
