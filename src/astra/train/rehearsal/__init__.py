"""A rehearsal of a training preset on CPUs: the launch path is the preset's, the model is shrunken.

``architecture.py`` reads what the policy is and shrinks it, ``standin.py`` makes a tokenizer where
the policy's own cannot be read, ``world.py`` makes the data, ``launches.py`` scales parameters and
launch commands, ``served.py`` is the scripted vLLM that ``conf/launch/vllm.sh`` starts, ``rank.py``
is a training process without a GPU, and ``rehearse.py`` runs all of it.
"""
