"""Training on conversations: what users say is never trained, and figures say how they went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from test_grpo import ScriptedRoller, record, tool_tokens, trainer

from astra.records.message import Message, MessageRole
from astra.records.trajectory import StopReason
from astra.rollout.chat import ChatCodec, PolicyConfig, load_policy
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import FakeEngine, Turn
from astra.rollout.live import Rollout
from astra.sandbox.local import LocalSandbox
from astra.tracking.mlflow import Run
from astra.train.groups import Group, GroupRoller, mean_figures
from astra.train.rl_watch import trace_rollout
from configs import rl_config
from talking import CLOSE, OPENING, ByTrace, spoken, talking_arena, users_are

ARENA = talking_arena()
TURNS = [one if one.startswith("<") else f" {one}" for one in spoken()]
SCRIPTS = (TURNS, [" Hm."] * 4, TURNS, [TURNS[0], *[" Hm."] * 3])
"""What each of a group's rollouts writes: two succeed, two say nothing that leads on."""


class Rows(FakeEngine):
    """One script per row."""

    def __init__(self, codec: ChatCodec) -> None:
        written = [
            [codec.tokenizer.encode(t, add_special_tokens=False) for t in s] for s in SCRIPTS
        ]
        asked: list[int] = []
        super().__init__(lambda _, turn: written[asked.pop(0) % 4][turn], codec.eos_id)
        self._asked = asked

    def poll(self) -> list[Turn]:
        self._asked[:] = [row for row, _ in self._waiting]
        return super().poll()


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch) -> None:
    users_are(monkeypatch, ByTrace)


@pytest.fixture
def group(_users: None) -> Group:
    codec = load_policy(PolicyConfig.saved("policies/tiny", "float32")).codec
    limits = {"max_turns": 9, "max_turn_tokens": 200, "max_prompt_tokens": 900,
              "max_response_tokens": 900}  # fmt: skip
    config = rl_config(group_size=4, groups=1, irrelevant_tools="none", limits=limits)
    with LocalSandbox() as sandbox:
        driver = RolloutDriver(
            Rows(codec), codec, sandbox, config.limits, config.reward, config.final_answer
        )
        (rolled,) = GroupRoller(driver, config).roll([(0, ARENA)], seed=0)
    return rolled


def test_figures_say_how_the_talk_went(group: Group) -> None:
    means = mean_figures([group])
    assert means["success"] == means["boat_yard_success"] == 0.5
    assert means["goal_outcome"] == 1.0
    assert means["state_reached"] == 0.5
    assert means["user_turns"] == 4.0
    assert means["questions_per_needed_fact"] == 1.0, "this user tells it, whoever asks"
    assert (means["nudges"], means["user_left"], means["leaks"]) == (0.0, 0.0, 0.0)
    assert means["early_end"] == 0.5, "and is content, whatever was done"
    assert means["other_acts"] >= 1.0
    assert means["answered"] == 1.0


def test_arenas_without_worlds_have_no_such_figures() -> None:
    bare = Group(0, [], {"reward": 0.5, "success": 1.0})
    assert set(mean_figures([bare])) == {"reward", "success"}


class OfConversations(ScriptedRoller):
    """The same group of conversations for every prompt."""

    def __init__(self, group: Group) -> None:
        super().__init__(4)
        self._rolled = group

    def _group(self, uid: int) -> Group:
        self.rolled.append(uid)
        return Group(uid, self._rolled.samples, {"reward": 0.5})


def test_a_step_is_the_same_whatever_advantage_users_words_have(
    group: Group, tmp_path: Path
) -> None:
    """Advantages by token: 0 on the user's words and the tools', or absurd ones."""

    def stepped(folder: str, beside: float | None) -> dict[str, torch.Tensor]:
        policy = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
        one: Any = trainer(policy, tmp_path / folder, OfConversations(group), steps=1)
        loss: Callable[..., Any] = one._compute_loss

        def changed(model: Any, inputs: dict[str, Any]) -> Any:
            if beside is not None:
                others = tool_tokens(one, inputs)
                assert others.any()
                wide = inputs["advantages"][:, None].expand(others.shape).clone()
                inputs = {**inputs, "advantages": wide.masked_fill(others, beside)}
            return loss(model, inputs)

        one._compute_loss = changed
        before = {name: one.clone() for name, one in policy.model.state_dict().items()}
        one.train()
        after: dict[str, torch.Tensor] = policy.model.state_dict()
        assert any(not torch.equal(before[name], after[name]) for name in after), "it has moved"
        return after

    plain = stepped("plain", None)
    for folder, beside in (("none", 0.0), ("absurd", 1e3)):
        other = stepped(folder, beside)
        assert all(torch.equal(plain[name], other[name]) for name in plain), folder


def test_the_words_of_users_get_exactly_no_gradient(group: Group, tmp_path: Path) -> None:
    policy = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
    one = trainer(policy, tmp_path, OfConversations(group), steps=1)
    gradients, batches = record(one)
    one.train()
    for gradient, batch in zip(gradients, batches, strict=True):
        others = tool_tokens(one, batch)
        assert (gradient[others] == 0).all()
        sampled = batch["completion_mask"].bool() & ~others
        moved = batch["advantages"].abs() > 1e-6
        assert (gradient[sampled & moved[:, None]] != 0).all()


class Kept(Run):
    """A run that keeps what is traced."""

    def __init__(self) -> None:
        super().__init__(None, "", "")
        self.traces: list[tuple[Sequence[Message], dict[str, Any]]] = []

    def trace(self, name: str, messages: Any, calls: Any, attributes: Any) -> None:
        self.traces.append((messages, dict(attributes)))


def test_a_traced_rollout_shows_what_the_user_said(group: Group) -> None:
    run, (rollout, *_) = Kept(), group.rollouts
    trace_rollout(run, rollout, 3)
    ((messages, attributes),) = run.traces
    users = [one.content for one in messages if one.role == MessageRole.USER]
    assert len(users) == 3
    assert users[0] == OPENING.text
    assert attributes["last_words"] == CLOSE.text
    alone = Rollout(ARENA, [], 0, stop_reason=StopReason.MAX_TOKENS, trace=(OPENING,))
    trace_rollout(run, alone, 3)
    assert "last_words" not in run.traces[-1][1]
