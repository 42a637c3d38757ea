"""Installs the parts that tests can do without, and runs every test that skips without one.

    python -m astra.devtools.test_all [--long]

``tests/optional.toml`` lists the parts. Each is installed by make, whose stamps make a second time
quick; its tests then run in its environment. A test counts as skipped if it ran in no environment.
Exit 1 if a test failed or was skipped, or if a part could not be installed or has no test. Only the
lack of what no command brings, such as a user's corpus or a feature of the kernel, is told and no
failure.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from astra.devtools.optional_parts import TABLE, OptionalPart, part_of, read_parts
from astra.errors import AstraError
from astra.stage import run_stage

log = logging.getLogger("astra")
BASE = ".venv"
"""How the environment is named that runs this command."""


@dataclass(frozen=True)
class CaseOutcome:
    """What came of one test in one environment; ``reason`` says why it was skipped."""

    test: str
    environment: str
    state: str
    reason: str
    seconds: float


# --- installation


def install(parts: Sequence[OptionalPart]) -> dict[str, str]:
    """Make each part that can be made; returns what could not be, with the command that failed."""
    failed: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        targets = list(part.made_by)
        if part.environment:
            targets.append(f"{part.environment}/.installed")
        if not targets or (part.given_by and not os.environ.get(part.given_by)):
            continue
        log.info("%d of %d: installing %s, %s", number, len(parts), part.name, part.what)
        started = time.monotonic()
        command = ["make", "--no-print-directory", *targets]
        if subprocess.run(command, check=False).returncode:
            failed[part.name] = " ".join(command)
            log.error("%s could not be installed", part.name)
        else:
            log.info("%s is installed after %.0f s", part.name, time.monotonic() - started)
    return failed


# --- tests


def run_tests(environment: str, tests: Sequence[str], long: bool) -> list[CaseOutcome]:
    """Run ``tests`` in one environment and return what came of each.

    Raises AstraError if pytest ended in another way than with tests that passed or failed.
    """
    own = Path(environment, "bin").absolute()
    python = sys.executable if environment == BASE else str(own / "python")
    known = dict(os.environ)
    if environment != BASE:
        known["PATH"] = f"{own}{os.pathsep}{known['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        ended = subprocess.run(
            [python, "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder",
             "-o", "junit_family=xunit1", f"--junitxml={report}", *(["-m", ""] if long else []),
             *tests],
            env=known, check=False,
        )  # fmt: skip
        if ended.returncode not in (0, 1):
            raise AstraError(f"pytest in {environment} ended with {ended.returncode}, see above")
        outcomes = list(read_outcomes(report, environment))
    if ended.returncode and all(one.state != "failed" for one in outcomes):
        raise AstraError(f"pytest in {environment} failed, and none of its tests did; see above")
    return outcomes


def read_outcomes(report: Path, environment: str) -> Iterator[CaseOutcome]:
    """The outcomes that pytest wrote as JUnit XML, family ``xunit1``."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.get("file", "")
        inner = case.get("classname", "").split(".")[len(Path(file).with_suffix("").parts) :]
        skipped = case.find("skipped")
        state = "passed" if skipped is None else "skipped"
        if case.find("failure") is not None or case.find("error") is not None:
            state = "failed"
        yield CaseOutcome(
            test="::".join([file, *inner, case.get("name", "")]),
            environment=environment,
            state=state,
            reason="" if skipped is None else skipped.get("message", ""),
            seconds=float(case.get("time", 0)),
        )


def by_environment(parts: Sequence[OptionalPart]) -> dict[str, list[str]]:
    """The tests of all parts by the environment they run in, none of them twice."""
    tests: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        tests[part.environment or BASE] += part.tests
    return {
        environment: [
            one
            for one in dict.fromkeys(listed)
            if not any(one.startswith((f"{other}/", f"{other}::")) for other in listed)
        ]
        for environment, listed in tests.items()
    }


# --- report


@dataclass(frozen=True)
class CaseSummary:
    """What came of every test over all environments."""

    ran: frozenset[str]
    failed: frozenset[str]
    skipped: Mapping[str, str]
    """Reason by test, of those that ran nowhere."""


def judge(outcomes: Sequence[CaseOutcome]) -> CaseSummary:
    """A test ran if it ran in some environment, and failed if it failed in some."""
    ran = frozenset(one.test for one in outcomes if one.state != "skipped")
    return CaseSummary(
        ran=ran,
        failed=frozenset(one.test for one in outcomes if one.state == "failed"),
        skipped={one.test: one.reason for one in outcomes if one.test not in ran},
    )


def part_lines(parts: Sequence[OptionalPart], outcomes: Sequence[CaseOutcome]) -> Iterator[str]:
    """One line a part: what became of its tests in its environment."""
    yield f"{'part':<14}{'environment':<14}{'ran':>6}{'failed':>8}{'skipped':>9}{'seconds':>9}"
    for part in parts:
        place = part.environment or BASE
        own = [one for one in outcomes if one.environment == place and part.covers(one.test)]
        counts = [sum(one.state == state for one in own) for state in ("failed", "skipped")]
        seconds = sum(one.seconds for one in own)
        yield (
            f"{part.name:<14}{place:<14}{len(own) - counts[1]:>6}{counts[0]:>8}{counts[1]:>9}"
            f"{seconds:>9.0f}"
        )


def idle(parts: Sequence[OptionalPart], outcomes: Sequence[CaseOutcome]) -> list[str]:
    """Parts whose tests were not even collected in their environment."""
    return [
        part.name
        for part in parts
        if not any(
            one.environment == (part.environment or BASE) and part.covers(one.test)
            for one in outcomes
        )
    ]


def disk() -> str:
    """What the environments beside each other take, and what is left."""
    places = sorted(str(one) for one in Path().glob(".venv*") if one.is_dir())
    told = subprocess.run(["du", "-sk", *places], capture_output=True, text=True, check=False)
    sizes = [line.split("\t") for line in told.stdout.splitlines()]
    listed = ", ".join(f"{name} {int(size) / 1e6:.1f} GB" for size, name in sizes)
    return f"disk: {listed}; {shutil.disk_usage('.').free / 1e9:.0f} GB are free"


def report(
    parts: Sequence[OptionalPart],
    outcomes: Sequence[CaseOutcome],
    uninstalled: Mapping[str, str],
    broken: Sequence[str],
) -> bool:
    """Print what ran, what was skipped and why; returns whether all is well."""
    summary = judge(outcomes)
    print(*part_lines(parts, outcomes), disk(), sep="\n")
    groups: dict[str, list[str]] = defaultdict(list)
    unforgiven = 0
    for test, reason in sorted(summary.skipped.items()):
        part = part_of(reason, parts)
        unforgiven += part is None or not part.told
        lacking = f"{part.name} ({part.what})" if part else f"a part that {TABLE} does not know"
        groups[lacking].append(f"  {test}: {reason}")
    for lacking, tests in groups.items():
        print(f"skipped for want of {lacking}: {len(tests)}", *tests, sep="\n")
    for name, command in uninstalled.items():
        print(f"NOT INSTALLED: {name}; `{command}` failed, see above")
    for line in broken:
        print(f"NOT TESTED: {line}")
    for test in sorted(summary.failed):
        print(f"FAILED: {test}")
    forgiven = len(summary.skipped) - unforgiven
    print(
        f"{len(summary.ran) - len(summary.failed)} passed, {len(summary.failed)} failed, "
        f"{unforgiven} skipped; {forgiven} more skipped for want of what no command brings"
    )
    return not (summary.failed or unforgiven or uninstalled or broken)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="the tests of many minutes too")
    long = parser.parse_args().long
    parts = read_parts(Path())
    log.info("%.0f GB of disk are free", shutil.disk_usage(".").free / 1e9)
    uninstalled = install(parts)
    outcomes: list[CaseOutcome] = []
    broken: list[str] = []
    environments = by_environment(parts)
    for number, (environment, tests) in enumerate(environments.items(), 1):
        log.info("testing in %s, %d of %d: %s", environment, number, len(environments), tests)
        try:
            outcomes += run_tests(environment, tests, long)
        except (AstraError, OSError) as error:
            broken.append(str(error))
    called = [part for part in parts if long or not part.long]
    broken += [f"{name}: pytest found no test of it" for name in idle(called, outcomes)]
    for part in parts:
        if part not in called:
            log.info("left for LONG=1: %s, %s", part.name, part.what)
    if not report(parts, outcomes, uninstalled, broken):
        raise AstraError("something failed or was skipped; the lines above say what")


if __name__ == "__main__":
    run_stage("test-all", main)
