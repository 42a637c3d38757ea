"""What rules answer in place of a teacher who words the turns of users in stage ``goals``.

``handlers.py`` maps the ask's template to its rule.
"""
