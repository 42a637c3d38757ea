"""Scripts that load a published folder as a stranger would: own process, this project barred.

They are started by path and print one JSON object.
"""
