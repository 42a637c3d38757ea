"""Generated worlds: same bytes twice, within their bounds, apart from suites."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from small_worlds import small_world

from astra.contamination.index import ContaminationConfig, ContaminationIndex
from astra.contamination.suites import SuiteTexts
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig
from astra.records.base import canonical_json
from astra.records.qa import Split
from astra.records.score import Rejection
from astra.records.world import World, WorldShape
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.settings import ParamsError, validate
from astra.store.metrics import StageMetrics
from astra.text.names import Pool, pool_of
from astra.worlds.composition import compose, lexicon
from astra.worlds.config import ProofConfig, WorldsConfig
from astra.worlds.domain import Archetype, load_domains
from astra.worlds.generator import generate
from astra.worlds.plans import plans
from astra.worlds.policy import REFUSALS
from astra.worlds.sentences import with_article
from astra.worlds.soundness import soundness_faults
from astra.worlds.worlds import WorldTeachers, overlap, worlds

OFFLINE = ModelConfig(backend="offline", model="v1")
SPLITS = {Split.TRAIN: 6, Split.DEV: 1, Split.HELDOUT: 3}


def config(**fields: Any) -> WorldsConfig:
    given: dict[str, Any] = {
        "seed": 0,
        "shape": WorldShape.SMALL,
        "domains": ("gym_classes", "library_loans"),
        "variants": {Split.TRAIN: 1, Split.DEV: 1},
        "composed": 0,
        "attempts": 3,
        "teacher": OFFLINE,
        "judge": OFFLINE,
        "subjects": (),
        "services": (),
        "inner_attempts": 1,
        "max_asks": 1,
        "agreement_cases": 2,
        "proofs": ProofConfig(fuzz_calls=40, walk_calls=30),
        "contamination": None,
        "sandbox": SandboxLimits(cpu_s=60),
        **fields,
    }
    return WorldsConfig(**given)


def test_ten_domains_are_split_six_one_three() -> None:
    domains = load_domains()
    assert Counter(domain.split for domain in domains.values()) == SPLITS
    nouns = [noun.plural for domain in domains.values() for noun in domain.nouns.values()]
    assert not [noun for noun, count in Counter(nouns).items() if count > 1]


@pytest.mark.parametrize("name", sorted(load_domains()))
@pytest.mark.parametrize("shape", list(WorldShape))
def test_every_variant_is_sound_and_within_its_bounds(name: str, shape: WorldShape) -> None:
    for variant in range(4):
        world = generate(load_domains()[name], variant, shape, 0)
        assert not list(soundness_faults(world))
        assert world.split == load_domains()[name].split


@pytest.mark.parametrize("name", ["veterinary_clinic", "gym_classes", "museum_ticketing"])
def test_small_worlds_whose_tools_show_no_date_have_no_rule_about_it(name: str) -> None:
    """They list appointments with the key of their session, and nothing reads a session."""
    for seed in range(20):
        world = generate(load_domains()[name], 0, WorldShape.SMALL, seed)
        shown = {table for tool in world.tools if not tool.writes for table in tool.shows}
        assert world.tables[1].name not in shown
        assert [rule.id for rule in world.rules] == ["authenticate", "resize_limit"]


@pytest.mark.parametrize("shape", [WorldShape.SMALL, WorldShape.FULL])
def test_a_policy_says_what_each_general_code_is_for_and_to_wait(shape: WorldShape) -> None:
    policy = generate(load_domains()["museum_ticketing"], 0, shape, 0).policy
    for code in REFUSALS:
        assert re.search(rf"`{code}` (?:\(\w|where )", policy), code
    assert "Before `not_offered`, tell the user and wait for the answer." in policy


@pytest.mark.parametrize("name", ["utility_metering", "veterinary_clinic"])
@pytest.mark.parametrize("shape", [WorldShape.SMALL, WorldShape.FULL])
def test_articles_fit_their_nouns(name: str, shape: WorldShape) -> None:
    world = generate(load_domains()[name], 0, shape, 0)
    told = [world.policy, *(tool.tool.description for tool in world.tools)]
    assert not re.search(r"\ba [aeiou]", " ".join(told), re.I)
    assert with_article("use") == "a use"


def test_variants_differ_in_rows_names_of_tools_and_rules() -> None:
    made = [generate(load_domains()["tool_rental"], v, WorldShape.FULL, 0) for v in range(8)]
    for one, other in itertools.combinations(made, 2):
        assert one.id != other.id
        assert one.rows["customers"] != other.rows["customers"]
        assert [rule.text for rule in one.rules] != [rule.text for rule in other.rules]
    assert len({frozenset(tool.tool.name for tool in world.tools) for world in made}) == 8
    assert len({tuple(table.name for table in world.tables) for world in made}) >= 3


def test_names_of_people_stay_in_the_pool_of_their_split() -> None:
    pools = {Split.TRAIN: Pool.TRAIN, Split.DEV: Pool.DEV, Split.HELDOUT: Pool.HELDOUT}
    for domain in load_domains().values():
        world = generate(domain, 0, WorldShape.FULL, 0)
        people = [str(row[column]) for row in world.rows[world.tables[0].name]
                  for column in row
                  if column in ("name", *domain.nouns[Archetype.PARTY].columns.values())
                  and " " in str(row[column])]  # fmt: skip
        assert {pool_of(name) for name in people} == {pools[domain.split]}


def test_people_share_names_and_things_share_attributes() -> None:
    world = generate(load_domains()["library_loans"], 0, WorldShape.FULL, 0)
    names = [row["name"].split(" ", 1) for row in world.rows["members"]]
    firsts, lasts = Counter(n[0] for n in names), Counter(n[1] for n in names)
    alike = [n for n in names if firsts[n[0]] > 1 or lasts[n[1]] > 1]
    assert len(alike) > len(names) / 2
    assert max(Counter(map(tuple, names)).values()) == 2
    for column in ("branch", "format"):
        assert min(Counter(row[column] for row in world.rows["copies"]).values()) >= 3


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    program = (
        "from astra.records.world import WorldShape as S\n"
        "from astra.worlds.composition import compose\n"
        "from astra.worlds.domain import Archetype, load_domains as d\n"
        "from astra.worlds.generator import generate as g\n"
        "print(g(d()['gym_classes'], 1, S.FULL, 3).model_dump_json())\n"
        "print(g(compose(2, 0), 1, S.FULL, 3).model_dump_json())\n"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(made) == 1


def test_composed_domains_have_nouns_of_their_own_and_sound_worlds() -> None:
    taken = {noun.noun for domain in load_domains().values() for noun in domain.nouns.values()}
    made = [compose(number, 0) for number in range(6)]
    for domain in made:
        assert domain.split == Split.TRAIN
        assert not taken & {noun.noun for noun in domain.nouns.values()}
        assert not list(soundness_faults(generate(domain, 0, WorldShape.FULL, 0)))
    assert len({canonical_json(sorted(n.noun for n in d.nouns.values())) for d in made}) == 6


def test_composed_worlds_are_called_differently_each_time() -> None:
    made = [generate(compose(at, 0), at, WorldShape.SMALL, 0) for at in range(60)]
    tools = Counter(one.tool.name for world in made for one in world.tools)
    columns = Counter(name for world in made for name in {c.name for t in world.tables
                                                           for c in t.columns})  # fmt: skip
    assert len(tools) > 200
    assert len(columns) > 200
    shared = {"decline_request", "hand_over", "outcome_id", "outcome", "reason", "email"}
    assert max(n for name, n in (tools + columns).items() if name not in shared) <= 30
    for domain in (compose(at, 0) for at in range(60)):
        assert len({noun.prefix for noun in domain.nouns.values()}) == len(domain.nouns)


def test_the_lexicon_has_no_word_of_a_domain_that_is_not_trained_on() -> None:
    kept = [domain for domain in load_domains().values() if domain.split is not Split.TRAIN]
    nouns = [noun for domain in kept for noun in domain.nouns.values()]
    columns = {name.replace("_", " ") for noun in nouns for name in noun.columns.values()}
    values = {value for noun in nouns for value in noun.values.get("state", ())}
    verbs = {name for domain in kept for names in domain.verbs.values() for name in names}
    words = lexicon()
    drawn = {one for of in words["columns"].values() for names in of.values() for one in names}
    assert len(drawn) == sum(len(n) for of in words["columns"].values() for n in of.values())
    assert not drawn & columns
    assert not values & {value for of in words["values"].values()
                         for one in of["state" if "state" in of else "tier"]
                         for value in one.split()}  # fmt: skip
    assert not verbs & {name for names in words["verbs"].values() for name in names}


def test_plans_follow_splits_and_refuse_unknown_domains() -> None:
    made = plans(config(variants={Split.TRAIN: 2, Split.DEV: 1}, composed=1))
    assert [plan.name for plan in made] == [
        "gym_classes/0", "library_loans/0", "library_loans/1", "composed_0/0",
    ]  # fmt: skip
    with pytest.raises(ParamsError, match="there are no domains"):
        validate("worlds", {**config().model_dump(), "domains": ["moon_base"]}, WorldsConfig)


def outcomes(sandbox: LocalSandbox, **fields: object) -> list[World | Rejection]:
    async def run() -> list[World | Rejection]:
        asked = config(**fields)
        # No subject is asked for, so nobody is asked.
        rules = OfflineTeacher(asked.teacher, {})
        teachers = WorldTeachers(rules, rules)
        flow = worlds(plans(asked), teachers, sandbox, asked, None, 2, StageMetrics("worlds"))
        return [outcome async for outcome in flow]

    return asyncio.run(run())


def test_what_leaves_the_stage_is_proved_and_the_same_twice(sandbox: LocalSandbox) -> None:
    first, second = outcomes(sandbox), outcomes(sandbox)
    assert [one.model_dump_json() for one in first] == [one.model_dump_json() for one in second]
    made = [one for one in first if isinstance(one, World)]
    assert [world.domain for world in made] == ["gym_classes", "library_loans"]
    assert all(world.checks["walked_calls"] == 30 for world in made)


def test_a_world_that_never_passes_is_rejected_with_every_try(sandbox: LocalSandbox) -> None:
    none = ProofConfig(fuzz_calls=1, walk_calls=1)  # so few calls that some tool never succeeds
    refused = outcomes(
        sandbox, shape=WorldShape.FULL, proofs=none, attempts=2, domains=("library_loans",)
    )
    assert [type(one) for one in refused] == [Rejection, Rejection]
    assert [one.final for one in refused if isinstance(one, Rejection)] == [False, True]
    assert {one.item for one in refused if isinstance(one, Rejection)} == {"library_loans/0"}


def test_a_world_shares_no_tool_and_no_text_with_a_suite() -> None:
    world = small_world()
    gate = ContaminationConfig(index="none", tool_names=0.01, schemas=0.01)
    asked = config(contamination=gate)
    renew = world.tools[2].tool
    for suite in (
        SuiteTexts("names", tools=[(renew.name, {})]),
        SuiteTexts("texts", texts={f"First. {world.policy}"}),
    ):
        fault = overlap(world, asked, ContaminationIndex.of([suite]))
        assert fault is not None
        assert fault.reason == "contaminated"
    other = SuiteTexts("other", texts={"Book me a table for nine people on Sunday evening."})
    assert overlap(world, asked, ContaminationIndex.of([other])) is None
