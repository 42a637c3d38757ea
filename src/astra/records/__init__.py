"""The rows of all tables: frozen pydantic models that stages exchange, and nothing else.

Read ``base.py`` first; then the module of the stage at hand. The room imports nothing of the
project, so that every other room can import it.
"""
