"""Worlds of services: an OpenAPI document, some rows and some rules become tables and tools.

``source`` reads the three files, ``schemas`` what the document says of rows, ``tables`` and
``tools`` make of it what a world has, ``hosting`` puts the world together.
"""
