"""The paper's own questions: budgets of sub-questions, scenario shares, and corpora of a user."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig
from astra.prompting import render
from astra.qa.budgets import LEAST, deepest, draw_budget
from astra.qa.config import QAConfig
from astra.qa.free import FreeRequest
from astra.qa.knowledge.schema import KnowledgeError
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa import QuestionWriter, corpus_counts, instances
from astra.records.qa import QAInstance, QuestionKind, Scenario
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics
from configs import CONF

RULES = OfflineTeacher(ModelConfig(backend="offline", model="rules-1"), HANDLERS)
LINES: dict[str, list[dict[str, Any]]] = {
    "contexts_en": [{"domain": "sailing", "knowledge_corpus": "Background: {text}"}],
    "questions_en": [
        {"domain": "property", "question": "What is the fee of the agent of Amber Terrace?"},
        {"domain": "shipping", "question": "Tell me the load of Copper Crate and Tin Crate."},
    ],
    "domains_en": [{"domain": "Hotels", "knowledge_corpus": ""}, {"domain": "Cloud storage"}],
    "domains_zh": [{"domain": "外卖配送"}],
    "taxonomy_en": [
        {
            "domain": "real estate",
            "description": "Fees of agents",
            "examples": ["What is the fee of the agent of Amber Terrace?"],
        }
    ],
}


@pytest.fixture(scope="module")
def paper() -> QAConfig:
    with initialize_config_dir(str(CONF), version_base=None):
        composed = compose("config", ["scale=test", "qa=paper"])
    values = OmegaConf.to_container(composed.qa, resolve=True)
    return QAConfig.model_validate(values)


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    folder = tmp_path / "knowledge"
    (folder / "paper").mkdir(parents=True)
    for name, rows in LINES.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / "paper" / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def drawn(config: QAConfig, number: int) -> list[tuple[Scenario, int]]:
    rng = random.Random(7)
    scenarios = rng.choices(list(config.scenarios), list(config.scenarios.values()), k=number)
    budgets = [draw_budget(scenario, config.steps, rng) for scenario in scenarios]
    return [(scenario, n) for scenario, n in zip(scenarios, budgets, strict=True) if n is not None]


def test_budgets_have_the_papers_mean_median_and_range(paper: QAConfig) -> None:
    draws = drawn(paper, 2000)
    numbers = [budget for _, budget in draws]
    assert len(numbers) == 2000
    assert fmean(numbers) == pytest.approx(4.37, abs=0.1)
    assert median(numbers) == 4
    assert min(numbers) == 1
    assert 12 <= max(numbers) <= 20


def test_scenarios_have_the_papers_shares_and_fit_their_budgets(paper: QAConfig) -> None:
    draws = drawn(paper, 2000)
    shares = Counter(scenario for scenario, _ in draws)
    for scenario, share in (
        (Scenario.PARALLEL_MULTI_HOP, 0.478),
        (Scenario.MULTI_HOP, 0.348),
        (Scenario.PARALLEL_SINGLE_HOP, 0.106),
        (Scenario.SINGLE_HOP, 0.068),
    ):
        assert shares[scenario] / 2000 == pytest.approx(share, abs=0.03)
    for scenario, budget in draws:
        assert budget >= LEAST[scenario]
        assert (budget == 1) is (scenario is Scenario.SINGLE_HOP)
        assert 1 <= deepest(scenario, budget) <= budget


@pytest.mark.parametrize(
    ("scenario", "weights", "budget"),
    [
        (Scenario.MULTI_HOP, {}, None),
        (None, {4: 1.0}, None),
        (Scenario.SINGLE_HOP, {4: 1.0}, 1),
        (Scenario.PARALLEL_MULTI_HOP, {2: 1.0}, 3),
        (Scenario.PARALLEL_MULTI_HOP, {2: 1.0, 5: 0.0, 6: 0.1}, 6),
    ],
)
def test_budgets_at_the_edges(
    scenario: Scenario | None, weights: dict[int, float], budget: int | None
) -> None:
    assert draw_budget(scenario, weights, random.Random(0)) == budget


def test_deepest_levels_by_hand() -> None:
    assert deepest(Scenario.SINGLE_HOP, 1) == deepest(Scenario.PARALLEL_SINGLE_HOP, 5) == 1
    assert deepest(Scenario.MULTI_HOP, 5) == 5
    assert deepest(Scenario.PARALLEL_MULTI_HOP, 5) == 4


def test_the_paper_is_read_only_and_plans_nothing(paper: QAConfig) -> None:
    assert paper.kinds_used == [QuestionKind.READ_ONLY]
    assert not any(paper.instances.values())
    limits = {name: corpus.limit for name, corpus in paper.corpora.items()}
    assert limits == {
        "contexts_en": 4063, "questions_en": 609, "domains_en": 39, "domains_zh": 113,
        "taxonomy_en": None,
    }  # fmt: skip
    known = [c.limit * c.samples for c in paper.corpora.values() if c.limit]
    assert sum(known) == pytest.approx(6596, rel=0.02)


@pytest.mark.parametrize(
    ("absent", "mode", "held"),
    [
        ("contexts_en", "context", "domain and knowledge_corpus"),
        ("questions_en", "question", "domain and question"),
        ("domains_zh", "base", "domain"),
        ("taxonomy_en", "taxonomy", "domain and description"),
    ],
)
def test_a_corpus_that_is_not_there_is_named_with_what_it_holds(
    absent: str, mode: str, held: str, paper: QAConfig, corpora: Path
) -> None:
    (corpora / "paper" / f"{absent}.jsonl").unlink()
    with pytest.raises(KnowledgeError) as error:
        QuestionWriter(paper, corpora)
    told = str(error.value)
    assert str(corpora / "paper" / f"{absent}.jsonl") in told
    assert f"Mode {mode} takes a .jsonl file whose lines hold {held}." in told
    assert f"qa.corpora.{absent}" in told
    assert "docs/knowledge.md" in told


def test_without_corpora_and_tables_there_is_nothing_to_ask(qa_config: Any) -> None:
    with pytest.raises(ValueError, match="positive weight"):
        qa_config(sources={"hotels": 0})
    assert qa_config(sources={"hotels": 0}, instances={"train": 0}).corpora == {}
    with pytest.raises(ValueError, match="steps needs a positive weight"):
        qa_config(steps={4: 0.0})


def test_counts_say_what_the_corpora_lack(paper: QAConfig, corpora: Path, qa_config: Any) -> None:
    counts = corpus_counts(paper, corpora)
    assert counts["questions_en"] == {"wanted": 609, "available": 2, "used": 2}
    assert counts["taxonomy_en"] == {"wanted": 1, "available": 1, "used": 1}
    few = {"d": {"mode": "base", "path": "paper/domains_en.jsonl", "hops": {"min": 1, "max": 2}}}
    capped = qa_config(corpora={"d": {**few["d"], "limit": 1}})
    assert corpus_counts(capped, corpora) == {"d": {"wanted": 1, "available": 2, "used": 1}}
    unused = qa_config(corpora={"d": {**few["d"], "language": "zh"}})
    assert corpus_counts(unused, corpora) == {}


def test_the_teacher_is_told_the_budget(paper: QAConfig, corpora: Path) -> None:
    requests = list(QuestionWriter(paper, corpora).wanted())
    assert len(requests) == 1 + 2 + 2 + 17 + 1
    for request in requests:
        assert isinstance(request, FreeRequest)
        variables = request.variables
        template = "qa/synthesise_zh" if variables["language"] == "zh" else "qa/synthesise"
        if variables["mode"] == "question":
            assert variables["steps"] is None
            continue
        assert variables["min_hops"] <= variables["max_hops"] <= variables["steps"]
        other = {**variables, "steps": variables["steps"] + 1}
        assert render(template, variables) != render(template, other)


def test_a_small_run_by_the_offline_teacher(paper: QAConfig, corpora: Path) -> None:
    async def collect() -> list[QAInstance | Rejection]:
        writer, metrics = QuestionWriter(paper, corpora), StageMetrics("qa")
        return [o async for o in instances(writer, RULES, 4, metrics)]

    made = [o for o in asyncio.run(collect()) if isinstance(o, QAInstance)]
    assert len(made) >= 8
    assert {instance.kind for instance in made} == {QuestionKind.READ_ONLY}
    assert {instance.language for instance in made} == {"en", "zh"}
    assert not any(instance.planned for instance in made)
