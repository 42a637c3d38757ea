"""Normalising real tool corpora, and walking a graph of their size.

PYTHONPATH=src ASTRA_CORPORA=/path python benchmarks/tools.py [survival|normalise|memory|walks]

The corpora are JSON lines: ``tools/*.jsonl`` with one server a line, and ``raw_variants.jsonl``
with documents exactly as they were found. Times are CPU seconds of this process, which other work
on the machine changes less than the clock.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import networkx as nx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from astra.store.metrics import StageMetrics
from astra.toolbank.config import FilterConfig
from astra.toolbank.documents import parse_document
from astra.toolbank.normalise import ServerNormaliser, normalise_tool
from astra.toolbank.raw import BadDocument, RawServer
from astra.toolbank.schema import MAX_TEXT, Unmappable
from astra.toolgraph.asks import propose_ask
from astra.toolgraph.graph import build_graph, read_reply
from astra.toolgraph.offline.handlers import propose
from astra.toolgraph.walks import sample_walks

FILTERS = FilterConfig(
    min_tools=3,
    max_tools=64,
    min_description_chars=12,
    max_description_chars=1024,
    max_bad_description_share=0.5,
    deterministic_only=False,
    languages=(),
    duplicate_similarity=0.8,
)
RAW = "raw_variants"
GRAPH_TOOLS = 20_000


def documents(folder: Path) -> Iterator[tuple[str, str, Any, str]]:
    """Corpus, format, document and source of every line."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                if path.stem == RAW:
                    yield path.stem, format_of(row["format"]), row["raw"], row["source"]
                else:
                    yield path.stem, "mcp", row, f"{path.stem}#{number}"


def format_of(name: str) -> str:
    """The connector of a raw document's format."""
    starts = {"openapi": "openapi", "swagger": "openapi", "rapidapi": "rapidapi", "bfcl": "bfcl",
              "docker": "docker"}  # fmt: skip
    return next((kind for start, kind in starts.items() if name.startswith(start)), "mcp")


def raw_servers(folder: Path, metrics: StageMetrics) -> Iterator[tuple[str, RawServer]]:
    for corpus, kind, document, source in documents(folder):
        base = RawServer(name=source, source=source, tools=())
        metrics.count(f"{corpus} documents")
        try:
            for server in parse_document(kind, document, base):
                yield corpus, server
        except BadDocument as error:
            print(f"  rejected document of {source}: {error}")
            metrics.count(f"{corpus} rejected documents")


def passes_metaschema(schema: Any) -> bool:
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError):
        return False
    return isinstance(schema, dict)


def survival(folder: Path) -> None:
    """Tools whose raw schema passes the metaschema: how many does normalisation keep?"""
    seen, valid, kept, repaired = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    reasons = Counter[str]()
    for corpus, server in raw_servers(folder, StageMetrics("tools")):
        for tool in server.tools:
            fine = passes_metaschema(tool.parameters)
            seen[corpus] += 1
            valid[corpus] += fine
            try:
                normalise_tool(tool, MAX_TEXT)
            except Unmappable as error:
                reasons[error.reason] += 1
                continue
            kept[corpus] += fine
            repaired[corpus] += not fine
    for corpus in (*sorted(seen), None):
        total, passing, left, mended = (
            sum(counts.values()) if corpus is None else counts[corpus]
            for counts in (seen, valid, kept, repaired)
        )
        share = f"{100 * left / passing:.2f} %" if passing else "-"
        print(f"{corpus or 'all':18} tools {total:6}  valid {passing:6}  of these kept {share}"
              f"  others repaired {mended} of {total - passing}")  # fmt: skip
    print("not mappable:", dict(reasons))


def normalise(folder: Path) -> None:
    """Time the way from a line to the server's record, filters and duplicates included."""
    metrics = StageMetrics("tools")
    normaliser = ServerNormaliser(FILTERS)
    started, previous, corpus = time.process_time(), time.process_time(), ""
    tools = servers = kept = kept_tools = repairs = 0
    by_corpus = Counter[str]()
    for name, raw in raw_servers(folder, metrics):
        if name != corpus and corpus:
            now = time.process_time()
            print(f"  {corpus:18} {by_corpus[corpus] / (now - previous):8.0f} tools/s")
            previous = now
        corpus = name
        by_corpus[name] += len(raw.tools)
        servers += 1
        tools += len(raw.tools)
        server = normaliser.add(raw)
        for rejection in normaliser.drain():
            metrics.reject(rejection)
        if server:
            kept += 1
            kept_tools += len(server.tools)
            repairs += len(server.repairs)
    spent = time.process_time() - started
    print(f"servers {servers}, tools {tools}: {tools / spent:.0f} tools/s of CPU")
    print(f"kept: {kept} servers, {kept_tools} tools, {repairs} repairs recorded")
    for reason, count in sorted(metrics.dropped.items()):
        print(f"  {reason:28} {count}")


def memory(folder: Path) -> None:
    """Resident memory while the corpora pass three times as ever new servers."""
    normaliser = ServerNormaliser(FILTERS.model_copy(update={"duplicate_similarity": 1.0}))
    metrics = StageMetrics("tools")
    tools = 0
    for turn in range(3):
        for _, raw in raw_servers(folder, StageMetrics("tools")):
            renamed = tuple(
                type(tool)(f"{tool.name}_{turn}", *[getattr(tool, name) for name in
                           ("description", "parameters", "output", "notes")])
                for tool in raw.tools
            )  # fmt: skip
            tools += len(renamed)
            normaliser.add(RawServer(name=raw.name, source=raw.source, tools=renamed))
            for rejection in normaliser.drain():
                metrics.reject(rejection)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"after {tools:7} tools: {resident():6.1f} MB resident, peak {peak:.1f} MB")


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def corpus_graph(folder: Path) -> nx.DiGraph:
    """One graph of ``GRAPH_TOOLS`` tools with the offline rules' weighted edges."""
    graph: nx.DiGraph = nx.DiGraph()
    metrics = StageMetrics("graph")
    for turn in range(4):
        for _, raw in raw_servers(folder, metrics):
            server = ServerNormaliser(FILTERS).add(raw)  # a new one: repeats are wanted here
            if server is None:
                continue
            reply = propose(propose_ask(server, turn).variables, random.Random(turn))
            built = build_graph(server, list(read_reply(server, reply, "", metrics)))
            place = f"{turn}/{raw.source}/{raw.name}"
            graph.add_nodes_from(f"{place}/{node}" for node in built.nodes)
            graph.add_weighted_edges_from(
                (f"{place}/{e.source}", f"{place}/{e.target}", e.weight) for e in built.edges
            )
            if graph.number_of_nodes() >= GRAPH_TOOLS:
                return graph
    return graph


def walks(folder: Path) -> None:
    started = time.process_time()
    graph = corpus_graph(folder)
    built = time.process_time() - started
    print(f"{graph.number_of_nodes()} tools, {graph.number_of_edges()} edges, "
          f"proposed and built in {built:.1f} s")  # fmt: skip
    for wanted in (2_500, 5_000, 10_000, 20_000):
        started = time.process_time()
        drawn = sample_walks(
            graph, random.Random(0), walks=20 * wanted, min_length=2, max_length=5, visits={}
        )
        found = list(islice(drawn, wanted))
        spent = time.process_time() - started
        print(f"  {len(found):6} chains in {spent:6.2f} s, {1e6 * spent / len(found):5.0f} µs each")
    complete: Any = nx.DiGraph()
    complete.add_edges_from(
        (one, other, {"weight": 1}) for one, other in permutations(map(str, range(12)), 2)
    )
    started = time.process_time()
    drawn = sample_walks(
        complete, random.Random(0), walks=2_000, min_length=2, max_length=5, visits={}
    )
    found = list(islice(drawn, 100))
    spent = time.process_time() - started
    print(f"complete graph of 12 tools: {len(found)} chains in {1000 * spent:.1f} ms")


def main() -> None:
    corpora = os.environ.get("ASTRA_CORPORA")
    if not corpora:
        raise SystemExit("ASTRA_CORPORA is not set: no corpora to measure with")
    folder = Path(corpora) / "tools"
    parts = {"survival": survival, "normalise": normalise, "memory": memory, "walks": walks}
    for name in sys.argv[1:] or parts:
        print(f"== {name}")
        parts[name](folder)


if __name__ == "__main__":
    main()
