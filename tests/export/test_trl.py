"""The real GRPOTrainer plays scripted agents in exported arenas and pays what we pay."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripted import Script, our_reward, sample_rows, scripts

from astra.agent.toolcalls import render_call
from astra.export.rows import ExportedArena
from astra.export.write import ExportFormat, write_export
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows() -> list[ExportedArena]:
    return sample_rows()


@pytest.fixture(scope="module")
def package(
    rows: list[ExportedArena], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModuleType]:
    out = tmp_path_factory.mktemp("trl")
    write_export(rows, ExportFormat.TRL, out / "export", "arenas_for_trl")
    sys.path.insert(0, str(out / "export"))
    yield importlib.import_module("arenas_for_trl")
    sys.path.remove(str(out / "export"))


def test_tools_say_what_their_schemas_say(package: ModuleType, rows: list[ExportedArena]) -> None:
    from transformers.utils import get_json_schema

    environment = package.environments()[rows[0].id]()
    shown = get_json_schema(environment.count_rooms)["function"]
    assert shown["description"] == "Say count_rooms."
    assert shown["parameters"]["required"] == ["listing"]
    assert shown["parameters"]["properties"]["floor"]["description"] == "From 0."
    assert shown["parameters"]["properties"]["floor"]["type"] == "integer"
    assert not hasattr(package.environments()[rows[1].id](), "find_news")


def test_parameters_stay_in_the_schemas_order(package: ModuleType) -> None:
    from transformers.utils import get_json_schema

    properties = {"since": {"type": "integer"}, "listing": {"type": "string"}, "agent": {}}
    parameters = {"type": "object", "properties": properties, "required": ["listing"]}
    method = package._method(Tool(name="f", description="Say f.", parameters=parameters))
    shown = get_json_schema(method)["function"]["parameters"]
    assert list(shown["properties"]) == ["since", "listing", "agent"]
    assert shown["required"] == ["listing"]


@pytest.mark.slow
def test_the_trainer_pays_exactly_our_reward(
    package: ModuleType, rows: list[ExportedArena], sandbox: Sandbox, tmp_path: Path
) -> None:
    import torch

    played = {row.arena.main_question: scripts(row) for row in rows}
    paid = train(package, played, tmp_path)
    for row in rows:
        for name, script in scripts(row).items():
            ours = torch.tensor(our_reward(row, script, sandbox), dtype=torch.float32).item()
            assert paid[row.arena.main_question, name] == ours, (row.id, name)


def train(
    package: ModuleType, played: dict[str, dict[str, Script]], folder: Path
) -> dict[tuple[str, str], float]:
    """One optimizer step; the group of each question plays every script once.

    Returns the reward by question and script.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_chat_template

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "policies" / "tiny")
    tokenizer.chat_template = qwen3_chat_template  # one whose tool calls TRL can parse
    names = list(next(iter(played.values())))
    paid: dict[tuple[str, str], float] = {}

    class Scripted(GRPOTrainer):
        """Only sampling is replaced: TRL's own loop parses, calls tools and pays."""

        def _generate(self, prompts: Any) -> Any:
            self.keys = [
                (prompt[-1]["content"], names[at % len(names)]) for at, prompt in enumerate(prompts)
            ]
            self.active, self.turn = list(self.keys), 0
            return super()._generate(prompts)

        def _generate_single_turn(
            self, prompt_ids: list[list[int]], *_: Any, **__: Any
        ) -> tuple[list[list[int]], None]:
            assert len(prompt_ids) == len(self.active)
            messages = [played[question][name][self.turn] for question, name in self.active]
            self.active = [
                key for key, m in zip(self.active, messages, strict=True) if m.get("tool_calls")
            ]
            self.turn += 1
            return [written_ids(tokenizer, message) for message in messages], None

        def _calculate_rewards(self, *arguments: Any) -> Any:
            rewards = super()._calculate_rewards(*arguments)
            paid.update(zip(self.keys, rewards[:, 0].tolist(), strict=True))
            return rewards

    trainer = Scripted(
        model=AutoModelForCausalLM.from_pretrained(ROOT / "policies" / "tiny"),
        args=GRPOConfig(
            output_dir=str(folder), max_steps=1, per_device_train_batch_size=len(names),
            gradient_accumulation_steps=len(played), num_generations=len(names), beta=0.0,
            max_completion_length=600, max_tool_calling_iterations=5, report_to="none",
            save_strategy="no", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_list(package.dataset()),
        processing_class=tokenizer,
        environment_factory=package.environments(),
        reward_funcs=package.arena_reward(tokenizer),
    )  # fmt: skip
    trainer.train()
    return paid


def written_ids(tokenizer: Any, message: Mapping[str, Any]) -> list[int]:
    """The tokens with which a policy writes the message."""
    blocks = [message["content"]] if message["content"] else []
    blocks += [
        render_call(call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    ]
    ids = tokenizer.encode("\n".join(blocks), add_special_tokens=False)
    return [*ids, tokenizer.eos_token_id]
