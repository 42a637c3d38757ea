"""What a stage is going to ask of models: how many asks, tokens and how much money.

``asks.py`` is the arithmetic, ``told.py`` the lines that a person reads. The others say what the
tables of earlier stages tell, a file for each. How many asks follow from which rows is said in
module ``estimate`` of each domain. The room imports llm, prompts, store and records, and no domain.
"""
