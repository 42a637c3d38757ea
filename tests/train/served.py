"""A scripted server's side of training: what it generates, and what it computes with a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from astra.records.environment import Arena
from astra.rollout.chat import ChatCodec, LoadedPolicy
from astra.rollout.scripted_server import Scorer


def half_solved(codec: ChatCodec, arenas: Sequence[Arena]) -> Callable[[dict[str, Any], int], Any]:
    """Replies that play the gold conversation where the first turn's seed is even, and answer at
    once, without a call, where it is odd."""

    def encoded(text: str) -> list[int]:
        return [*codec.tokenizer.encode(text, add_special_tokens=False), codec.eos_id]

    def reply(body: dict[str, Any], number: int) -> list[int]:
        text = codec.decode(body["prompt"])
        arena = next(one for one in arenas if one.main_question in text)
        done = (sum(token == codec.eos_id for token in body["prompt"]) - 2) // 2
        if done == len(arena.steps) or (not done and body["temperature"] and body["seed"] % 2):
            return encoded(f"<answer>{arena.final_answer.value}</answer>")
        step = arena.steps[done]
        (key, value), *_ = step.arguments.items()
        arguments = f'{{"{key}": "{value}"}}'
        return encoded(
            f'<tool_call>\n{{"name": "{step.tool_name}", "arguments": {arguments}}}\n</tool_call>'
        )

    return reply


def scorer_of(policy: LoadedPolicy) -> Callable[[Path], Scorer]:
    """What makes log-probabilities with the weights of a folder, in the shape of ``policy``."""

    def load(folder: Path) -> Scorer:
        policy.model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        state = {name: one.clone() for name, one in policy.model.state_dict().items()}

        @torch.no_grad()
        def scores(ids: list[int]) -> list[float]:
            policy.model.load_state_dict(state)
            batch = torch.tensor([ids])
            found = torch.log_softmax(policy.model(input_ids=batch).logits[0, :-1].float(), -1)
            return found.gather(1, batch[0, 1:, None])[:, 0].tolist()

        return scores

    return load
