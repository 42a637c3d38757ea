"""Run by verl's own interpreter: its data set reads the rows, its agent loop plays the scripts.

argv: the exported folder, a JSON file {script: {arena id: [assistant messages]}}, the place for
the findings, a folder with a tokenizer. The model server is the only stand-in: it answers with
the script's tokens.
"""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from astra_arenas.agent_loop import ArenaAgentLoop
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import (
    DictConfigWrap,
    _agent_loop_registry,
)
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

RESPONSE_LENGTH = 16384


class ScriptedServer:
    def __init__(self, tokenizer, script: list) -> None:
        self._tokenizer, self._script, self._turn = tokenizer, script, 0

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        message = self._script[self._turn]
        self._turn += 1
        blocks = [message["content"]] if message["content"] else []
        for call in message.get("tool_calls", []):
            name, arguments = json.dumps(call["function"]["name"]), call["function"]["arguments"]
            body = f'{{"name": {name}, "arguments": {arguments}}}'
            blocks.append(f"<tool_call>\n{body}\n</tool_call>")
        ids = self._tokenizer.encode("\n".join(blocks), add_special_tokens=False)
        ids.append(self._tokenizer.eos_token_id)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


def loop(tokenizer, script: list) -> ArenaAgentLoop:
    rollout = {"prompt_length": 4096, "response_length": RESPONSE_LENGTH}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    return ArenaAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=ScriptedServer(tokenizer, script),
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(OmegaConf.create({})),
        hf_model_type="llama",
    )


async def main() -> None:
    exported = Path(sys.argv[1])
    scripts = json.loads(Path(sys.argv[2]).read_text())
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[4])
    data_config = OmegaConf.create(
        {"cache_dir": sys.argv[3] + ".cache", "max_prompt_length": 4096, "return_raw_chat": True,
         "filter_overlong_prompts": False}
    )  # fmt: skip
    dataset = RLHFDataset(str(exported / "train.parquet"), tokenizer, data_config)
    rows = [dataset[at] for at in range(len(dataset))]
    registry = OmegaConf.load(exported / "agent_loops.yaml")
    found: dict = {
        "rows": [[row["extra_info"]["arena_id"], row["agent_name"]] for row in rows],
        "registered": _agent_loop_registry["astra_arena"]["_target_"],
        "configured": registry[0]["_target_"],
        "scores": {},
    }
    for name, by_arena in scripts.items():
        for row in rows:
            arena = row["extra_info"]["arena_id"]
            output = await loop(tokenizer, by_arena[arena]).run({}, **row)
            found["scores"].setdefault(name, {})[arena] = {
                "reward": output.reward_score,
                "lengths": [len(output.response_ids), len(output.response_mask)],
                "logprobs": len(output.response_logprobs),
                "written": sum(output.response_mask),
                "text": tokenizer.decode(output.response_ids),
                "own": tokenizer.decode(
                    [
                        id
                        for id, own in zip(output.response_ids, output.response_mask, strict=True)
                        if own
                    ]
                ),
            }
    Path(sys.argv[3]).write_text(json.dumps(found))


asyncio.run(main())
