"""What questions are about: tables of a split, relations over them, and operations that answer.

Read ``schema.py`` for what a source offers and ``operations.py`` for how answers follow.
``sources.py`` collects every source. Of the rest of ``qa`` it imports the parameters alone.
"""
