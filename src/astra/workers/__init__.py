"""Workers: processes on a Ray cluster that work on the items of a data stage.

The stage's own process, its owner, reads the items, hands them out, and puts what came of them in
their order; set-wide steps are its own. Read ``crew`` (the owner's side), ``worker`` (the other
side) and ``service`` (the answer cache, budget and rate limits that all share). Nothing of it is
imported unless ``runtime.stage_workers`` is above 0. It imports ``llm`` and what that stands on.
"""
