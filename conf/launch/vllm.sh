#!/usr/bin/env bash
# One rollout server, from an environment of its own (vLLM pins another transformers):
#   VLLM=/opt/vllm/bin/vllm conf/launch/vllm.sh MODEL PORT [vllm options ...]
# MODEL is what the policy starts from; the trainer hands over its weights before every step
# through runs/rl/<key>/weights, which this machine has to see under the same path.
# Usage details say what the prefix cache gave: so it is proven that it was reset.
set -euo pipefail
model=$1 port=$2
shift 2
# With rl.engine.transfer=nccl the weights come over NCCL: add --weight-transfer-config '{"backend": "nccl"}'.
export VLLM_SERVER_DEV_MODE=1  # /collective_rpc and /reset_prefix_cache: for trusted networks only
exec "${VLLM:-vllm}" serve "$model" --served-model-name policy --port "$port" \
  --logprobs-mode processed_logprobs --generation-config vllm --enable-prefix-caching --enable-prompt-tokens-details "$@"
