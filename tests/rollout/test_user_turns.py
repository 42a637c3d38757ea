"""Conversations in every engine and template: what was sampled is trained, all else is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_families import FAMILIES, codec_of
from test_own_templates import own
from test_streaming import ScriptedTurns

from astra.agent.toolcalls import parse_assistant
from astra.arena.prompt import NEW_TOOLS
from astra.records.message import Message, MessageRole
from astra.records.trajectory import StopReason
from astra.records.world import TraceEvent, UserAct
from astra.rollout import vllm, vllm_admin
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import ChatCodec, LoadedPolicy, PolicyConfig, load_codec, load_policy
from astra.rollout.continuous import PAGE, ContinuousEngine
from astra.rollout.driver import INFRA_ATTEMPTS, Driver, RolloutDriver
from astra.rollout.engine import FakeEngine, Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.rollout.row_batch import Row
from astra.rollout.scripted_server import ScriptedVLLM
from astra.rollout.streaming import StreamingDriver
from astra.rollout.template_traits import Thoughts
from astra.rollout.transfer import FolderTransfer
from astra.rollout.vllm import VLLMConfig, VLLMEngine
from astra.sandbox.local import LocalSandbox
from configs import policy_config, rollout_limits
from talking import (
    GOAL,
    LEAVE,
    TOOL,
    ByTrace,
    Fails,
    Leaves,
    said,
    spoken,
    talking_arena,
    users_are,
)

LIMITS = rollout_limits(
    max_turns=9, max_turn_tokens=300, max_prompt_tokens=4000, max_response_tokens=4000
)
ARENA = talking_arena()
JOB = EpisodeJob(ARENA)
TURNS = spoken()
CODECS: dict[str, Callable[[], ChatCodec]] = {
    "compact": lambda: load_codec(policy_config()),
    **{name: (lambda family=family: codec_of(family)) for name, family in FAMILIES.items()},
    "Qwen3's own": lambda: own("qwen3"),
    "Qwen2.5's own": lambda: own("qwen2_5"),
}
"""Templates by name: the five of this project, and two of publishers."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox() as one:
        yield one


@pytest.fixture(scope="module")
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch) -> None:
    users_are(monkeypatch, ByTrace)
    monkeypatch.setattr(vllm, "BACKOFF_S", 0.0)
    monkeypatch.setattr(vllm_admin, "RESET_WAIT_S", 0.0)


def encoded(codec: ChatCodec, turns: Sequence[str] = TURNS) -> list[list[int]]:
    gap = " " if codec.template == "compact" else ""  # which it writes before a text
    texts = (one if one[:1] in ("<", "") else gap + one for one in turns)
    return [list(codec.tokenizer.encode(one, add_special_tokens=False)) for one in texts]


def waves(
    codec: ChatCodec, sandbox: LocalSandbox, turns: Sequence[str] = TURNS, **options: Any
) -> RolloutDriver:
    """A driver whose engine writes ``turns``, the last one for ever."""
    written = encoded(codec, turns)
    engine = FakeEngine(lambda _, turn: written[min(turn, len(written) - 1)], codec.eos_id)
    return RolloutDriver(engine, codec, sandbox, options.pop("limits", LIMITS), **options)


def check(rollout: Rollout, codec: ChatCodec, turns: Sequence[str] = TURNS) -> None:
    """Mask 1 on what was sampled and 0 on all else, and the whole is what the template renders."""
    assert rollout.stop_reason == StopReason.ANSWERED
    sampled = [i for i, m in zip(rollout.completion_ids, rollout.mask, strict=True) if m]
    written = [i for turn in encoded(codec, turns) for i in (*turn, codec.eos_id)]
    assert sampled == written
    assert all(lp == 0.0 for lp, m in zip(rollout.logprobs, rollout.mask, strict=True) if m == 0)
    fed = codec.tokenizer.decode(
        [i for i, m in zip(rollout.completion_ids, rollout.mask, strict=True) if m == 0]
    )
    users = [one.content for one in rollout.messages if one.role == MessageRole.USER][1:]
    assert all(words in fed for words in users)
    tools = [offer.tool for offer in sorted(ARENA.tools, key=lambda one: one.tool.name)]
    whole, last = rollout.prompt_ids + rollout.completion_ids, len(encoded(codec, turns)[-1]) + 1
    assert codec.encode_prompt(rollout.messages[:-1], tools) == whole[:-last]
    if codec.thoughts != Thoughts.CURRENT:  # Qwen3's own writes an empty thought into the last turn
        ids, mask = codec.encode_conversation(rollout.messages, tools)
        assert ids[: len(whole)] == whole
        assert len(ids) - len(whole) <= 1, "at most the line end after the last turn"
        assert mask[: len(whole)] == [0] * len(rollout.prompt_ids) + rollout.mask


# --- templates


@pytest.mark.parametrize("name", CODECS)
def test_a_conversation_is_what_the_template_renders(name: str, sandbox: LocalSandbox) -> None:
    codec = CODECS[name]()
    (rollout,) = waves(codec, sandbox).run([JOB], Sampling())
    check(rollout, codec)
    assert rollout.score is not None
    assert rollout.score.success
    assert rollout.turns == 5
    assert rollout.final_text == "All of that is done."
    assert [one.content.split("\n")[0] for one in rollout.messages if one.role == "user"] == [
        one.text for one in GOAL.trace if one.kind == "user"
    ]
    assert NEW_TOOLS in rollout.messages[-4].content
    assert rollout.trace is not None
    assert rollout.trace[-1].act == UserAct.CLOSE


WORDS = st.text("ab <|>\n{}é€.", min_size=1, max_size=12).filter(
    lambda text: text.strip() and "<" not in text
)


@pytest.mark.parametrize("name", CODECS)
@settings(deadline=None, max_examples=12)
@given(words=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
def test_whatever_is_said_is_appended_as_the_template_renders_it(
    name: str, words: list[tuple[str, str]]
) -> None:
    """Prompt, turns and users' words one after the other equal the conversation at once."""
    codec = _cached(name)
    messages = [
        Message(role=MessageRole.SYSTEM, content="Be brief."),
        Message(role=MessageRole.USER, content="Hello."),
    ]
    ids, mask = list(codec.encode_prompt(messages, ())), []
    mask = [0] * len(ids)
    for agent, user in words:
        agent = agent.strip()
        turn = [*encoded(codec, [agent])[0], codec.eos_id]
        message = Message(role=MessageRole.USER, content=user.strip())
        suffix = codec.suffix_ids([message])
        messages += [Message(role=MessageRole.ASSISTANT, content=agent), message]
        ids, mask = ids + turn + suffix, mask + [1] * len(turn) + [0] * len(suffix)
    assert ids == codec.encode_prompt(messages, ())
    whole, trained = codec.encode_conversation(messages, ())
    assert whole == ids[: len(whole)]
    assert trained == mask[: len(whole)]


_made: dict[str, ChatCodec] = {}


def _cached(name: str) -> ChatCodec:
    if name not in _made:
        _made[name] = CODECS[name]()
    return _made[name]


def test_thoughts_stay_in_an_episode_whose_template_forgets_them_when_served(
    sandbox: LocalSandbox,
) -> None:
    """Sampled ids are never changed: log-probabilities are those of what was sampled from."""
    codec = own("qwen3")
    assert codec.thoughts == Thoughts.CURRENT
    turns = [f"<think>\nNumber {at}.\n</think>\n\n{text}" for at, text in enumerate(TURNS)]
    (rollout,) = waves(codec, sandbox, turns).run([JOB], Sampling())
    assert rollout.score is not None
    assert rollout.score.success
    sampled = [i for i, m in zip(rollout.completion_ids, rollout.mask, strict=True) if m]
    assert sampled == [i for turn in encoded(codec, turns) for i in (*turn, codec.eos_id)]
    assert rollout.trace is not None
    assert not any("think" in event.text for event in rollout.trace), "users read no thoughts"
    # What lies between the turns is what the template renders between them.
    shown = codec.tokenizer.decode(rollout.completion_ids)
    served = codec.tokenizer.decode(codec.encode_prompt(rollout.messages[:4], ()))
    assert "Number 0." in shown
    assert "Number 0." not in served
    end = "For which day?<|im_end|>"
    assert shown.partition(end)[2].startswith(served.partition(end)[2])


# --- engines


def streamed(codec: ChatCodec) -> Callable[[Sequence[int]], list[int]]:
    """The next turn of the conversation, told from how many turns the ids hold."""
    turns = encoded(codec)
    before = codec.encode_prompt([Message(role=MessageRole.SYSTEM, content="a"),
                                  Message(role=MessageRole.USER, content="b")], ())  # fmt: skip
    opened = before.count(codec.eos_id)

    def reply(ids: Sequence[int]) -> list[int]:
        return [*turns[(list(ids).count(codec.eos_id) - opened) // 2], codec.eos_id]

    return reply


class WrittenByRule(BatchedEngine):
    """The batched engine with its sampling replaced: each row writes the conversation."""

    def __init__(self, policy: LoadedPolicy) -> None:
        super().__init__(policy.model, policy.codec.eos_id, policy.codec.pad_id)
        self._turns = [[*one, policy.codec.eos_id] for one in encoded(policy.codec)]
        self.written: dict[int, int] = {}

    def _sample(self, logits: torch.Tensor, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        tokens: list[int] = []
        for row in rows:
            turn = self.written.get(row.id, 0)
            tokens.append(self._turns[turn][len(row.ids)])
            self.written[row.id] = turn + (len(row.ids) + 1 == len(self._turns[turn]))
        return tokens, [-0.5] * len(tokens)


class ContinuousByRule(ContinuousEngine):
    """Continuous batching really generates; what it wrote is replaced by the conversation."""

    def __init__(self, policy: LoadedPolicy) -> None:
        super().__init__(policy.model, policy.codec.eos_id, policy.codec.pad_id, 80 * PAGE)
        self._next = streamed(policy.codec)
        self.seen: list[list[int]] = []

    async def _turn(self, ids: Sequence[int], budget: int, sampling: Sampling) -> Any:
        made = await super()._turn(ids, 2, sampling)
        self.seen.append(list(ids))
        turn = self._next(ids)
        return type(made)(0, turn, [-0.5] * len(turn), "eos")


@pytest.mark.parametrize("overlap", [False, True])
def test_waves_with_and_without_overlap(overlap: bool, sandbox: LocalSandbox) -> None:
    codec = load_codec(policy_config())
    rollouts = waves(codec, sandbox, overlap=overlap).run([JOB] * 3, Sampling())
    for rollout in rollouts:
        check(rollout, codec)
    assert len({tuple(one.completion_ids) for one in rollouts}) == 1, "a group has one user"


def test_the_batched_engine(policy: LoadedPolicy, sandbox: LocalSandbox) -> None:
    engine = WrittenByRule(policy)
    rollouts = RolloutDriver(engine, policy.codec, sandbox, LIMITS).run([JOB] * 2, Sampling())
    for rollout in rollouts:
        check(rollout, policy.codec)
    assert engine.written == {0: 5, 1: 5}


def test_continuous_batching(policy: LoadedPolicy, sandbox: LocalSandbox) -> None:
    engine = ContinuousByRule(policy)
    (rollout,) = StreamingDriver(engine, policy.codec, sandbox, LIMITS).run([JOB], Sampling())
    check(rollout, policy.codec)
    whole = rollout.prompt_ids + rollout.completion_ids
    assert all(whole[: len(ids)] == ids for ids in engine.seen)


def drivers(
    codec: ChatCodec, sandbox: LocalSandbox, folder: Path, turns: Sequence[str]
) -> Iterator[Driver]:
    """The drivers over scripted engines, one after the other."""
    written = encoded(codec, turns)
    opened = [0]

    def reply(ids: Sequence[int]) -> list[int]:
        ended = list(ids).count(codec.eos_id) - 2
        opened[0] += 1
        return [*written[min(ended // 2, len(written) - 1)], codec.eos_id]

    yield waves(codec, sandbox, turns)
    yield waves(codec, sandbox, turns, overlap=True)
    yield StreamingDriver(ScriptedTurns(reply), codec, sandbox, LIMITS)
    with ScriptedVLLM(lambda body, _: reply(body["prompt"])) as server:
        transfer = FolderTransfer(folder, lambda path: True)
        known = ([5, 6, 7], [-1.0, -1.0])
        options = VLLMConfig([server.url])
        engine = VLLMEngine(options, codec.eos_id, transfer, lambda: known, lambda one: [one])
        yield StreamingDriver(engine, codec, sandbox, LIMITS)


def test_streams_and_servers(sandbox: LocalSandbox, tmp_path: Path) -> None:
    codec = load_codec(policy_config())
    for driver in drivers(codec, sandbox, tmp_path, TURNS):
        for rollout in driver.run([JOB] * 2, Sampling()):
            check(rollout, codec)


# --- ends and limits


def test_a_user_who_leaves_ends_the_episode_and_it_is_scored(
    sandbox: LocalSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users_are(monkeypatch, Leaves)
    codec = load_codec(policy_config())
    for driver in drivers(codec, sandbox, tmp_path, ["Hm."]):
        (rollout,) = driver.run([JOB], Sampling())
        assert rollout.stop_reason == StopReason.USER_LEFT
        assert rollout.score is not None
        assert rollout.score.reward == 0.0
        assert rollout.final_text is None
        assert rollout.trace is not None
        assert rollout.trace[-1] == LEAVE
        assert rollout.turns == 2


def test_a_user_who_fails_is_never_scored_and_the_episode_is_rolled_again(
    sandbox: LocalSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users_are(monkeypatch, Fails)
    codec = load_codec(policy_config())
    for driver in drivers(codec, sandbox, tmp_path, ["Hm."]):
        (rollout,) = driver.run([JOB], Sampling())
        assert (rollout.stop_reason, rollout.score) == (StopReason.INFRA, None)
        assert rollout.user_failed
        assert rollout.problem == "the user failed: the model of the user is gone"
        assert driver.infra_retries == INFRA_ATTEMPTS - 1


def test_turns_and_tokens_are_bounded_in_a_conversation(sandbox: LocalSandbox) -> None:
    codec = load_codec(policy_config())
    few = rollout_limits(
        max_turns=2, max_turn_tokens=300, max_prompt_tokens=4000, max_response_tokens=4000
    )
    (turned,) = waves(codec, sandbox, limits=few).run([JOB], Sampling())
    assert turned.stop_reason == StopReason.MAX_TURNS
    assert turned.turns == 2
    assert turned.mask[-1] == 1, "nobody reads what the user says to the last turn"
    short = few.model_copy(update={"max_turns": 9, "max_response_tokens": 10})
    (cut,) = waves(codec, sandbox, limits=short).run([JOB], Sampling())
    assert cut.stop_reason == StopReason.MAX_TOKENS
    assert len(cut.completion_ids) <= 10


def test_a_turn_that_is_cut_off_is_not_the_users_to_answer(sandbox: LocalSandbox) -> None:
    codec = load_codec(policy_config())
    limits = LIMITS.model_copy(update={"max_turn_tokens": 2})
    (rollout,) = waves(codec, sandbox, limits=limits).run([JOB], Sampling())
    assert rollout.stop_reason == StopReason.MAX_TOKENS
    assert rollout.trace == GOAL.trace[:1]


def test_a_turn_of_broken_calls_is_answered_by_errors_and_not_by_the_user(
    sandbox: LocalSandbox,
) -> None:
    codec = load_codec(policy_config())
    broken = "<tool_call>\n{oops\n</tool_call>"
    (rollout,) = waves(codec, sandbox, [broken, *TURNS]).run([JOB], Sampling())
    assert rollout.score is not None
    assert rollout.score.success
    assert rollout.messages[3].role == MessageRole.TOOL
    assert sum(event.kind == "user" for event in rollout.trace or ()) == 4


def test_a_late_tool_cannot_be_called_before_it_comes(sandbox: LocalSandbox) -> None:
    codec = load_codec(policy_config())
    early = TURNS[3]
    assert parse_assistant(early).tool_calls[0].name == "book_boat"
    (rollout,) = waves(codec, sandbox, [early, *TURNS]).run([JOB], Sampling())
    first, *_, last = rollout.calls
    assert first.result.status == "unknown_tool"
    assert (last.call.name, last.result.status) == ("book_boat", "ok")
    assert TOOL.text in codec.tokenizer.decode(rollout.completion_ids).replace(" .", ".")


def test_an_agent_that_says_nothing_is_answered(sandbox: LocalSandbox) -> None:
    codec = load_codec(policy_config())
    (rollout,) = waves(codec, sandbox, ["", *TURNS[1:]]).run([JOB], Sampling())
    assert rollout.trace is not None
    events: list[TraceEvent] = list(rollout.trace[:2])
    assert events == [GOAL.trace[0], said("")]
    assert rollout.score is not None
    assert rollout.score.success
