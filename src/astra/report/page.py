"""The report: one HTML file that needs nothing else, made from what lies in a workspace."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from astra.report import data, provenance, published, rejections, rollouts, scores
from astra.report.charts import Charts, named, number
from astra.report.workspace import STAGES, Workspace
from astra.report.worlds import worlds_view
from astra.store.replacing import replacing

TABLE_ROWS = 25
"""The most rows of the table that a curve is also given as."""


def write_report(root: Path, out: Path, examples: int) -> list[str]:
    """Write the page, replacing ``out`` in one step. Returns what the page says is missing."""
    workspace = Workspace(root)
    text = render(workspace, examples)
    with replacing(out) as partial:
        partial.write_text(text, encoding="utf-8")
    return workspace.missing


def render(workspace: Workspace, examples: int) -> str:
    """The page as HTML. The template escapes whatever a model, a tool or a file says."""
    charts = Charts()
    arenas = scores.arenas(workspace, charts)
    suites = scores.suites(workspace, examples)
    checkpoints: list[str] = arenas.get("checkpoints", [])
    context: dict[str, Any] = {
        "arenas": arenas,
        "suites": suites,
        "beside": scores.beside_published(suites),
        "published": published,
        "curves": data.curves(workspace, charts),
        "funnels": data.funnels(workspace, charts),
        "rejected": rejections.rejected(workspace),
        "distributions": data.distributions(workspace, charts),
        "contamination": data.contamination(workspace),
        "cost": data.cost(workspace),
        "worlds": worlds_view(workspace),
        "groups": rollouts.arena_groups(workspace, checkpoints, examples) if checkpoints else [],
        "suite_tasks": scores.suite_examples(suites),
        "commit": provenance.commit(workspace),
        "stages": provenance.stages(workspace),
        "machine": provenance.machine(workspace),
        "stage_names": STAGES,
        "missing": workspace.missing,
    }
    return page(context)


def page(context: Mapping[str, Any]) -> str:
    """Fill the template. Its style and script may run, by their hashes; nothing else may."""
    environment = Environment(
        loader=PackageLoader("astra.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"number": number, "named": named, "thinned": _thinned, "size": _size}
    environment.filters.update(filters)
    style, script = (_asset(environment, name) for name in ("style.css.j2", "script.js.j2"))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    template = environment.get_template("page.html.j2")
    return template.render(**context, style=Markup(style), script=Markup(script), policy=policy)


def _asset(environment: Environment, name: str) -> str:
    """The text of a file of the package, as it is."""
    loader = environment.loader
    if loader is None:
        raise ValueError("no loader")
    return loader.get_source(environment, name)[0]


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Every so many points, so that at most TABLE_ROWS are left, the last one included."""
    stride = -(-len(points) // TABLE_ROWS)
    return points[::-1][::stride][::-1] if stride > 1 else points


def _size(count: int | None) -> str:
    if count is None:
        return "?"
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
