"""Texts to unit vectors, by a local model or an endpoint.

Read ``protocol.py`` first; ``build.py`` makes the embedder that the parameters name. It imports
settings, and is one of the few rooms that may import torch.
"""
