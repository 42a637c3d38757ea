"""``astra prompts``: a prompt as a teacher reads it, for a real record of the data."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from astra import prompting
from astra.cli.capture import Captured, capturing
from astra.prompting import PromptError
from astra.settings import PARAMS
from astra.stage import user_errors

prompts_app = typer.Typer(help="Prompt templates.", no_args_is_help=True)


def complete_template(incomplete: str) -> list[str]:
    """The templates that begin so, for shell completion."""
    return [template for template in prompting.templates() if template.startswith(incomplete)]


@prompts_app.command("list")
def list_(
    stage: Annotated[str, typer.Option(help="Only what this stage may send.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print every template with its hash, of which a record's prompt_hash is made.

    With --json also the stages that may send it and the variables it reads.
    """
    names = prompting.templates()
    senders = _senders(names) if stage or as_json else {}
    for template in names:
        if stage and stage not in senders[template]:
            continue
        digest = prompting.template_hash(template)
        if as_json:
            reads = prompting.variables_of(template)
            stages = senders[template]
            row = {"template": template, "hash": digest, "stages": stages, "variables": reads}
            typer.echo(json.dumps(row))
        else:
            typer.echo(f"{digest}  {template}")


@prompts_app.command("render")
def render(
    template: Annotated[
        str,
        typer.Argument(
            help="<domain>/<name>, for example qa/decompose; `astra prompts list` has all.",
            autocompletion=complete_template,
        ),
    ],
    params: Annotated[
        str, typer.Option(help="Variables as a JSON object, or @FILE that holds one.")
    ] = "",
    example: Annotated[
        bool, typer.Option("--example", help="Fill every variable with its own name.")
    ] = False,
    match: Annotated[
        str, typer.Option(help="Of the real asks: the first whose prompt contains this.")
    ] = "",
    nth: Annotated[int, typer.Option(min=1, help="Of the real asks that fit: which.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="The request bodies, with and without a JSON schema.")
    ] = False,
) -> None:
    """Print a prompt as a teacher reads it.

    Without --params and --example: exactly what the stage would send for the data in data/.
    """
    if template not in prompting.templates():
        raise PromptError(
            f"no prompt {template!r}: names are <domain>/<name>, for example qa/decompose; "
            "`astra prompts list` has all"
        )
    if example:
        typer.echo(prompting.example(template))
    elif params:
        typer.echo(prompting.render(template, _variables(params)))
    else:
        captured = real_ask(template, match, nth)
        bodies = {"structured": captured.structured, "plain": captured.plain}
        if as_json:
            typer.echo(json.dumps(bodies, indent=2, ensure_ascii=False))
        else:
            for message in captured.plain["messages"]:
                typer.echo(message["content"])
    typer.echo(f"template {template}, hash {prompting.template_hash(template)}", err=True)


def _variables(params: str) -> dict[str, Any]:
    try:
        text = Path(params[1:]).read_text(encoding="utf-8") if params.startswith("@") else params
        values = json.loads(text or "{}")
    except OSError as error:
        raise PromptError(
            f"--params {params} cannot be read: {error}; name a file that holds a JSON object"
        ) from None
    except ValueError as error:
        raise PromptError(f"--params is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise PromptError("--params must be a JSON object")
    return values


def real_ask(template: str, text: str, nth: int) -> Captured:
    """Run the stages that use the template until one makes the ask. Nothing of theirs is kept.

    Raises PromptError if none does, saying why not.
    """
    problems: list[str] = []
    runs = [(stage, params) for params in _parameters() for stage in stages_with(template)]
    for stage, params in runs:
        with _scratch_workspace(params) as root, capturing(template, text, nth):
            try:
                _run(root / "stages" / f"{stage}.py")
            except Exception as error:
                reasons = user_errors(error)  # asks made together may fail as a group
                for reason in reasons:
                    if isinstance(reason, Captured):
                        return reason
                if not reasons:
                    raise
                problems += [f"{stage}: {reason}" for reason in reasons]
            else:
                problems.append(f"{stage}: makes no such ask with the present data")
    raise PromptError(
        f"prompt {template!r} is not sent; " + ("; ".join(dict.fromkeys(problems)) or "no stage")
    )


def stages_with(template: str) -> list[str]:
    """Stages of dvc.yaml that depend on the template's file."""
    return _senders([template])[template]


def _senders(names: Sequence[str]) -> dict[str, list[str]]:
    """The stages of each template, all from one reading of dvc.yaml."""
    if not Path("dvc.yaml").is_file():
        raise PromptError(f"no dvc.yaml in {Path.cwd()}; run it in the repository root")
    document: Any = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))
    senders: dict[str, list[str]] = {}
    for template in names:
        domain, _, name = template.partition("/")
        file = f"src/astra/{domain}/prompts/{name}.md.j2"
        senders[template] = [
            stage
            for stage, body in document["stages"].items()
            if any(file == dep or file.startswith(f"{dep}/") for dep in body.get("deps", ()))
        ]
    return senders


@contextmanager
def _scratch_workspace(params: str) -> Generator[Path]:
    """A folder that shows the workspace's inputs and takes all that a stage writes.

    ``params`` are the parameters there.

    Yields the workspace. Caches stay the workspace's own.
    """
    root = Path.cwd()
    place = os.environ.get("DVC_ROOT")
    with tempfile.TemporaryDirectory(prefix="astra-prompt-") as folder:
        scratch = Path(folder)
        for name in ("sources", "policies", "models", "conf", "contamination"):
            if (root / name).exists():
                (scratch / name).symlink_to(root / name)
        (scratch / "data").mkdir()
        for file in (root / "data").glob("*.parquet"):
            (scratch / "data" / file.name).symlink_to(file)
        (scratch / PARAMS).write_text(params, encoding="utf-8")
        os.environ["DVC_ROOT"] = place or str(root)
        os.chdir(scratch)
        try:
            yield root
        finally:
            os.chdir(root)
            if place is None:
                del os.environ["DVC_ROOT"]


def _parameters() -> list[str]:
    """The parameters with which a stage may make an ask.

    First with rules as the agent of trajectories, since a model is not asked and its episodes end
    with their first turn. Then as they are: some asks come before it, and only where it is a model.
    """
    params = Path.cwd() / PARAMS
    if not params.is_file():
        raise PromptError(f"{params} not found; run `make params`")
    text = params.read_text(encoding="utf-8")
    document: Any = yaml.safe_load(text)
    block = document.get("trajectories", {})
    if block.get("agent", {}).get("backend") != "openai":
        return [text]
    block["agent"] = {"backend": "offline", "model": "v1"}
    return [yaml.safe_dump(document, allow_unicode=True, sort_keys=False), text]


def _run(stage: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"stage_{stage.stem}", stage)
    if spec is None or spec.loader is None or not stage.is_file():
        raise PromptError(f"no stage file {stage}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
