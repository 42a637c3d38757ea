"""Code-interpreter arenas: problems drawn and read, decontaminated, proved, counted.

As in rStar2-Agent the reward is the final answer alone: a policy that knows it without a call is
paid in full, and a call costs nothing (GRPO-RoC looks at calls when it picks what to learn from).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing, closing

from astra.arena.answers import final_matches, render_answer
from astra.arena.env import execute_batch, open_envs
from astra.arena.reward import score_episode
from astra.envsynth.batching import Batcher, drawn_in_thread
from astra.envsynth.envs_merged_config import CodeConfig
from astra.envsynth.interpreter import files
from astra.envsynth.interpreter.draw import draw
from astra.envsynth.interpreter.problems import Problem
from astra.envsynth.interpreter.tool import NAME, python_tool
from astra.envsynth.splits import PRIORITY
from astra.envsynth.static import steady
from astra.llm.pool import flow
from astra.records.base import content_id
from astra.records.environment import Arena, ArenaStep
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.records.qa import QAInstance, QuestionKind, Scenario, Split
from astra.records.score import Rejection
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.store.shelf import Shelf
from astra.text.overlap import NgramIndex
from astra.text.similarity import NearDuplicates

NGRAM = 8
"""Words of the n-grams of decontamination: rStar2-Agent's."""
NEAR_DUPLICATE = 0.9
"""Supplied problems more alike than this are one problem; our choice."""
BATCH = 16
"""Arenas proved together."""
SESSIONS = 2
"""Fresh sessions in which each program must find the answer."""


async def code_arenas(
    instances: Callable[[], Iterable[QAInstance]],
    config: CodeConfig,
    sandbox: Sandbox,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Arena | Rejection, None]:
    """The arenas that the configuration asks for, and the problems that gave none.

    Where it asks for none, nothing is counted.
    """
    if not config.enabled:
        return

    def proofs(problems: Sequence[Problem]) -> list[Arena | Rejection]:
        return list(prove(problems, sandbox))

    async def work(problem: Problem | Rejection) -> list[Arena | Rejection]:
        metrics.count("code_problems")
        if isinstance(problem, Rejection):
            return [problem]
        outcome = await prover.do(problem)
        if isinstance(outcome, Arena):
            # Supplied problems carry no program, so nothing proves their answers.
            metrics.count("code_proved", 1 if problem.solution else 0)
        return [outcome]

    metrics.count("code_arenas", 0)
    with closing(decontaminated(_problems(instances(), config), config)) as problems:
        async with (
            Batcher(proofs, BATCH) as prover,
            aclosing(flow(drawn_in_thread(problems), work, open_items)) as outcomes,
        ):
            async for outcome in outcomes:
                yield outcome


def _problems(instances: Iterable[QAInstance], config: CodeConfig) -> Iterator[Problem | Rejection]:
    """Supplied problems, then generated ones."""
    for source in config.files:
        yield from files.read_file(source)
    yield from draw(instances, config)


def decontaminated(
    outcomes: Iterable[Problem | Rejection], config: CodeConfig
) -> Generator[Problem | Rejection]:
    """Problems that share no 8-gram with a suite, nor, in other splits, with a held-out file's.

    Generated problems of one family resemble each other and are kept apart by family instead.
    """
    suites = NgramIndex(NGRAM)
    for suite in config.decontaminate:
        for text in files.texts(suite.path, suite.question):
            suites.add(text)
    held_out, near = NgramIndex(NGRAM), NearDuplicates(NEAR_DUPLICATE)
    with ExitStack() as waiting:
        # By split, held-out problems first: later splits give way to them.
        shelves = {split: waiting.enter_context(Shelf(Problem, _composition)) for split in PRIORITY}
        for outcome in outcomes:
            if isinstance(outcome, Rejection):
                yield outcome
            else:
                shelves[outcome.split].add(outcome)
        for problem in itertools.chain.from_iterable(shelves.values()):
            reason = ""
            supplied = not problem.solution
            if suites.overlaps(problem.question):
                reason = "code_overlaps_suite"
            elif problem.split != Split.HELDOUT and held_out.overlaps(problem.question):
                reason = "code_overlaps_held_out"
            elif supplied and not near.add(problem.question):
                reason = "code_near_duplicate"
            if reason:
                yield problem.rejected(reason)
                continue
            if supplied and problem.split == Split.HELDOUT:
                held_out.add(problem.question)
            yield problem


def _composition(problem: Problem) -> str:
    return problem.composition


def assemble(problem: Problem) -> Arena:
    """The arena of a problem: one question, one tool, no call that has to be made."""
    step = ArenaStep(id=1, hop_level=1, question=problem.question, answer=problem.answer)
    return Arena(
        qa_id=content_id(["code", problem.question, problem.answer.model_dump(mode="json")]),
        split=problem.split,
        domain=problem.domain,
        language="en",
        source=problem.source,
        kind=QuestionKind.CODE,
        scenario=Scenario.SINGLE_HOP,
        hops=1,
        main_question=problem.question,
        final_answer=problem.answer,
        tools=(python_tool(problem.data),),
        steps=(step,),
        entities=problem.entities,
        composition=problem.composition,
    )


def prove(problems: Sequence[Problem], sandbox: Sandbox) -> Iterator[Arena | Rejection]:
    """One outcome per problem: its arena, or why it must not ship.

    Where a program is known it must print the answer in two fresh sessions, through the arena's
    own tool; every arena must pay for the answer and for nothing else.
    """
    for start in range(0, len(problems), BATCH):
        batch = problems[start : start + BATCH]
        arenas = [assemble(problem) for problem in batch]
        results = _solved(batch, arenas, sandbox)
        for problem, arena, runs in zip(batch, arenas, results, strict=True):
            failure = _failure(arena, runs)
            failure = failure and steady(failure)
            yield problem.rejected(failure[0], failure[1][:200]) if failure else arena


def _solved(
    problems: Sequence[Problem], arenas: Sequence[Arena], sandbox: Sandbox
) -> list[list[ToolResult]]:
    """What each problem's program returns in ``SESSIONS`` sessions; none where none is known."""
    envs = open_envs([(arena, ()) for arena in arenas for _ in range(SESSIONS)], sandbox)
    try:
        numbered = [(at, problem) for at, problem in enumerate(problems) for _ in range(SESSIONS)]
        jobs = [
            (at, env, ToolCall(id="call_0", name=NAME, arguments=_code(problem.solution)))
            for env, (at, problem) in zip(envs, numbered, strict=True)
            if problem.solution
        ]
        results: list[list[ToolResult]] = [[] for _ in problems]
        returned = execute_batch([(env, call) for _, env, call in jobs])
        for (at, _, _), result in zip(jobs, returned, strict=True):
            results[at].append(result)
    finally:
        for env in envs:
            env.close_now()
    return results


def _code(source: str) -> str:
    return json.dumps({"code": source})


def _failure(arena: Arena, runs: Sequence[ToolResult]) -> tuple[str, str] | None:
    """Why an arena must not ship, by what its program returned and what its reward pays."""
    for result in runs:
        if result.status != CallStatus.OK:
            return "code_solution_fails", result.content
        if not final_matches(arena.final_answer, str(result.value)):
            return "code_solution_disagrees", f"{arena.composition}: {result.content}"
    truth = render_answer(arena.final_answer)
    calls = [
        ExecutedCall(
            turn=at, call=ToolCall(id=f"call_{at}", name=NAME, arguments="{}"), result=result
        )
        for at, result in enumerate(runs)
    ]
    paid = {
        "the answer, after calls": (calls, f"<answer>{truth}</answer>", 1.0),
        "the answer without a call": ((), f"<answer>{truth}</answer>", 1.0),
        "calls without an answer": (calls, None, 0.0),
        "another answer": (calls, f"<answer>1{truth}</answer>", 0.0),
        "silence": ((), None, 0.0),
    }
    for episode, (executed, text, expected) in paid.items():
        reward = score_episode(arena, executed, text).reward
        if reward != expected:
            return "code_reward_wrong", f"{episode} is paid {reward}"
    return None
