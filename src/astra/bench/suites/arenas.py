"""Our held-out arenas over an endpoint: loop, sandbox, checker (arena/reward.py) of training.

With irrelevant tools (``irrelevant_tools: banded``) and without (``none``) are two entries of
``bench.suites``, told apart by their labels. The headline is the paper's F1; ``success`` is what
pass^k counts. Both are also told for look-ups and hard arenas apart (``f1_hard``). Token limits
hold as in training: a turn, prompt or conversation that exceeds them ends its episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from astra.agent.episode import Episode
from astra.arena.env import ArenaEnv, execute_batch
from astra.arena.irrelevant import IrrelevantMode
from astra.arena.prompt import initial_messages
from astra.arena.reward import score_episode
from astra.bench.arenas import BenchError, job_of
from astra.bench.episodes import rollout_scores
from astra.bench.harness.client import ChatClient, ContextOverflow, play_jobs, sampling
from astra.bench.harness.project import PlayRequest, project_driver
from astra.bench.harness.protocol import (
    DriverProcess,
    Entry,
    Job,
    Listing,
    Played,
    Suite,
    SuiteConfig,
    SuiteError,
)
from astra.errors import OutOfTokens
from astra.llm.policy import wire_message
from astra.records.base import content_id
from astra.records.bench import SuiteOutcome
from astra.records.environment import Arena
from astra.records.message import CallStatus, Message, MessageRole, ToolCall
from astra.records.qa import Split
from astra.records.score import Unscored
from astra.records.trajectory import StopReason
from astra.rollout.driver import Rollout
from astra.rollout.live import PAPER_LIMITS, EpisodeJob, RolloutLimits
from astra.sandbox.build import build_sandbox
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import Sandbox
from astra.settings import RuntimeConfig, StageConfig
from astra.store.tables import read_records


class Options(StageConfig):
    table: str = "data/envs_merged.parquet"
    irrelevant_tools: IrrelevantMode = IrrelevantMode.BANDED
    irrelevant_per_band: int = Field(default=1, ge=0)
    seed: int = 0
    """The seed of the draw of irrelevant tools."""
    limits: RolloutLimits = PAPER_LIMITS
    sandbox: SandboxLimits = SandboxLimits()
    sandbox_min_tier: str = "B"
    sandbox_workers: int = Field(default=1, ge=1)

    @field_validator("limits", mode="before")
    @classmethod
    def _rest_is_the_papers(cls, limits: Any) -> Any:
        """Limits that the options leave out are those of the paper."""
        return {**PAPER_LIMITS.model_dump(), **limits} if isinstance(limits, dict) else limits


def driver(options: Options) -> DriverProcess:
    return project_driver("arenas")


SUITE = Suite(name="arenas", score="f1", driver=driver)


def entries(config: SuiteConfig) -> Listing:
    """The held-out arenas, by scenario."""
    arenas = _held_out(Options.model_validate(config.options))
    return Listing(
        entries=tuple(Entry(id=arena.id, category=arena.scenario.value) for arena in arenas),
        # Whole arenas: their ids leave out the irrelevant tools, which decide an episode as well.
        versions={"arenas": content_id([arena.model_dump(mode="json") for arena in arenas])},
    )


def play(request: PlayRequest) -> Iterator[Played]:
    """Every job's attempt as it ends. An arena keeps its irrelevant tools in all attempts."""
    options = Options.model_validate(request.config.options)
    arenas = {arena.id: arena for arena in _held_out(options)}
    runtime = RuntimeConfig(
        sandbox_min_tier=options.sandbox_min_tier, sandbox_workers=options.sandbox_workers
    )
    with (
        closing(ChatClient(request.endpoints["model"])) as client,
        build_sandbox(options.sandbox, runtime) as sandbox,
    ):

        def attempt(job: Job) -> Played:
            episode = job_of(
                arenas[job.entry_id], options.irrelevant_tools, options.irrelevant_per_band,
                options.seed,
            )  # fmt: skip
            fields = {"max_tokens": options.limits.max_turn_tokens}
            fields |= sampling(request.config.decoding, job)
            return _Attempt(job, episode, client, options.limits, fields).play(sandbox)

        yield from play_jobs(request.jobs, request.config.concurrency, attempt)


def _held_out(options: Options) -> list[Arena]:
    table = Path(options.table)
    if not table.is_file():
        raise SuiteError(f"{table} not found; build it with `dvc repro envs_merged`")
    arenas = [arena for arena in read_records(table, Arena) if arena.split == Split.HELDOUT]
    if not arenas:
        raise BenchError(f"{table} has no held-out arena")
    return sorted(arenas, key=lambda arena: arena.id)


class _Attempt:
    """One episode, with what it has cost so far."""

    def __init__(
        self, job: Job, episode: EpisodeJob, client: ChatClient, limits: RolloutLimits,
        fields: dict[str, Any],
    ) -> None:  # fmt: skip
        self._job = job
        self._arena = episode.arena
        self._extra = episode.extra_tools
        self._client = client
        self._limits = limits
        self._fields = fields
        self._first_prompt = 0
        self._steps = self._prompt_tokens = self._completion_tokens = 0
        self._overflow = ""

    def play(self, sandbox: Sandbox) -> Played:
        env = ArenaEnv(self._arena, sandbox, self._extra)
        try:
            env.open()
            episode = Episode(initial_messages(self._arena), env.tools, self._limits.episode())
            tools = [tool.openai() for tool in env.tools]
            while episode.stop_reason is None:
                self._turn(episode, env, tools)
            return self._played(episode, env)
        finally:
            env.close_now()

    def _turn(self, episode: Episode, env: ArenaEnv, tools: list[dict[str, Any]]) -> None:
        try:
            message = self._ask(episode, tools)
        except ContextOverflow as error:
            self._overflow = str(error)
            episode.abort(StopReason.MAX_TOKENS)
            return
        except OutOfTokens:
            episode.abort(StopReason.MAX_TOKENS)
            return
        calls = episode.offer(message)
        if calls:
            results = execute_batch([(env, call) for call in calls])
            episode.observe(results)
            if any(result.status == CallStatus.INFRA for result in results):
                episode.stop_reason = StopReason.INFRA

    def _ask(self, episode: Episode, tools: list[dict[str, Any]]) -> Message:
        """The next turn. Raises OutOfTokens where it, or what came before it, is too long."""
        body = {"messages": [wire_message(message) for message in episode.messages], **self._fields}
        if tools:
            body["tools"] = tools
        done = self._client.complete(self._job.entry_id, body)
        self._steps += 1
        self._prompt_tokens += done.prompt_tokens
        self._completion_tokens += done.completion_tokens
        self._first_prompt = self._first_prompt or done.prompt_tokens
        response = done.prompt_tokens - self._first_prompt + done.completion_tokens
        message = Message(
            role=MessageRole.ASSISTANT,
            content=done.reply.content.strip(),
            tool_calls=tuple(
                ToolCall(id=f"call_{len(episode.calls) + at}", name=name, arguments=arguments)
                for at, (name, arguments) in enumerate(done.reply.tool_calls)
            ),
        )
        if (
            done.reply.truncated
            or self._first_prompt > self._limits.max_prompt_tokens
            or response > self._limits.max_response_tokens
        ):
            episode.messages.append(message)
            raise OutOfTokens("the turn or the conversation is longer than the limits")
        return message

    def _played(self, episode: Episode, env: ArenaEnv) -> Played:
        stop = episode.stop_reason
        rollout = Rollout(
            self._arena, [], 0, messages=tuple(episode.messages), calls=tuple(episode.calls),
            stop_reason=stop, end_state=env.tables,
        )  # fmt: skip
        outcome = SuiteOutcome.OVERFLOW if self._overflow else SuiteOutcome.SCORED
        if stop == StopReason.INFRA:
            outcome = SuiteOutcome.INFRA
        else:
            rollout.score = score_episode(
                self._arena, rollout.calls, rollout.final_text,
                end_state=rollout.end_state,
            )  # fmt: skip
        scores = rollout_scores(rollout)
        solved = rollout.score is not None and rollout.score.success
        if "f1_plain" in scores:
            # The headline is the paper's F1; where no sub-task needs a tool, the answer decides.
            combined, plain = scores["f1"], scores.pop("f1_plain")
            scores["f1"] = combined if isinstance(plain, Unscored) else plain
            scores["f1_with_answer"] = combined
        # Look-ups and hard arenas apart: a mean is over the entries that have the score.
        part = self._arena.difficulty
        scores |= {f"{name}_{part}": scores[name] for name in ("f1", "success") if name in scores}
        reason = self._overflow[:600] or ("" if solved else f"ended: {stop}")
        return Played(
            entry_id=self._job.entry_id, attempt=self._job.attempt, outcome=outcome,
            scores=scores, reason=reason, steps=self._steps,
            prompt_tokens=self._prompt_tokens, completion_tokens=self._completion_tokens,
            messages=rollout.messages,
        )  # fmt: skip
