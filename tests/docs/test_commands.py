"""Every command that the documentation tells a reader to type.

Each has a class that says how it is checked: run where that is cheap, else parsed by the program
that would run it. A command of no class fails the test, so a page cannot show what nobody checks.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from dvc.cli import DvcParserError, parse_args
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
from pages import FENCE, Block, blocks, pages

from astra.cli.main import commands

ROOT = Path(__file__).resolve().parents[2]
SHELL = ("sh", "console")
PLACEHOLDER = re.compile(r"^[A-Z]{2,}$|\|")

FOREIGN = {
    ".": "a shell builtin",
    "cd": "a shell builtin",
    "curl": "asks a server that a reader runs",
    "docker": "no daemon on the machines of the test command",
    "export": "a shell builtin",
    "gto": "DVC's registry of versions, tests/versions runs it",
    "pre-commit": "a tool of the reader's own",
    "mlflow": "tests/tracking starts a server; test_mlflow_page.py reads runs",
    "moto_server": "a server that speaks S3, tests/versions starts it",
    "printf": "a shell builtin",
    "sbatch": "a cluster's",
    "server": "a command of an exported package, tests/export starts it",
    "vf-eval": "a command of verifiers, tests/export runs the package in its environment",
}
"""Programs that are not ours, and why they are not run here."""

EXAMPLES = {one.title for one in blocks(ROOT / "docs/extending.md") if one.title}
"""Files that this page tells its reader to make."""

RUN = {
    "astra contamination show",
    "astra cache stats",
    "astra cache --help",
    "astra scores",
    "astra train ablations queue --dry",
    "astra train plan qwen3-14b --tokens 20480 --gpus 8 --sharding zero3",
    "astra train plan qwen3-14b --tokens 20480 --gpus 16 --sharding fsdp2 --context-parallel 2",
}
"""Commands that are run as they stand: they read what is committed and write nothing."""


@dataclass(frozen=True)
class Typed:
    """One simple command; ``words`` without the assignments before it."""

    where: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return shlex.join(self.words)


def typed(where: str, text: str) -> Iterator[Typed]:
    """The simple commands of a shell snippet: no comments, pipes and lists taken apart."""
    plain = re.sub(r"(^|\s)#.*$", "", text.replace("\\\n", " "), flags=re.MULTILINE)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="|;&\n")
    lexer.commenters, lexer.whitespace = "", " \t"
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, "\n"]:
        if not set(token) <= set("|;&\n"):
            words.append(token)
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words:
            yield Typed(where, tuple(words))
        words = []


def of_block(block: Block) -> Iterator[Typed]:
    text = block.text
    if block.language == "console":  # what follows "$ ", with its continuation lines
        found = re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)
        text = "\n".join(found) + "\n"
    yield from typed(f"{block.page.relative_to(ROOT)}:{block.line}", text)


def documented() -> list[Typed]:
    return [
        command
        for page in pages(ROOT)
        for block in blocks(page)
        if block.language in SHELL
        for command in of_block(block)
    ]


def inline() -> list[Typed]:
    """Commands of ours between backticks in running text, those with placeholders left out."""
    found: list[Typed] = []
    for page in pages(ROOT):
        text = FENCE.sub("", page.read_text("utf-8"))
        for span in re.findall(r"`((?:make|dvc|astra) [^`]+)`", text):
            placeholders = any(PLACEHOLDER.search(word) for word in span.split())
            if not placeholders and "..." not in span and "<" not in span:
                found += typed(f"{page.relative_to(ROOT)}: `{span}`", " ".join(span.split()))
    return found


def test_console_and_comments_are_taken_apart() -> None:
    text = (
        "A=1 make x  # why\ndvc push && dvc pull; astra cache stats | grep 'a|b'\n"
        "dvc exp run \\\n -S a=1\n"
    )
    assert [one.words for one in typed("here", text)] == [
        ("make", "x"), ("dvc", "push"), ("dvc", "pull"), ("astra", "cache", "stats"),
        ("grep", "a|b"), ("dvc", "exp", "run", "-S", "a=1"),
    ]  # fmt: skip


def test_no_command_hides_in_a_block_without_language() -> None:
    for page in pages(ROOT):
        for block in blocks(page):
            where = f"{block.page.relative_to(ROOT)}:{block.line}"
            assert block.language, f"{where}: give the block a language: sh, console or text"
            if block.language not in ("text", "diff"):
                continue
            line = block.text.partition("\n")[0]
            synopsis = "|" in line
            command = line.split()[0] in ("make", "dvc", "astra", "git", "pip")
            assert synopsis or not command, f"{where} is sh"


def check(one: Typed) -> None:
    """Raises AssertionError (or the program's own error) for a command that would not run."""
    program = one.words[0]
    own = {
        "make": check_make, "dvc": check_dvc, "astra": check_astra, "python": check_python,
        "python3": check_python, "pip": check_pip, "pytest": check_pytest, "git": check_git,
    }  # fmt: skip
    name = Path(program).name if "/" in program else program
    if name in own:
        own[name](one.words[1:])
    elif (ROOT / program).is_file():
        subprocess.run(["bash", "-n", str(ROOT / program)], check=True)
    else:
        assert program in FOREIGN, (
            f"{one.where}: `{one.text}` has no class; give it one in tests/docs/test_commands.py"
        )


@pytest.mark.parametrize("one", documented(), ids=lambda one: f"{one.where} {one.text}"[:90])
def test_documented(one: Typed) -> None:
    try:
        check(one)
    except (AssertionError, TyperException, DvcParserError) as error:
        pytest.fail(f"{one.where}: `{one.text}`: {error}")


@pytest.mark.parametrize("one", inline(), ids=lambda one: f"{one.where} {one.text}"[:90])
def test_in_running_text(one: Typed, caplog: pytest.LogCaptureFixture) -> None:
    """Text may name a command without what it is given."""
    try:
        check(one)
    except DvcParserError as error:
        if not re.search("expected one argument|arguments are required", caplog.text):
            pytest.fail(f"{one.where}: {error} {caplog.text}")
    except (AssertionError, TyperException) as error:
        if type(error).__name__ != "MissingParameter":
            pytest.fail(f"{one.where}: {error}")


def check_make(words: tuple[str, ...]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = [word for word in words if "=" not in word]
    assert named, "no target"
    assert set(named) <= targets, f"the Makefile has {', '.join(sorted(targets))}"


@pytest.mark.parametrize("target", ["demo", "test", "params", "deps", "docs", "mlflow"])
def test_make_can_plan_what_is_documented(target: str) -> None:
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=60)


def check_dvc(words: tuple[str, ...]) -> None:
    parsed = parse_args(list(words))
    for override in getattr(parsed, "set_param", None) or []:
        check_override(override)
    targets = getattr(parsed, "targets", None) or []
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["stages"]
    for target in [targets] if isinstance(targets, str) else targets:
        known = str(target) in stages or "." in str(target) or PLACEHOLDER.search(str(target))
        assert known, f"{target} is no stage"


def check_override(text: str) -> None:
    """A parameter of params.yaml, or an option of a group in conf/."""
    (override,) = OverridesParser.create().parse_overrides([text])
    name = override.key_or_group
    if (ROOT / "conf" / name).is_dir():
        for option in options_of(override):
            chosen = f"conf/{name}/{option}.yaml"
            there = (ROOT / chosen).is_file() or chosen in EXAMPLES or PLACEHOLDER.search(option)
            assert there, f"no option {option} of {name}"
        return
    node = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
    for key in name.split("."):
        assert isinstance(node, dict), f"no parameter {name}"
        assert key in node, f"no parameter {name}: not {key} of {', '.join(map(str, node))}"
        node = node[key]


def options_of(override: Override) -> list[str]:
    if override.is_sweep_override():
        return [str(one) for one in override.sweep_string_iterator()]
    return [str(override.value())]


def check_astra(words: tuple[str, ...]) -> None:
    """Parsed as when it is typed: commands, options, arguments and choices."""
    if words == ("--install-completion",):
        return  # parsing it would do it
    command: Any = get_command(commands)
    context, name, rest = None, "astra", list(words)
    try:
        while isinstance(command, TyperGroup):
            context = command.make_context(name, rest, parent=context)
            left = [*context._protected_args, *context.args]
            name, command, rest = command.resolve_command(context, left)
        command.make_context(name, rest, parent=context)
    except typer.Exit as end:
        if end.exit_code:  # 0 is --help
            raise


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("astra shwo data/tasks.parquet", "No such command"),
        ("astra show data/tasks.parquet --were a=b", "No such option"),
        ("astra arena export --format trol --out x", "trol"),
        ("dvc repo", "invalid choice"),
        ("dvc exp run -S rl.rewrad=f1", "no parameter"),
        ("dvc exp run -S scale=huge", "no option huge"),
        ("dvc repro sft_sett", "no stage"),
        ("make demos", "the Makefile has"),
        ("frobnicate --all", "has no class"),
    ],
)
def test_a_wrong_command_is_found(
    line: str, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = typed("here", line)
    with pytest.raises((AssertionError, TyperException, DvcParserError)) as found:
        check(one)
    assert complaint in f"{found.value} {caplog.text}"


@pytest.mark.parametrize("text", sorted(RUN))
def test_run(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path))
    result = CliRunner().invoke(commands, shlex.split(text)[1:])
    assert result.exit_code == 0, result.output
    assert result.output.strip()


def test_what_is_run_is_documented() -> None:
    shown = {one.text for one in [*documented(), *inline()]} | {"astra train ablations queue --dry"}
    assert shown >= RUN, f"not on any page: {RUN - shown}"


def check_python(words: tuple[str, ...]) -> None:
    if words[0] == "-m":
        module, words = words[1], words[2:]
        if module == "venv":
            return
        spec = find_spec(module) if module.startswith("astra") else None
        assert spec is not None or module.startswith("verl"), f"no module {module}"
        source = Path(spec.origin or "") if spec else None
    else:
        source, words = ROOT / words[0], words[1:]
        assert source.is_file(), f"no file {words[0]}"
    for word in words:
        if source is not None and word.startswith("--"):
            option = word.partition("=")[0]
            assert option in source.read_text("utf-8"), f"{source.name} has no {option}"


def check_pip(words: tuple[str, ...]) -> None:
    assert words[0] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for word in words[1:]:
        if found := re.fullmatch(r"\.\[([\w,]+)\]", word):
            unknown = set(found.group(1).split(",")) - set(extras["optional-dependencies"])
            assert not unknown, f"no extra {unknown}"


def check_pytest(words: tuple[str, ...]) -> None:
    for word in words:
        assert word.startswith("-") or (ROOT / word).exists(), f"no tests at {word}"


def check_git(words: tuple[str, ...]) -> None:
    assert words[0] in ("clone", "describe", "add", "commit", "checkout", "tag", "push"), words[0]


FILE = re.compile(
    r"(?<![\w/.-])(?:src|stages|conf|benchmarks|tests|sources|policies|docker|harnesses|problems)"
    r"/[\w/.-]+\.\w+"
)
FOR_READERS = {
    "sources/mine.yaml", "sources/paper.yaml", "sources/documents/aquarium.yaml",
    "src/astra/toolgraph/prompts/NAME.md.j2",
}  # fmt: skip
"""Files that a page tells its reader to make."""


def spans() -> Iterator[tuple[str, str]]:
    """Page and text of everything between backticks outside fenced blocks."""
    for page in pages(ROOT):
        for span in re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text("utf-8"))):
            yield str(page.relative_to(ROOT)), span


def test_named_files_exist() -> None:
    named = {(page, file) for page, span in spans() for file in FILE.findall(span)}
    assert len(named) > 50
    assert not [
        (page, file)
        for page, file in sorted(named)
        if file not in FOR_READERS and not (ROOT / file).exists()
    ]


def test_named_parameters_exist() -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
    named = {
        (page, found[1])
        for page, span in spans()
        if (found := re.fullmatch(r"([a-z_]+(?:\.[a-z_]+)+)(?:=\S+)?", span))
        and found[1].partition(".")[0] in params
        and not found[1].endswith((".py", ".json"))
        and found[1] not in ("user.name", "user.email")  # git's
    }
    assert len(named) > 30
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        paper = OmegaConf.to_container(compose("config", ["scale=paper"]))
    assert not [
        (page, name)
        for page, name in sorted(named)
        if not is_parameter(name, params) and not is_parameter(name, paper)
    ]


def is_parameter(name: str, node: Any) -> bool:
    """Whether params.yaml has the key, or another choice of the group that it lies in."""
    above: list[str] = []
    for key in name.split("."):
        choices = (ROOT / "conf" / Path(*above)).glob("*.yaml") if above else iter(())
        others = (yaml.safe_load(choice.read_text("utf-8")) or {} for choice in choices)
        if not isinstance(node, dict) or key not in node:
            return any(key in other for other in others)
        node = node[key]
        above.append(key)
    return True
