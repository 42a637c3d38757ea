"""Makes a composition validate every block; Hydra finds this module on its plugin path.

`dvc exp run -S rl.reward=f3` is thereby refused with the allowed values before a stage starts.
"""

from omegaconf import OmegaConf

from astra.devtools.params import checked, read_where

OmegaConf.register_new_resolver("astra.checked", checked, replace=True)
OmegaConf.register_new_resolver("astra.read_where", read_where, replace=True)
