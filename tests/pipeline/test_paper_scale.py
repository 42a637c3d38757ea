"""Scale `paper`: every value with where it comes from, and a page that lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir

from astra.devtools import paper, params
from astra.devtools.conf_comments import read_comments
from astra.devtools.paper import CITED, OURS, SCALE, Value, merged, values
from astra.errors import AstraError
from astra.toolbank.sources import SourceError, load_sources
from configs import CONF, STAGES

BASES = (
    "scale=full", *(f"{stage}=base" for stage in STAGES), "+rl/engine=batched",
    "+rl/importance=sampler", "embedding=qwen3", "policy=tiny",
    *(f"{role}=openai" for role in ("teacher", "judge", "emulator", "user")),
)  # fmt: skip
"""What scales start from, with the paper's models in every role."""


@pytest.fixture(autouse=True)
def _at_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def composed(*overrides: str) -> Any:
    with initialize_config_dir(str(CONF), version_base=None):
        return compose("config", list(overrides))


def test_the_paper_composes_for_both_of_its_policies(tmp_path: Path) -> None:
    params.compose(tmp_path / "params.yaml", [SCALE])  # validates every block
    small = yaml.load((tmp_path / "params.yaml").read_text(), yaml.CSafeLoader)
    assert small["policy"]["path"] == "Qwen/Qwen3-14B"
    assert (small["sft"]["learning_rate"], small["sft"]["context_parallel"]) == (5e-6, 2)
    large = composed(SCALE, "policy=qwen3_32b", "sft=paper_32b")
    assert large["sft"]["policy"]["path"] == "Qwen/Qwen3-32B"
    assert (large["sft"]["learning_rate"], large["sft"]["context_parallel"]) == (2e-6, 4)
    for one in (small, large):
        assert one["policy"]["template"] == "own"
        assert one["rl"]["limits"]["max_turn_tokens"] == 16384
        assert one["bench"]["limits"]["max_turn_tokens"] == 16384
        assert one["rl"]["groups"] * one["rl"]["group_size"] == 256
        assert one["rl"]["kinds"] == ["read_only"]
        assert one["rl"]["final_answer"] == "ignore"
        assert one["rl"]["engine"]["type"] == "vllm"
        assert one["envs_merged"]["embedding"]["model"] == "Qwen/Qwen3-Embedding-8B"
        assert not any(one["envs_merged"]["code"]["instances"].values())
        assert not any(one["qa"]["instances"].values())
        assert one["trajectories"]["reasoning"] == "keep"
        assert one["trajectories"]["conversations"]["share"] == 0


def test_every_stage_has_its_file_and_every_value_in_it_a_source(root: Path) -> None:
    for stage in STAGES:
        file = root / "conf" / stage / "paper.yaml"
        document = yaml.safe_load(file.read_text())
        said = read_comments(file.read_text(), stage).own
        for name, value in paper.leaves(document, stage).items():
            if name != f"{stage}.defaults":
                above = [".".join(name.split(".")[:end]) for end in range(2, name.count(".") + 2)]
                comment = " ".join(said.get(one, "") for one in above)
                assert CITED.search(comment) or OURS.search(comment), f"{name}: {value} in {file}"


def test_whatever_differs_from_base_says_where_it_comes_from() -> None:
    base = {one.name: one.value for one in values(*BASES)}
    changed = [one for one in values(SCALE) if base.get(one.name) != one.value]
    assert len(changed) > 60
    technical = {"backend", "revision", "dtype"}  # how a model is reached, not what it is
    unsourced = [
        one.name
        for one in changed
        if not (one.is_ours or one.is_the_papers) and one.name.split(".")[-1] not in technical
    ]
    assert unsourced == []


def test_the_page_has_the_values_of_conf(root: Path) -> None:
    page = (root / "docs/paper.md").read_text()
    assert paper.updated(page) == page, "run `make params`"


def test_a_page_without_a_place_for_the_tables_is_refused() -> None:
    with pytest.raises(AstraError, match="to put the tables between"):
        paper.updated("# The paper's settings\n")


def test_what_the_page_calls_the_papers_is_not_called_ours() -> None:
    by_name = {one.name: one for one in merged(values(SCALE))}
    for name in ("sft.epochs", "rl.limits.max_turns", "qa.scenarios", "chains.max_length"):
        assert by_name[name].is_the_papers
        assert not by_name[name].is_ours
    for name in ("rl.group_size", "rl.epsilon_high", "sft_set.min_score", "rl.limits.max_calls"):
        assert by_name[name].is_ours
        assert not by_name[name].is_the_papers
    assert by_name["rl.limits.max_turn_tokens"].value == 16384


def test_values_of_one_mapping_are_one_row_where_one_comment_speaks_for_them() -> None:
    rows = [Value("a.b.c", 1, "ours"), Value("a.b.d", 2, "ours"), Value("a.e.f", 3, "ours"),
            Value("a.e.g", 4, "ASTRA"), Value("a.h", 5, "ours")]  # fmt: skip
    shown = {one.name: one.value for one in merged(rows)}
    assert shown == {"a.b": {"c": 1, "d": 2}, "a.e.f": 3, "a.e.g": 4, "a.h": 5}


def test_comments_belong_to_the_keys_they_stand_at() -> None:
    text = """\
# Opens the file.
defaults:
  - base
  - engine: vllm  # ours
  - _self_
one: 1
two: "a # b"  # beside it,
              # and going on
# above it,
# in two lines
three: {four: 4, five: {six: 6}}
seven:  # of a block
  eight: 8
  # inside
  nine: [1,
    2]
"""
    read = read_comments(text, "rl")
    assert read.bases == ("base",)
    assert {name: said for name, said in read.own.items() if said} == {
        "rl.engine": "ours",
        "rl.two": "beside it, and going on",
        "rl.three": "above it, in two lines",
        "rl.seven": "of a block",
        "rl.seven.nine": "inside",
    }
    assert read.own["rl.one"] == read.own["rl.three.five.six"] == ""
    globally = read_comments("# @package _global_\nrl: {steps: 3}  # ours\n", "policy/limits")
    assert globally.own["rl.steps"] == "ours"


def test_policies_that_think_have_room_at_every_scale() -> None:
    def limits(*overrides: str) -> list[int]:
        given = composed(*overrides)
        return [given[block].limits.max_turn_tokens for block in ("rl", "bench")]

    assert limits("scale=small", "policy=qwen3_14b") == [16384, 16384]
    assert limits("scale=full", "policy=qwen3_32b", "rl.limits.max_turn_tokens=99") == [99, 16384]
    assert max(limits(SCALE, "policy=qwen3")) <= 4096


def test_a_tool_list_that_is_not_there_is_asked_for() -> None:
    (named,) = [one.value for one in values(SCALE) if one.name == "tools.sources"]
    with pytest.raises(
        SourceError, match=r"sources/paper\.yaml not found.*tools\.sources names it"
    ):
        load_sources(Path(named[0]))
