#!/usr/bin/env bash
# One machine's share of a training stage. As runtime.sft_launch or .rl_launch on the machine where dvc runs, and by
# hand on every other one, which has to see the repository under the same path:
#   MACHINES=2 MACHINE=1 MAIN=host0 conf/launch/node.sh stages/rl.py
# Under Slurm (slurm.sbatch) all of it comes from the allocation.
set -euo pipefail
machines=${MACHINES:-${SLURM_JOB_NUM_NODES:-1}}
export PYTHONPATH=src ASTRA_LAUNCHED=1
exec accelerate launch \
  --config_file "${ACCELERATE:-conf/accelerate/zero3.yaml}" \
  --num_machines "$machines" \
  --num_processes $((machines * ${GPUS:-8})) \
  --machine_rank "${MACHINE:-${SLURM_NODEID:-0}}" \
  --main_process_ip "${MAIN:-localhost}" \
  --main_process_port "${PORT:-29500}" \
  "$@"
