"""One conversation between an agent and its tools, whoever the agent is and wherever the tools run.

``episode.py`` is the state machine without I/O; read it first, then ``loop.py``, which drives it.
``mcp.py`` runs live MCP servers. The room imports records, settings, store and text; it knows
neither a teacher nor the sandbox.
"""
