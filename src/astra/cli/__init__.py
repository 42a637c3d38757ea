"""The ``astra`` command: it looks at data, scores and machines, and changes nothing stages make.

Read ``main.py`` first: it registers all commands, one module for each group of them. The room may
import every other one.
"""
