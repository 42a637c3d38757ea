"""Code-interpreter arenas: the tool, the problems, what is filtered, how they are paid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from astra.agent.toolcalls import render_call
from astra.arena.env import VARIABLES_LOST, ArenaEnv, execute_batch
from astra.arena.reward import FinalAnswer, RewardMode, score_episode
from astra.envsynth.envs_merged import measure
from astra.envsynth.envs_merged_config import CodeConfig, ProblemFile, SuiteFile
from astra.envsynth.interpreter import mathematics, tables
from astra.envsynth.interpreter.arenas import assemble, code_arenas, decontaminated, prove
from astra.envsynth.interpreter.draw import draw, owned
from astra.envsynth.interpreter.files import ProblemFileError, read_file, whole_number
from astra.envsynth.interpreter.problems import Problem, guessable
from astra.records.environment import Arena
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult
from astra.records.qa import Answer, AnswerType, QAInstance, QuestionKind, Scenario, Split, Table
from astra.records.score import Rejection
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from configs import code_config

PARTS = Table(
    name="parts",
    columns=("part", "maker", "price", "stock"),
    rows=tuple(
        (f"Part {letter}", "Aldo" if at % 3 else "Bree", 10 + 7 * at, 100 - at * at)
        for at, letter in enumerate("ABCDEFGHIJ")
    ),
)


def number(value: float, tolerance: float = 0.0) -> Answer:
    return Answer(type=AnswerType.NUMBER, value=value, tolerance=tolerance)


def problem(question: str, answer: Answer, solution: str = "", **more: object) -> Problem:
    fields = {"split": Split.TRAIN, "domain": "d", "source": "s", "composition": "c", **more}
    return Problem(question=question, answer=answer, solution=solution, **fields)  # type: ignore[arg-type]


def built(
    instances: list[QAInstance], config: CodeConfig, sandbox: Sandbox, metrics: StageMetrics
) -> list[Arena]:
    """The arenas, everything counted as the stage counts it."""

    async def collect() -> list[Arena | Rejection]:
        flow = code_arenas(lambda: instances, config, sandbox, 4, metrics)
        return [outcome async for outcome in flow]

    outcomes = asyncio.run(collect())
    for outcome in outcomes:
        if isinstance(outcome, Arena):
            measure(metrics, outcome)
        else:
            metrics.reject(outcome)
    return [outcome for outcome in outcomes if isinstance(outcome, Arena)]


def instance(*knowledge: Table, split: Split = Split.TRAIN) -> QAInstance:
    return QAInstance(
        split=split, domain="shop", language="en", source="test", kind=QuestionKind.READ_ONLY,
        scenario=Scenario.SINGLE_HOP, main_question="?", final_answer=number(1), sub_questions=(),
        knowledge=knowledge, entities=(), composition="c",
    )  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with LocalSandbox(SandboxLimits(call_timeout_s=1.0)) as opened:
        yield opened


@pytest.fixture
def env(sandbox: Sandbox) -> Iterator[ArenaEnv]:
    data = {"parts": [{"part": "Part A", "price": 10}]}
    opened = ArenaEnv(assemble(problem("How much?", number(812), data=data)), sandbox)
    yield opened
    opened.close_now()


def run(env: ArenaEnv, code: str) -> ToolResult:
    return env.execute_now(ToolCall(id="c", name="python", arguments=json.dumps({"code": code})))


def test_output_is_what_is_printed_and_the_last_expression(env: ArenaEnv) -> None:
    assert run(env, "print('a')\nprint('b')\n1 + 1").content == "a\nb\n2"
    assert run(env, "x = 3").content == "no output"
    assert run(env, "").content == "no output"
    assert run(env, "'text'").content == "'text'"
    assert run(env, "if True:\n    x = 4\nx").content == "4"
    assert run(env, "parts[0]['price']").content == "10"


def test_variables_functions_and_imports_stay_for_later_calls(env: ArenaEnv) -> None:
    run(env, "import math\ndef double(n):\n    return 2 * n * scale")
    run(env, "scale = 10")
    assert run(env, "double(math.factorial(3))").content == "120"
    together = ["count = 1", "count += 1", "count += 1", "count"]
    calls = [
        (env, ToolCall(id=str(at), name="python", arguments=json.dumps({"code": code})))
        for at, code in enumerate(together)
    ]
    assert execute_batch(calls)[-1].content == "3"


def test_failures_are_short_name_the_line_and_keep_what_was_printed(env: ArenaEnv) -> None:
    failed = run(env, "print('before')\nx = 1\nx / 0")
    assert failed.status == CallStatus.ERROR
    assert failed.content == "error: line 3: ZeroDivisionError: division by zero\nbefore\n"
    assert run(env, "x").content == "1"
    assert run(env, "y = 1\n1 +").content == "error: line 2: SyntaxError: invalid syntax"
    assert "not allowed" in run(env, "import os").content
    assert "EOFError" in run(env, "input()").content
    assert "SystemExit" in run(env, "raise SystemExit").content
    missing = env.execute_now(ToolCall(id="c", name="python", arguments="{}"))
    assert missing.status == CallStatus.MALFORMED


def test_a_killed_session_loses_its_variables_and_says_so(env: ArenaEnv) -> None:
    run(env, "kept = 1")
    slow = run(env, "while True: pass")
    assert slow.status == CallStatus.TIMEOUT
    assert VARIABLES_LOST in slow.content
    assert "NameError" in run(env, "kept").content
    assert run(env, "parts[0]['price']").content == "10"


def test_output_without_end_is_cut(env: ArenaEnv) -> None:
    assert len(run(env, "print('x' * 10**6)\nprint('y')").content) <= 20_000


def test_episodes_do_not_see_each_other(env: ArenaEnv, sandbox: Sandbox) -> None:
    run(env, "secret = 1")
    other = ArenaEnv(env.arena, sandbox)
    assert "NameError" in run(other, "secret").content
    other.close_now()


@pytest.mark.parametrize("family", mathematics.FAMILIES, ids=lambda family: family.name)
def test_every_family_agrees_with_its_program_and_names_its_parameters(
    family: mathematics.Family, sandbox: Sandbox
) -> None:
    problems: list[Problem] = []
    for seed in range(4):
        rng = Random(seed)
        parameters = family.draw(rng)
        for wording in family.wordings:
            assert all(str(value) in wording.format(**parameters) for value in parameters.values())
        problems.append(
            problem(
                family.question(rng, parameters),
                number(family.solved(parameters)),
                family.program(parameters),
            )
        )
    assert all(isinstance(outcome, Arena) for outcome in prove(problems, sandbox))


@pytest.mark.parametrize("family", tables.FAMILIES)
def test_every_table_family_agrees_with_its_program(family: str, sandbox: Sandbox) -> None:
    shape = tables.shape_of(PARTS)
    assert shape is not None
    posed = [one for seed in range(6) if (one := tables.FAMILIES[family](shape, Random(seed)))]
    assert posed
    made = [problem(p.question, p.answer, p.solution, data=tables.as_data(shape)) for p in posed]
    outcomes = list(prove(made, sandbox))
    assert all(isinstance(outcome, Arena) for outcome in outcomes), outcomes


def test_tables_that_cannot_be_asked_about() -> None:
    assert tables.shape_of(PARTS.model_copy(update={"rows": PARTS.rows[:5]})) is None
    words = Table(name="t", columns=("a", "b"), rows=tuple((f"n{i}", "x") for i in range(9)))
    assert tables.shape_of(words) is None
    twice = PARTS.model_copy(update={"rows": PARTS.rows + PARTS.rows})
    assert tables.shape_of(twice) is None
    booleans = Table(name="t", columns=("a", "b"), rows=tuple((f"n{i}", True) for i in range(9)))
    assert tables.shape_of(booleans) is None


def test_wrong_programs_never_ship(sandbox: Sandbox) -> None:
    bad = {
        "code_solution_disagrees": problem("q1", number(812), "print(811)"),
        "code_solution_fails": problem("q2", number(812), "print(1 / 0)"),
    }
    slow = problem("q3", number(812), "while True: pass")
    outcomes = list(prove([*bad.values(), slow], sandbox))
    assert [getattr(one, "reason", "") for one in outcomes] == [*bad, "code_solution_fails"]


def test_guessable_problems_are_left_out() -> None:
    assert guessable(problem("How many?", number(19))) == "small_answer"
    assert guessable(problem("What is 812 plus 0?", number(812))) == "answer_in_question"
    amber = Answer(type=AnswerType.STRING, value="Amber Cove")
    assert guessable(problem("Is it amber cove?", amber)) == "answer_in_question"
    assert not guessable(problem("What is 800 plus 12?", number(812)))


@pytest.mark.parametrize("mode", list(RewardMode))
@pytest.mark.parametrize("final", list(FinalAnswer))
def test_only_the_final_answer_is_paid_whatever_the_mode(
    mode: RewardMode, final: FinalAnswer
) -> None:
    arena = assemble(problem("What is it?", number(812)))
    result = ToolResult(status=CallStatus.OK, content="812", value="812")
    failed = ToolResult(status=CallStatus.ERROR, content="error: x")
    calls = [
        ExecutedCall(turn=0, call=ToolCall(id="c", name="python", arguments="{}"), result=one)
        for one in (result, failed) * 5
    ]

    def paid(made: list[ExecutedCall], text: str | None) -> float:
        return score_episode(arena, made, text, mode, final).reward

    assert paid([], "<answer>812</answer>") == 1.0  # it knows without a call
    assert paid(calls, "<answer>812</answer>") == 1.0  # calls cost nothing
    assert paid(calls, "<answer>813</answer>") == 0.0
    assert paid(calls, None) == 0.0  # cut off: stays, as a failure
    assert score_episode(arena, [], "<answer>812</answer>", mode, final).success


def test_whole_numbers_of_supplied_files() -> None:
    assert whole_number("42") == 42
    assert whole_number("-1,260") == -1260
    assert whole_number("So it is $\\boxed{ 75 }$.") == 75
    assert whole_number("17.0") == 17
    for other in ("4/3", "2.5", "12 or 13", "x", "", "1,26", "\\boxed{\\frac{1}{2}}"):
        assert whole_number(other) is None, other


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems").mkdir()
    return tmp_path


def write(path: str, *rows: dict[str, object]) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_files_are_filtered_decontaminated_and_counted(in_folder: Path, sandbox: Sandbox) -> None:
    exam = "A train leaves the station at nine and travels for seven hours without a stop."
    held = "Nine friends share forty apples so that everyone gets a different whole number."
    train = write(
        "problems/train.jsonl",
        {"problem": f"{exam} How far?", "solution": 600},
        {"problem": f"{held} How many ways?", "solution": 55},
        {"problem": "How many primes are there below one hundred thousand?", "solution": "9592"},
        {"problem": "How many primes are there below one hundred thousand?", "solution": "9592"},
        {"problem": "What is a third of two?", "solution": "2/3"},
    )
    test = write("problems/test.jsonl", {"question": held, "answer": "77"})
    suite = write("problems/suite.jsonl", {"text": f"{exam} When does it arrive?"})
    config = code_config(
        files=(
            ProblemFile(path=train, question="problem", answer="solution"),
            ProblemFile(path=test, split=Split.HELDOUT),
        ),
        decontaminate=(SuiteFile(path=suite, question="text"),),
    )
    metrics = StageMetrics("envs_merged")
    arenas = built([], config, sandbox, metrics)
    assert sorted((arena.split, arena.final_answer.value) for arena in arenas) == [
        (Split.HELDOUT, 77),
        (Split.TRAIN, 9592),
    ]
    assert all(arena.kind == QuestionKind.CODE for arena in arenas)
    assert metrics.document() == {
        "code_arenas": 2,
        "code_problems": 6,
        "code_proved": 0,
        "dropped": {
            "code_answer_not_whole": 1,
            "code_near_duplicate": 1,
            "code_overlaps_held_out": 1,
            "code_overlaps_suite": 1,
        },
    }


def test_bad_files_are_refused_with_their_place(in_folder: Path) -> None:
    with pytest.raises(ProblemFileError, match="must lie in problems"):
        list(read_file(ProblemFile(path="elsewhere/x.jsonl")))
    with pytest.raises(ProblemFileError, match="must lie in problems"):
        list(read_file(ProblemFile(path="problems/../x.jsonl")))
    with pytest.raises(ProblemFileError, match="not found"):
        list(read_file(ProblemFile(path="problems/x.jsonl")))
    path = write("problems/x.jsonl", {"question": "q", "answer": "1"}, {"other": "q"})
    with pytest.raises(ProblemFileError, match="line 2 has no field 'question'; it has other"):
        list(read_file(ProblemFile(path=path)))
    Path(path).write_text("{\n")
    with pytest.raises(ProblemFileError, match="line 1 is no JSON"):
        list(read_file(ProblemFile(path=path)))


def test_splits_share_no_family_and_a_second_build_is_the_same(sandbox: Sandbox) -> None:
    config = code_config(instances={Split.TRAIN: 12, Split.DEV: 4, Split.HELDOUT: 8})
    sources = [instance(PARTS, split=split) for split in Split]
    metrics = StageMetrics("envs_merged")
    arenas = built(sources, config, sandbox, metrics)
    families = {
        split: {arena.composition for arena in arenas if arena.split == split} for split in Split
    }
    for one in Split:
        assert families[one]
        for other in Split:
            assert one == other or not families[one] & families[other]
    again = built(sources, config, sandbox, StageMetrics("envs_merged"))
    assert [arena.model_dump_json() for arena in arenas] == [a.model_dump_json() for a in again]
    document = metrics.document()
    made = document["code_arenas"] + sum(
        count for reason, count in document["dropped"].items() if reason != "code_exhausted"
    )
    assert document["code_problems"] == made + document["dropped"].get("code_exhausted", 0)
    for names in (tables.FAMILIES, [family.name for family in mathematics.FAMILIES]):
        assert sum(len(owned(names, split, config)) for split in Split) == len(names)


def test_a_source_without_enough_problems_says_so() -> None:
    config = code_config(instances={Split.TRAIN: 10}, table_share=1.0)
    outcomes = list(draw([], config))
    assert [(one.reason, one.detail) for one in outcomes if isinstance(one, Rejection)] == [
        ("code_exhausted", "0 of 10 made")
    ]


def test_nothing_is_made_or_counted_where_nothing_is_asked_for(sandbox: Sandbox) -> None:
    metrics = StageMetrics("envs_merged")
    assert built([instance(PARTS)], code_config(), sandbox, metrics) == []
    assert metrics.document() == {"dropped": {}}


def test_generated_problems_are_kept_out_of_suites_too(in_folder: Path) -> None:
    config = code_config(instances={Split.TRAIN: 6}, table_share=0.0)
    first = next(one for one in draw([], config) if isinstance(one, Problem))
    suite = write("problems/suite.jsonl", {"question": first.question})
    guarded = config.model_copy(update={"decontaminate": (SuiteFile(path=suite),)})
    reasons = [
        one.reason
        for one in decontaminated(draw([], guarded), guarded)
        if isinstance(one, Rejection)
    ]
    assert "code_overlaps_suite" in reasons


def test_a_call_with_code_survives_the_policys_format() -> None:
    code = 'print("</tool_call>")\nx = {"a": 1}\n'
    block = render_call("python", json.dumps({"code": code}))
    from astra.agent.toolcalls import parse_assistant

    call = parse_assistant(block).tool_calls[0]
    assert json.loads(call.arguments)["code"] == code
