"""``astra report``: one HTML file about a build, made from what lies in a workspace.

Read ``page.py`` first; ``workspace.py`` reads files without trusting them. It may import the
domains (today ``bench`` alone); only ``cli`` imports it.
"""
