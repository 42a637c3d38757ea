"""Formulas of single stages: what switches them, what bounds them, and the lengths of replies."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.estimate import environment_asks
from astra.estimate.asks import AskForm, ExpectedAsks, counted, total
from astra.estimate.episodes import EpisodeFacts
from astra.estimate.plans import PlanFacts
from astra.estimate.questions import QuestionFacts
from astra.estimate.servers import ServerFacts
from astra.llm.protocol import ModelConfig
from astra.qa.config import QAConfig, QAValidConfig
from astra.qa.estimate import expected_valid, question_asks, verdict_asks
from astra.scoring.config import SFTSetConfig
from astra.scoring.estimate import grade_asks
from astra.tasking import estimate as tasking
from astra.tasking.config import TasksConfig
from astra.toolbank import estimate as toolbank
from astra.toolbank.config import ToolsConfig
from astra.toolbank.sources import SourceList
from astra.toolgraph import estimate as toolgraph
from astra.toolgraph.config import ChainsConfig
from astra.toolgraph.judging import PanelOptions
from astra.trajectories import estimate as trajectories
from astra.trajectories.config import TrajectoriesConfig
from configs import block, changed

sys.path.insert(0, str(Path(__file__).parents[1] / "sft_track"))
from exchanges import recorded

ONLINE = {"backend": "openai", "model": "m", "max_tokens": 8192}
RULES = {"backend": "offline", "model": "v1"}
SERVERS = ServerFacts(counted(10), 5, 5, 500, 300, 1.0)
CHAINS = PlanFacts(counted(100), 2.0)
TASKS = PlanFacts(counted(100), 2.0)
QUESTIONS = QuestionFacts(counted(100), 3, 2.8, 1, 0.5, 0.8, 0.25, 400, 900, 0.0, 0.0)


def asks(expected: list[ExpectedAsks], kind: str) -> tuple[float, float]:
    """About how many asks of a kind, and how many at most."""
    amount = total(one.asks for one in expected if one.kind == kind)
    return round(amount.about, 6), round(amount.most, 6)


def tools_config(**changes: Any) -> ToolsConfig:
    return ToolsConfig.model_validate(changed(block("tools"), {"teacher": ONLINE, **changes}))


def test_tools_are_asked_about_where_that_is_wanted() -> None:
    both = tools_config(domains={"by": "teacher"}, infer_results=True)
    assert asks(toolbank.tool_asks(both, SERVERS), "toolbank/domain") == (10, 10)
    assert asks(toolbank.tool_asks(both, SERVERS), "toolbank/result") == (50, 50)
    assert not toolbank.tool_asks(tools_config(infer_results=False), SERVERS)


def test_documents_are_read_and_what_is_not_read_is_a_guess(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    catalogue = {"path": "sources/documents/catalogue.yaml", "format": "catalogue"}
    read = toolbank.expected_servers(
        [SourceList.model_validate({"documents": [catalogue]})], tools_config()
    )
    assert read.rows.counted
    assert read.rows.about > 500, "one file, many servers"
    listing = {"url": "http://127.0.0.1:9/", "format": "mcp_registry", "limit": 40}
    names = {"listings": [listing], "documents": [catalogue]}
    more = toolbank.expected_servers([SourceList.model_validate(names)], tools_config())
    assert more.rows.about == read.rows.about + 40
    assert not more.rows.counted


def chains_config(**operators: Any) -> ChainsConfig:
    values = block("chains")
    return ChainsConfig.model_validate({**values, "max_chains": 4, "operators": operators})


def vote(models: int, samples: int) -> dict[str, Any]:
    names = [{**ONLINE, "model": f"m{number}"} for number in range(models)]
    return {"models": names, "samples": samples, "temperature": 0.6, "quorum": 1, "min_share": 0.5}


def test_votes_are_shared_by_the_models_and_end_when_decided() -> None:
    config = chains_config(vote=vote(models=3, samples=3))
    expected = toolgraph.judging_asks(config, counted(10), SERVERS)
    assert len(expected) == 3
    about, most = asks(expected, "toolgraph/coherence")
    assert most == 10 * 4 * 9
    assert 10 * 4 * 5 <= about < most, "five of nine decide"


def test_an_operator_of_ones_own_counts_and_sees_what_passed_before() -> None:
    config = chains_config(vote=vote(models=1, samples=1))
    own = PanelOptions.model_validate(
        {"models": [ONLINE, {**ONLINE, "model": "n"}], "temperature": None}
    )
    both = config.model_copy(update={"operators": {**config.operators, "mine": own}})
    expected = toolgraph.judging_asks(both, counted(10), SERVERS)
    about, most = asks(expected, "chains.operators.mine")
    assert most == 2 * 40
    assert about == pytest.approx(2 * 40 * toolgraph.ACCEPTED)


def tasks_config(**changes: Any) -> TasksConfig:
    roles = {"teacher": ONLINE, "judge": ONLINE}
    return TasksConfig.model_validate(changed(block("tasks"), {**roles, **changes}))


def test_variants_follow_from_their_share() -> None:
    none = tasks_config(augment={"share": 0.0})
    half = tasks_config(augment={"share": 0.5, "diverse": 2, "complicate": 0, "persona": 1})
    for kind in ("diverse", "complicate", "persona", "replan"):
        assert asks(tasking.task_asks(none, CHAINS, SERVERS), f"tasking/{kind}") == (0, 0)
    expected = tasking.task_asks(half, CHAINS, SERVERS)
    diverse, most = asks(expected, "tasking/diverse")
    assert diverse == pytest.approx(2 * asks(expected, "tasking/persona")[0])
    assert diverse < most
    assert asks(expected, "tasking/complicate") == (0, 0)


def test_no_more_tasks_than_wanted() -> None:
    every = tasking.expected_tasks(tasks_config(), CHAINS, SERVERS)
    few = tasking.expected_tasks(tasks_config(max_tasks=20), CHAINS, SERVERS)
    assert every.rows.about > 100
    assert (few.rows.about, few.rows.most) == (20, 20)
    assert not few.rows.counted


def test_what_the_cap_would_drop_is_not_asked_for() -> None:
    many, few = PlanFacts(counted(5000), 2.0), PlanFacts(counted(10), 2.0)
    capped = tasks_config(max_tasks=500)

    def tried(config: TasksConfig, chains: PlanFacts) -> float:
        return asks(tasking.task_asks(config, chains, SERVERS), "tasking/chain_task")[0]

    assert tried(capped, many) < 0.2 * tried(tasks_config(), many)
    assert tried(capped, few) == tried(tasks_config(), few), "few are all written"
    assert tasking.expected_tasks(capped, many, SERVERS).rows.about == 500, "enough are left"
    share = capped.share_written(10, 5000)
    wider = tasks_config(max_tasks=500, write_margin=5.0)
    assert wider.share_written(10, 5000) == pytest.approx(2 * share)
    assert tasks_config().share_written(10, 5000) == capped.share_written(0, 0) == 1


def test_no_more_is_expected_than_there_can_be() -> None:
    chains = PlanFacts(counted(800).times(1, 4), 2.0)
    for limit in (50, 500, 5000):
        expected = tasking.task_asks(tasks_config(max_tasks=limit), chains, SERVERS)
        assert all(one.asks.about <= one.asks.most for one in expected), limit


def played(**changes: Any) -> TrajectoriesConfig:
    roles = {"agent": ONLINE, "emulator": ONLINE, "user": ONLINE}
    return TrajectoriesConfig.model_validate(changed(block("trajectories"), {**roles, **changes}))


def test_episodes_are_bounded_by_their_limits() -> None:
    config = played(limits={"max_turns": 10, "max_calls": 20}, samples=2)
    expected = trajectories.episode_asks(config, TASKS, SERVERS)
    assert asks(expected, trajectories.TURN)[1] == 2 * 100 * 10
    assert asks(expected, "trajectories/emulate")[1] == 2 * 100 * 20
    live = ServerFacts(counted(10), 5, 5, 500, 300, emulated=0.0)
    assert asks(trajectories.episode_asks(config, TASKS, live), "trajectories/emulate")[0] == 0


def test_only_conversations_have_users() -> None:
    alone = trajectories.episode_asks(played(conversations={"share": 0.0}), TASKS, SERVERS)
    assert asks(alone, "trajectories/user") == asks(alone, "trajectories/follow_up") == (0, 0)
    both = played(conversations={"share": 0.5})
    assert asks(trajectories.episode_asks(both, TASKS, SERVERS), "trajectories/follow_up")[0] > 40
    ruled = played(conversations={"share": 0.5}, agent=RULES, allow_rule_emulator=True)
    expected = trajectories.episode_asks(ruled, TASKS, SERVERS)
    assert asks(expected, "trajectories/follow_up") == (0, 0), "rules need another task"
    assert asks(expected, "trajectories/user")[0] > 0


def test_grades_are_two_and_one_for_each_later_turn() -> None:
    config = SFTSetConfig.model_validate(changed(block("sft_set"), {"judge": ONLINE}))
    episodes = EpisodeFacts(counted(10), 4.0, 3.0, 2000, 3000)
    expected = grade_asks(config, episodes)
    assert asks(expected, "scoring/conduct") == asks(expected, "scoring/final_answer") == (10, 10)
    assert asks(expected, "scoring/turn")[1] == 30
    whole, _, turn = expected
    assert turn.prompt_tokens < whole.prompt_tokens, "a turn is judged by what came before it"
    silent = EpisodeFacts(counted(10), 0.0, 0.0, 500, 3000)
    assert asks(grade_asks(config, silent), "scoring/turn") == (0, 0)


def test_verdicts_and_what_passes() -> None:
    values = changed(block("qa_valid"), {"judge": ONLINE, "contamination": None})
    config = QAValidConfig.model_validate(values)
    expected = verdict_asks(config, QUESTIONS)
    assert asks(expected, "qa/necessity") == (100, 300), "ids that do not fit are asked for thrice"
    assert asks(expected, "qa/dependency")[0] == 50
    assert asks(expected, "qa/completeness") == (100, 100)
    best = {"threshold": {"kind": "percentile", "value": 90}}
    strict = QAValidConfig.model_validate(changed(values, best))
    assert expected_valid(strict, QUESTIONS).rows.about == pytest.approx(10)


def test_what_holds_by_construction_is_asked_of_the_audited_alone() -> None:
    values = changed(
        block("qa_valid"), {"judge": ONLINE, "contamination": None, "audit_share": 0.1}
    )
    half = replace(QUESTIONS, operated=0.8, planned=0.5)
    expected = verdict_asks(QAValidConfig.model_validate(values), half)
    assert asks(expected, "qa/necessity") == pytest.approx((28, 84))
    assert asks(expected, "qa/sequential") == pytest.approx((28, 84))
    assert asks(expected, "qa/atomicity") == pytest.approx((55, 165))
    assert asks(expected, "qa/completeness") == pytest.approx((55, 55))


def test_a_hopeless_sub_question_costs_what_is_allowed() -> None:
    values = changed(block("envs"), {"teacher": ONLINE, "max_asks": 30})
    expected = environment_asks(EnvsConfig.model_validate(values), QUESTIONS)
    assert total(one.asks for one in expected).most == pytest.approx(280 * 30)
    inner = EnvsConfig.model_validate({**values, "nodes": "non_leaf"})
    (document, *_) = environment_asks(inner, QUESTIONS)
    assert document.asks.about == pytest.approx(100 * 1.05)


def test_languages_share_the_questions() -> None:
    values = changed(block("qa"), {"teacher": ONLINE, "languages": {"en": 0.75, "zh": 0.25}})
    values = changed(values, {"instances": {"train": 80, "dev": 10, "heldout": 10}})
    expected = question_asks(QAConfig.model_validate(values), {"en": 5, "zh": 2})
    assert asks(expected, "qa/decompose") == (75, 75), "English look-ups that only read"
    assert asks(expected, "qa/outline_zh") == (25, 25)
    assert asks(expected, "qa/synthesise") == (6, 10), "a reply may go back once"
    assert asks(expected, "qa/synthesise_zh") == pytest.approx((2.4, 4))
    assert asks(expected, "qa/outline") == (0, 0)


REPLIES: dict[str, AskForm] = {
    "BackChain": toolgraph.CHAIN,
    "BackQuery": toolgraph.QUERY,
    "CoherenceVerdict": toolgraph.VERDICT,
    "ChainProposals": toolgraph.PROPOSALS,
    "DomainLabel": toolbank.LABEL,
    "EmulatedReply": trajectories.RESULT,
    "Rewritten": tasking.VARIANTS["complicate"],
    "TaskScores": tasking.SCORES,
    "UserReply": trajectories.SAID,
    "WrittenTask": tasking.FROM_CHAIN,
}


def test_replies_are_as_long_as_those_of_a_strong_model() -> None:
    """Recorded replies; those to proposals and votes hold more by now than they did."""
    lengths: defaultdict[str, list[int]] = defaultdict(list)
    turns: list[int] = []
    for one in recorded():
        form = (one["ask"].get("response_format") or {}).get("json_schema", {})
        content = one["answer"].get("content") or ""
        if form.get("name") in REPLIES:
            lengths[form["name"]].append(len(content.encode()))
        elif "tools" in one["ask"]:
            calls = one["answer"].get("tool_calls") or ()
            written = [str(call["arguments"]) for call in calls]
            turns.append(len(content.encode()) + sum(map(len, written)))
    assert set(lengths) == set(REPLIES)
    for name, form in REPLIES.items():
        assert 0.8 <= form.reply_bytes / fmean(lengths[name]) <= 2.0, name
    assert 0.8 <= trajectories.TURN_BYTES / fmean(turns) <= 2.0


def test_a_model_that_may_write_little_is_not_charged_for_more() -> None:
    brief = ModelConfig(backend="openai", model="m", max_tokens=50)
    one = toolgraph.PROPOSALS.asked("teacher", brief, counted(1), 0)
    assert one.completion_tokens == 50
