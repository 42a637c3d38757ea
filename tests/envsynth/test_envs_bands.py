from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from env_samples import answer

from astra.embedding.protocol import Vectors
from astra.envsynth.bands import ToolPool, band_of, document_text, with_irrelevant
from astra.records.environment import Arena, ArenaStep, ArenaTool, Band
from astra.records.qa import QuestionKind, Scenario, Split
from astra.records.tool import Execution, Tool, ToolServer
from astra.store.shelf import Shelf


def tool(name: str, code: str = "code") -> ArenaTool:
    document = Tool(name=name, description=name, parameters={"type": "object", "properties": {}})
    return ArenaTool(tool=document, code=code)


def arena(qa_id: str, domain: str, *names: str, split: Split = Split.TRAIN) -> Arena:
    step = ArenaStep(id=1, hop_level=1, question="q", answer=answer("number", 1),
                     tool_name=names[0])  # fmt: skip
    return Arena(
        qa_id=qa_id, split=split, domain=domain, language="en", source="test",
        kind=QuestionKind.READ_ONLY, scenario=Scenario.SINGLE_HOP, hops=1, main_question="q",
        final_answer=step.answer, tools=tuple(tool(name, f"{qa_id}") for name in names),
        steps=(step,), entities=(), composition=qa_id,
    )  # fmt: skip


def server(domain: str, *names: str) -> ToolServer:
    return ToolServer(
        name=f"s_{domain}", title="", description="", domain=domain, source="t", licence="",
        language="en", execution=Execution.EMULATED, deterministic=True,
        tools=tuple(tool(name).tool for name in names),
    )  # fmt: skip


class Angles:
    """Embeds the document of tool ``t<degrees>_...`` as a unit vector at that angle."""

    name = "angles"

    def embed(self, texts: Sequence[str]) -> Vectors:
        angles = [np.radians(float(text.split(":")[0].split("_")[0][1:])) for text in texts]
        return np.array([[np.cos(a), np.sin(a)] for a in angles], dtype=np.float32)


def test_bands_after_min_max_per_tool_in_scope() -> None:
    similar = np.array([[0.5, 0.30, 0.20, 0.10], [0.1, 0.2, 0.3, 0.9]])
    # scaled rows: 1, .5, .25, 0  and  0, .125, .25, 1: the highest of both decides
    assert list(band_of(similar)) == [Band.HIGH, Band.MEDIUM, Band.LOW, Band.HIGH]
    edges = np.array([[0.0, 0.3999, 0.4, 0.85, 0.8501, 1.0]])
    assert list(band_of(edges)) == [
        Band.LOW, Band.LOW, Band.MEDIUM, Band.MEDIUM, Band.HIGH, Band.HIGH,
    ]  # fmt: skip
    assert list(band_of(np.array([[0.7, 0.7]]))) == [Band.LOW, Band.LOW]


def test_the_most_alike_of_a_pool_without_anything_alike_is_not_high() -> None:
    assert list(band_of(np.array([[0.39, 0.2, 0.1]]))) == [Band.MEDIUM, Band.LOW, Band.LOW]
    assert list(band_of(np.array([[0.4, 0.2, 0.1]]))) == [Band.HIGH, Band.LOW, Band.LOW]
    two = np.array([[0.3, 0.1], [0.45, 0.2]])
    assert list(band_of(two)) == [Band.HIGH, Band.LOW], "one tool in scope alike is enough"


def test_candidates_by_band_domain_name_and_split() -> None:
    mine = arena("a", "estate", "t0_price")
    others = [
        arena("b", "law", "t10_near"),
        arena("c", "law", "t10_near", "t60_middle", "t0_price"),
        arena("d", "food", "t90_far"),
        arena("e", "estate", "t5_same_domain"),
        arena("f", "law", "t12_other_split", split=Split.HELDOUT),
    ]
    servers = [server("mail", "t80_bare", "t10_near"), server("estate", "t1_bare_same")]
    with ToolPool([mine, *others], servers) as pool:
        (found,) = with_irrelevant([mine], pool, Angles(), 9)
    names = {band: [t.tool.name for t in tools] for band, tools in found.irrelevant.items()}
    assert names == {
        Band.HIGH: ["t10_near"],
        Band.MEDIUM: ["t60_middle"],
        Band.LOW: ["t80_bare", "t90_far"],
    }
    by_name = {t.tool.name: t for tools in found.irrelevant.values() for t in tools}
    assert by_name["t80_bare"].code == ""
    assert by_name["t10_near"].code != ""
    assert found.id == mine.id
    with ToolPool(others, servers) as pool:
        heldout = [pool.tool(number) for number in pool.candidates(Split.HELDOUT, "estate")]
    assert [offer.tool.name for offer in heldout] == ["t10_near", "t12_other_split", "t80_bare"]
    assert all(offer.code in ("", "f") for offer in heldout)


def test_a_document_keeps_no_mark_of_where_it_comes_from() -> None:
    schema = {
        "type": "object",
        "properties": {"x-ray": {"type": "string", "x-entity": "thing", "minLength": 1}},
    }
    marked = server("mail", "t80_bare")
    document = marked.tools[0].model_copy(
        update={"parameters": schema, "original_name": "T80", "hints": {"x-ray": {"examples": []}}}
    )
    with ToolPool([], [marked.model_copy(update={"tools": (document,)})]) as pool:
        (number,) = pool.candidates(Split.TRAIN, "estate")
        found = pool.tool(number).tool
    assert found.parameters["properties"] == {"x-ray": {"type": "string", "minLength": 1}}
    assert (found.original_name, found.hints) == (None, {})


def offered(arenas: Sequence[Arena], per_band: int) -> list[Arena]:
    with ToolPool(arenas, []) as pool:
        return list(with_irrelevant(arenas, pool, Angles(), per_band))


def test_at_most_k_per_band_whatever_the_order() -> None:
    arenas = [arena("a", "estate", "t0_price")]
    arenas += [arena(f"x{k}", "law", f"t{k}_tool{k}") for k in range(1, 90)]
    forward, backward = offered(arenas, 2), offered(arenas[::-1], 2)
    assert {a.id: a for a in forward} == {a.id: a for a in backward}
    assert [len(tools) for tools in forward[0].irrelevant.values()] == [2, 2, 2]
    assert offered(arenas, 0)[0].irrelevant == {}


def test_the_first_of_each_name_and_domain_stays_whatever_the_order() -> None:
    rng = random.Random(3)
    arenas = [
        arena(f"q{k}", f"d{rng.randrange(5)}", *{f"t{rng.randrange(30)}_x" for _ in range(3)},
              split=rng.choice(list(Split)))
        for k in range(60)
    ]  # fmt: skip
    servers = [server(f"d{k}", *(f"t{n}_x" for n in range(k, 40, 7))) for k in range(7)]

    def expected(split: Split, domain: str) -> list[tuple[str, str]]:
        offers = [
            (offer.tool.name, one.domain, offer.code)
            for one in sorted(arenas, key=lambda one: one.id)
            if one.split == split
            for offer in one.tools
        ]
        offers += [
            (offer.name, one.domain, "")
            for one in sorted(servers, key=lambda one: one.id)
            for offer in one.tools
        ]
        first: dict[str, str] = {}
        for name, owner, code in offers:
            if owner != domain:
                first.setdefault(name, code)
        return sorted(first.items())

    for _ in range(3):
        rng.shuffle(arenas)
        rng.shuffle(servers)
        with ToolPool(arenas, servers) as pool:
            for split in Split:
                for domain in ("d0", "d3", "d6", "elsewhere"):
                    chosen = [pool.tool(number) for number in pool.candidates(split, domain)]
                    found = [(offer.tool.name, offer.code) for offer in chosen]
                    assert found == expected(split, domain)


def test_an_empty_pool_offers_nothing() -> None:
    assert offered([arena("a", "estate", "t0_price")], 2)[0].irrelevant == {}
    with ToolPool([], []) as pool:
        assert list(pool.candidates(Split.TRAIN, "estate", {"t0_price"})) == []


def test_memory_grows_with_texts_and_not_with_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python objects at their peak, for four times the arenas over the same tools."""
    monkeypatch.setattr("astra.envsynth.bands.BLOCK_ARENAS", 20)

    def peak(count: int) -> int:
        names = [f"t{k}_tool" for k in range(60)]
        stored = Shelf(Arena, lambda one: one.id)
        for k in range(count):
            stored.add(arena(f"q{k}", f"d{k % 4}", names[k % 30], names[(k + 7) % 30]))
        with stored:
            tracemalloc.start()
            with ToolPool(stored, []) as pool:
                for one in with_irrelevant(stored, pool, Angles(), 2):
                    assert one.irrelevant
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return found

    few = peak(60)
    assert peak(240) < 1.3 * few


def test_the_embedded_text_says_what_the_tool_takes() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "description": "a town"},
                                               "day": {"type": "string"}}}  # fmt: skip
    document = Tool(name="get_rain", description="Get rain.", parameters=schema)
    assert document_text(document) == "get_rain: Get rain. Parameters: city (a town), day"
