"""The real GRPOTrainer plays scripted agents in exported arenas and pays what we pay."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripted import Script, our_reward, sample_rows, scripts, turn
from talkers import talking_rows, talking_scripts

from astra.agent.toolcalls import render_call
from astra.arena.env import UserFault
from astra.arena.prompt import NEW_TOOLS
from astra.arena.worlds import goal_of
from astra.export.adapters import trl
from astra.export.episode import ArenaFault
from astra.export.rows import ExportedArena
from astra.export.write import ExportFormat, write_export
from astra.records.qa import QuestionKind
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

ROOT = Path(__file__).parents[2]


class Paid(Exception):
    """The rewards are there; what would be learnt from them does not matter."""


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


@pytest.fixture(scope="module")
def talkers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ModuleType, list[ExportedArena]]]:
    out, found = tmp_path_factory.mktemp("trl_talking"), talking_rows()
    late = next(row for row in found if goal_of(row.arena).withheld)
    asked = next(row for row in found if row.arena.kind == QuestionKind.MISSING_PARAMETER)
    rows = [asked, late]
    write_export(rows, ExportFormat.TRL, out / "export", "talkers_for_trl")
    sys.path.insert(0, str(out / "export"))
    yield importlib.import_module("talkers_for_trl"), rows
    sys.path.remove(str(out / "export"))


@pytest.mark.slow
def test_the_trainer_pays_agents_that_talk_through_the_tool_what_we_pay(
    talkers: tuple[ModuleType, list[ExportedArena]], sandbox: Sandbox, tmp_path: Path
) -> None:
    import torch

    package, rows = talkers
    played = {
        row.arena.main_question: {
            name: through_tools(row, script) for name, script in talking_scripts(row).items()
        }
        for row in rows
    }
    paid = train(package, played, tmp_path, learn=False)
    for row in rows:
        for name, script in talking_scripts(row).items():
            ours = torch.tensor(our_reward(row, script, sandbox), dtype=torch.float32).item()
            assert paid[row.arena.main_question, name] == ours, (row.id, name)


def through_tools(row: ExportedArena, script: Script) -> Script:
    """A script whose words go through the tool for them, and late tools' calls through theirs."""
    withheld = goal_of(row.arena).withheld
    found: list[Mapping[str, Any]] = []
    for message in script:
        if not message.get("tool_calls"):
            found.append(turn("", ("talk_to_user", {"message": message["content"]})))
            continue
        calls = [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message["tool_calls"]
        ]
        wrapped = [
            ("use_tool", {"name": name, "arguments": given}) if name in withheld else (name, given)
            for name, given in calls
        ]
        found.append(turn(message["content"], *wrapped))
    return [*found, turn("Goodbye.")]


@pytest.fixture
def talker(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> trl.ArenaEnvironment:
    """An episode whose user brings a tool."""
    monkeypatch.setattr(trl, "shared_sandbox", lambda limits: sandbox)
    row = next(row for row in talking_rows() if goal_of(row.arena).withheld)
    environment = trl._environment_class(row)()
    environment.reset()
    return environment


def call_of(name: str, given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    called = {"function": {"name": name, "arguments": dict(given)}}
    return [{"role": "assistant", "content": "", "tool_calls": [called]}, {"role": "tool"}]


def test_a_tool_that_the_user_brings_is_told_and_can_be_called(
    talker: trl.ArenaEnvironment,
) -> None:
    (late,) = goal_of(talker._row.arena).withheld
    assert not hasattr(talker, late)
    assert talker.use_tool(name=late, arguments={}).startswith("error: there is no tool")
    told = next(said for _ in range(9) if NEW_TOOLS in (said := talk(talker)))
    assert f'"name": "{late}"' in told
    assert "arguments of" in talker.use_tool(name=late, arguments={"nothing": 1})


def talk(talker: trl.ArenaEnvironment, message: str = "I cannot do that.") -> str:
    return talker.talk_to_user(message=message)


def test_nothing_counts_after_the_user_has_ended_it(talker: trl.ArenaEnvironment) -> None:
    played: list[Mapping[str, Any]] = []
    while not talker._over:
        played += call_of("talk_to_user", {"message": "No."})
        heard = talk(talker, "No.")
    assert heard.endswith(trl.OVER)
    before = talker._env.trace
    name = talker._row.arena.tools[0].tool.name
    assert getattr(talker, name)() == trl.OVER
    assert talk(talker) == trl.OVER
    late = [*played, *call_of(name, {}), *call_of("nowhere", {}), *call_of("talk_to_user", {})]
    assert talker._env.trace == before
    assert trl._all_calls(talker, late) == []
    assert trl._trace(talker, late) == list(before)


def test_broken_words_are_a_broken_call(talker: trl.ArenaEnvironment) -> None:
    assert "arguments of talk_to_user" in talker.talk_to_user(text="Hello.")
    (call,) = trl._all_calls(talker, call_of("talk_to_user", {"text": "Hello."}))
    assert call.result.status == "malformed"


def test_a_user_who_fails_stops_training(talker: trl.ArenaEnvironment) -> None:
    class Broken:
        def reply(self, trace: Sequence[Any], rows: Any) -> Any:
            raise UserFault("nobody is there")

    talker._env.user = Broken()
    assert talk(talker) == trl.OVER
    with pytest.raises(ArenaFault, match="the user failed: nobody is there"):
        trl._score(talker, call_of("talk_to_user", {"message": "Hello."}), True)


def test_arenas_without_a_user_have_no_tool_for_talking(package: ModuleType) -> None:
    for factory in package.environments().values():
        assert not hasattr(factory(), "talk_to_user")


def train(
    package: ModuleType, played: dict[str, dict[str, Script]], folder: Path, learn: bool = True
) -> dict[tuple[str, str], float]:
    """One optimizer step; the group of each question plays every script once.

    ``learn`` off: longer episodes, and it ends once they are paid. Returns the reward by question
    and script.
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
            if not learn:
                raise Paid
            return rewards

    model = AutoModelForCausalLM.from_pretrained(ROOT / "policies" / "tiny")
    model.config.max_position_embeddings = 16384  # a long conversation makes no sense to it
    trainer = Scripted(
        model=model,
        args=GRPOConfig(
            output_dir=str(folder), max_steps=1, per_device_train_batch_size=len(names),
            gradient_accumulation_steps=len(played), num_generations=len(names), beta=0.0,
            max_completion_length=600 if learn else 8192,
            max_tool_calling_iterations=5 if learn else 24, report_to="none",
            save_strategy="no", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_list(package.dataset()),
        processing_class=tokenizer,
        environment_factory=package.environments(),
        reward_funcs=package.arena_reward(tokenizer),
    )  # fmt: skip
    with nullcontext() if learn else suppress(Paid):
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
