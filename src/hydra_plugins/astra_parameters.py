"""Found by Hydra on its plugin path: makes composition validate every block.

`dvc exp run -S rl.reward=f3` is thereby refused with the allowed values before a stage starts.
"""

from omegaconf import OmegaConf

from astra.devtools.params import checked

OmegaConf.register_new_resolver("astra.checked", checked, replace=True)
