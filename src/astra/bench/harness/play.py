"""One suite on one checkpoint: draws entries, plays what the journal lacks, scores all or nothing.

Finished attempts are journalled one by one; those lost to harness or endpoint are not, so that
the next run plays them again. A run that does not finish raises SuiteError and gives no score.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from astra.bench.harness.process import converse
from astra.bench.harness.protocol import (
    DriverRequest,
    Entry,
    Job,
    Listing,
    Played,
    Sample,
    Subject,
    Suite,
    SuiteConfig,
    SuiteError,
    find_suite,
)
from astra.bench.harness.relay import api_key
from astra.records.base import content_id
from astra.records.bench import SuiteEpisode, SuiteOutcome, SuiteRun
from astra.records.score import Scored
from astra.stage import Progress
from astra.store.journal import Journal

log = logging.getLogger(__name__)


def run_suite(
    config: SuiteConfig, subject: Subject, journal_root: Path | None = None
) -> tuple[SuiteRun, list[SuiteEpisode]]:
    """Every attempt at every drawn entry. Raises SuiteError if the run gives no score."""
    suite, config = checked(config)
    listing = list_entries(suite, config)
    jobs = _jobs(draw(listing.entries, config.sample), config)
    facts = _facts(config, subject, listing)
    with closing(Journal("suites", journal_root)) as journal:
        played = _play(suite, config, subject, jobs, facts, journal)
    episodes = [_episode(config, subject, job, played[_key(facts, job)]) for job in jobs]
    _check_losses(config, subject, episodes)
    run = SuiteRun(
        suite=config.suite,
        checkpoint=subject.checkpoint,
        model=subject.endpoint.model,
        harness=config.name,
        score=suite.score,
        versions=listing.versions,
        sample_count=len(jobs) // config.tries,
        sample_of=len(listing.entries),
        sample_seed=config.sample.seed,
        tries=config.tries,
        decoding=config.decoding.model_dump(mode="json"),
        options=_options(config),
        outcomes=dict(sorted(Counter(str(episode.outcome) for episode in episodes).items())),
        **subject.prompting,
    )
    return run, episodes


def checked(config: SuiteConfig) -> tuple[Suite, SuiteConfig]:
    """The suite, and its configuration with every option; cheap, so before any work.

    Raises SuiteError or PluginError for what cannot be played: an unknown name or option, an
    endpoint too few or too many, a key that is not set, a missing environment.
    """
    suite = find_suite(config.name)
    options = suite.options(config.options)
    config = config.model_copy(update={"options": options.model_dump(mode="json")})
    if set(config.endpoints) != set(suite.roles):
        raise SuiteError(
            f"suite {config.suite} needs endpoints for the roles {sorted(suite.roles)}, "
            f"bench.suites gives {sorted(config.endpoints)}"
        )
    for role, endpoint in config.endpoints.items():
        api_key(role, endpoint)
    suite.driver(options)
    return suite, config


def list_entries(suite: Suite, config: SuiteConfig) -> Listing:
    """What the suite holds under this configuration, asked in a process of its own."""
    driver = suite.driver(suite.options(config.options))
    for reply in converse(driver, DriverRequest(task="list", config=_told(config)), {}):
        if isinstance(reply, Listing):
            if not reply.entries:
                raise SuiteError(f"suite {config.suite} has no entries under its options")
            return reply
    raise SuiteError(f"the driver of suite {config.suite} listed nothing")


def draw(entries: Sequence[Entry], sample: Sample) -> list[Entry]:
    """The sample in id order. With ``count`` categories keep their shares, each at least one while
    room is."""
    rows: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: content_id([sample.seed, entry.id])):
        rows.setdefault(entry.category, []).append(entry)
    if sample.count is None:
        members = [one for row in rows.values() for one in row[: sample.per_category]]
        return sorted(members, key=lambda entry: entry.id)
    # Entry i of a category of n comes at (i + 1/2) / n: a prefix holds every category's share.
    places = [
        ((index + 0.5) / len(members), content_id([sample.seed, entry.id]), entry)
        for members in rows.values()
        for index, entry in enumerate(members)
    ]
    chosen = [entry for _, _, entry in sorted(places, key=lambda place: place[:2])]
    return sorted(chosen[: sample.count], key=lambda entry: entry.id)


def _jobs(entries: Iterable[Entry], config: SuiteConfig) -> list[Job]:
    return [
        Job(
            entry_id=entry.id,
            category=entry.category,
            attempt=attempt,
            seed=random.Random(content_id([config.sample.seed, entry.id, attempt])).getrandbits(31),
        )
        for attempt in range(config.tries)
        for entry in entries
    ]


def _play(
    suite: Suite,
    config: SuiteConfig,
    subject: Subject,
    jobs: Sequence[Job],
    facts: dict[str, Any],
    journal: Journal,
) -> dict[str, Played]:
    """Every job's result by journal key; what the journal lacks is played in one fresh process."""
    played = _journalled(jobs, facts, journal)
    waiting = {(job.entry_id, job.attempt): job for job in jobs if _key(facts, job) not in played}
    if not waiting:
        return played
    name = f"suite {config.suite} of {subject.checkpoint}"
    if played:
        log.info("%s: %d of %d attempts are in the journal", name, len(played), len(jobs))
    driver = suite.driver(suite.options(config.options))
    request = DriverRequest(task="play", config=_told(config), jobs=tuple(waiting.values()))
    endpoints = {"model": subject.endpoint, **config.endpoints}
    with closing(Progress(name, len(jobs))) as progress:
        progress.reach(len(played))
        try:
            for reply in converse(driver, request, endpoints, config.entry_timeout_s):
                job, result = _answered(name, suite, waiting, reply)
                played[_key(facts, job)] = result
                if result.outcome != SuiteOutcome.INFRA:
                    journal.put(_key(facts, job), result.model_dump(mode="json"))
                progress.advance()
        except SuiteError as error:
            kept = sum(result.outcome != SuiteOutcome.INFRA for result in played.values())
            raise SuiteError(
                f"{name} failed after {kept} of {len(jobs)} attempts and has no score: {error}; "
                "what is finished is kept: repair the cause and run the same command again to "
                "resume"
            ) from error
    if waiting:
        raise SuiteError(f"{name}: the driver ended without answering {len(waiting)} attempts")
    return played


def _journalled(jobs: Sequence[Job], facts: dict[str, Any], journal: Journal) -> dict[str, Played]:
    """What earlier runs finished of these jobs, by journal key."""
    keys = [_key(facts, job) for job in jobs]
    return {
        key: Played.model_validate(known) for key in keys if (known := journal.get(key)) is not None
    }


def _answered(
    name: str, suite: Suite, waiting: dict[tuple[str, int], Job], reply: Listing | Played
) -> tuple[Job, Played]:
    """The job that a reply answers, which no longer waits. Raises SuiteError for other replies."""
    if not isinstance(reply, Played):
        raise SuiteError(f"{name}: the driver sent {reply.kind!r} while it played")
    job = waiting.pop((reply.entry_id, reply.attempt), None)
    if job is None:
        raise SuiteError(
            f"{name}: the driver answered entry {reply.entry_id} (attempt "
            f"{reply.attempt}), which was not asked or was answered before"
        )
    _check_scores(name, suite, reply)
    return job, reply


def _check_scores(name: str, suite: Suite, played: Played) -> None:
    """A driver's word is taken only where it makes sense: model text ran in its process."""
    headline = played.scores.get(suite.score)
    if played.outcome == SuiteOutcome.INFRA:
        if any(isinstance(score, Scored) for score in played.scores.values()):
            raise SuiteError(f"{name}: entry {played.entry_id} was lost and yet has a score")
    elif not isinstance(headline, Scored) or not 0.0 <= headline.value <= 1.0:
        raise SuiteError(
            f"{name}: entry {played.entry_id} has no {suite.score} in [0, 1]: {headline}"
        )


def _check_losses(config: SuiteConfig, subject: Subject, episodes: Sequence[SuiteEpisode]) -> None:
    lost = [one for one in episodes if one.outcome == SuiteOutcome.INFRA]
    if len(lost) > config.max_infra_share * len(episodes):
        raise SuiteError(
            f"suite {config.suite} of {subject.checkpoint} has no score: harness or endpoint lost "
            f"{len(lost)} of {len(episodes)} attempts (allowed: {config.max_infra_share:.1%}), the "
            f"first {lost[0].entry_id}: {lost[0].reason}; run the same command again to replay them"
        )


def _told(config: SuiteConfig) -> dict[str, Any]:
    """What a driver may know: no address, no key's name."""
    return config.model_dump(mode="json", exclude={"endpoints"})


def _options(config: SuiteConfig) -> dict[str, Any]:
    models = {f"{role}_model": one.model for role, one in sorted(config.endpoints.items())}
    return {**config.options, **models}


def _facts(config: SuiteConfig, subject: Subject, listing: Listing) -> dict[str, Any]:
    """All that an attempt's result depends on but entry and attempt."""
    return {
        "suite": config.name,
        "decoding": config.decoding.model_dump(mode="json"),
        "options": _options(config),
        "versions": listing.versions,
        "model": subject.endpoint.model,
        "identity": subject.identity,
        "seed": config.sample.seed,
    }


def _key(facts: dict[str, Any], job: Job) -> str:
    return content_id([facts, job.entry_id, job.attempt])


def _episode(config: SuiteConfig, subject: Subject, job: Job, played: Played) -> SuiteEpisode:
    return SuiteEpisode(
        suite=config.suite,
        checkpoint=subject.checkpoint,
        entry_id=job.entry_id,
        category=job.category,
        attempt=job.attempt,
        outcome=played.outcome,
        scores=played.scores,
        reason=played.reason,
        steps=played.steps,
        prompt_tokens=played.prompt_tokens,
        completion_tokens=played.completion_tokens,
        messages=played.messages,
    )
