"""One training process of a rehearsal: ``python -m astra.train.rehearsal.rank STAGE.py``.

It is the stage, on a machine without a GPU. Accelerate shards by FSDP over devices it knows as
such, and leaves FSDP out, without a word, where processes compute on the CPU. Here it is told
that they are devices; everything after that is its own.
"""

from __future__ import annotations

import os
import runpy
import sys


def shard_on_cpu() -> None:
    """Have accelerate take CPU processes for devices that FSDP spreads a model over."""
    from accelerate import state
    from accelerate.utils import DistributedType

    begin = state.PartialState.__init__

    def begun(self: state.PartialState, cpu: bool = False, **options: object) -> None:
        begin(self, cpu, **options)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    state.PartialState.__init__ = begun


def main() -> None:
    stage = sys.argv[1]
    sys.argv = [stage]
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        shard_on_cpu()
    runpy.run_path(stage, run_name="__main__")


if __name__ == "__main__":
    main()
