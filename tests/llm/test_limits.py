"""Rate limits, budgets, health and failover of the openai backend."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from astra.errors import AstraError, StageStop
from astra.llm import endpoints, servers
from astra.llm.budget import BudgetReached, Tokens, cost
from astra.llm.build import Teachers
from astra.llm.cache import AnswerCache
from astra.llm.pool import map_bounded
from astra.llm.protocol import (
    Ask,
    ModelConfig,
    ModelsConfig,
    ParseError,
    ProviderError,
    Teacher,
)
from astra.llm.servers import EndpointError, Pace
from astra.llm.usage import Latency
from astra.settings import Endpoint, Price, RuntimeConfig
from chat_server import Answer, ChatServer, runtime

T = TypeVar("T")
CONFIG = ModelConfig(backend="openai", model="m", max_tokens=10)
GOOD = '{"word": "tree"}'
CAP_TOKENS = {"stage": {"tokens": 400}}


class Word(BaseModel):
    word: str


def ask(sample: int = 0) -> Ask[Word]:
    return Ask("demo/say", {"word": "tree"}, Word, sample)


def with_teacher(
    config: RuntimeConfig, work: Callable[[Teacher], Awaitable[T]], model: ModelConfig = CONFIG
) -> T:
    async def run(teacher: Teacher) -> T:
        return await work(teacher)

    with Teachers(config, "demo") as teachers:
        return asyncio.run(run(teachers.teacher(model, {})))


async def draw(teacher: Teacher, count: int, concurrency: int = 4) -> list[str]:
    async def one(sample: int) -> str:
        return (await teacher.ask(ask(sample))).word

    return [word async for word in map_bounded(range(count), one, concurrency)]


def test_a_cap_on_requests_is_never_passed_and_a_raised_one_resumes(place: Path) -> None:
    def budget(requests: int) -> dict[str, Any]:
        return {"stage": {"requests": requests}}

    with ChatServer(default=lambda _: Answer(GOOD, delay_s=0.01)) as server:
        for limit in (10, 10, 15):
            with pytest.raises(BudgetReached) as stop:
                with_teacher(runtime(server.url, budget=budget(limit)), lambda t: draw(t, 20))
            assert len(server.requests) == limit  # a second start spends nothing more
            assert AnswerCache().stats().models["openai:m"][0] == limit  # all paid for are kept
        assert "raise runtime.budget.stage.requests" in str(stop.value)
        words = with_teacher(runtime(server.url, budget=budget(20)), lambda t: draw(t, 20))
        assert len(words) == len(server.requests) == 20


def test_tokens_and_money_stop_too_and_the_run_counts_all_stages(place: Path) -> None:
    prices = {"m": {"prompt": 1e6, "completion": 2e6}}  # 10 + 3 tokens cost 16
    with ChatServer(default=lambda _: Answer(GOOD)) as server:
        with pytest.raises(BudgetReached, match="tokens"):
            with_teacher(runtime(server.url, budget=CAP_TOKENS), lambda t: draw(t, 99))
        # Of 13 tokens each; near the cap one may take all its 10 completion tokens.
        assert 20 <= len(server.requests) <= 400 // 13
        before = len(server.requests)
        money = {"name": "other", "run": {"money": 100.0}}
        with pytest.raises(BudgetReached, match=r"the run is spent.*money"):
            with_teacher(
                runtime(server.url, budget=money, prices=prices),
                lambda t: draw(t, 99),
                CONFIG.model_copy(update={"temperature": 0.1}),
            )
        sent = len(server.requests) - before
        assert 0 < sent * 16 <= 100
    cache = AnswerCache()
    assert cache.spent("other").money == pytest.approx(sent * 16)
    assert cache.spent("other", "demo").requests == sent
    assert cache.spent("other", "elsewhere").requests == 0
    with pytest.raises(AstraError, match=r"runtime\.prices has no price for 'm'"):
        with_teacher(runtime("http://127.0.0.1:1/v1", budget=money), lambda t: draw(t, 1))


def test_a_spent_budget_ends_all_who_wait_also_without_a_pool() -> None:
    with ChatServer(default=lambda _: Answer(GOOD, delay_s=0.02)) as server:

        async def work(teacher: Teacher) -> list[Any]:
            asks = (teacher.ask(ask(sample)) for sample in range(12))
            return await asyncio.wait_for(asyncio.gather(*asks, return_exceptions=True), 10)

        outcomes = with_teacher(runtime(server.url, budget={"run": {"requests": 5}}), work)
    assert sum(isinstance(one, Word) for one in outcomes) == 5
    assert sum(isinstance(one, BudgetReached) for one in outcomes) == 7


def test_cached_prompt_tokens_have_their_price() -> None:
    price = Price(prompt=10, completion=20, cached_prompt=1)
    assert cost(Tokens(1000, 100, cached=900), price) == pytest.approx(0.0039)
    assert cost(Tokens(1000, 100), None) == 0.0


def test_requests_are_spread_over_the_minute() -> None:
    pace = Pace(120)
    assert [round(pace.reserve(1, 0.0), 3) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert pace.reserve(1, 100.0) == 0.0
    assert Pace(None).reserve(10**9, 0.0) == 0.0
    with ChatServer(default=lambda _: Answer(GOOD)) as server:
        limited = Endpoint(base_url=server.url, api_key_env="", requests_per_minute=1200)
        started = time.monotonic()
        with_teacher(RuntimeConfig(endpoints=(limited,)), lambda t: draw(t, 11, 11))
        assert time.monotonic() - started >= 0.5


def test_tokens_a_minute_are_corrected_by_what_was_used() -> None:
    pace = Pace(600)
    pace.reserve(100, 0.0)
    pace.correct(-50)
    assert pace.free_at == pytest.approx(5.0)
    with ChatServer(default=lambda _: Answer(GOOD)) as server:
        limited = Endpoint(base_url=server.url, api_key_env="", tokens_per_minute=60 * 130)
        started = time.monotonic()
        with_teacher(RuntimeConfig(endpoints=(limited,)), lambda t: draw(t, 11, 1))
        assert time.monotonic() - started >= 0.9  # 10 asks of 13 tokens at 130 a second


def test_a_model_goes_to_the_endpoints_that_serve_it() -> None:
    with ChatServer(default=lambda _: Answer(GOOD)) as one, ChatServer() as other:
        both = RuntimeConfig(
            endpoints=(
                Endpoint(base_url=one.url, api_key_env="", models=("m",)),
                Endpoint(base_url=other.url, api_key_env="", models=("n",)),
            )
        )
        with_teacher(both, lambda t: draw(t, 5))
        assert (len(one.requests), len(other.requests)) == (5, 0)
        with (
            Teachers(both, "demo") as teachers,
            pytest.raises(EndpointError, match="no endpoint serves model 'x'"),
        ):
            teachers.teacher(CONFIG.model_copy(update={"model": "x"}), {})


def test_an_endpoint_with_a_wrong_key_or_a_fault_is_left_to_the_others() -> None:
    refused = Answer(status=401, error="no such key")
    with (
        ChatServer(default=lambda _: refused) as locked,
        ChatServer(default=lambda _: Answer(status=500)) as broken,
        ChatServer(default=lambda _: Answer(GOOD, delay_s=0.01)) as sound,
    ):
        words = with_teacher(
            runtime(locked.url, broken.url, sound.url), lambda t: draw(t, 60, concurrency=4)
        )
        assert words == ["tree"] * 60
        assert len(locked.requests) <= 4  # those in flight before the first refusal
        assert len(broken.requests) < len(sound.requests) / 2
        assert len(sound.requests) == 60


def test_several_models_of_one_role_share_places_and_log_apart(place: Path) -> None:
    voters = ModelsConfig(
        models=tuple(CONFIG.model_copy(update={"model": name}) for name in ("a", "b"))
    )
    with ChatServer(default=lambda _: Answer(GOOD)) as server:

        async def run(panel: list[Teacher]) -> None:
            await asyncio.gather(*(teacher.ask(ask()) for teacher in panel))

        with Teachers(runtime(server.url), "demo") as teachers:
            asyncio.run(run(teachers.panel(voters.models, {})))
        assert sorted(body["model"] for body in server.requests) == ["a", "b"]
    lines = [json.loads(line) for line in (place / "runs/usage.jsonl").read_text().splitlines()]
    assert [(line["model"], line["requests"]) for line in lines] == [
        ("openai:a", 1), ("openai:b", 1)
    ]  # fmt: skip


def test_a_server_that_ignores_schemas_is_shown_them() -> None:
    def deaf(body: dict[str, Any]) -> Answer:
        shown = "JSON Schema" in body["messages"][-1]["content"]
        return Answer(f"Sure: {GOOD}" if shown else "A tree, I would say.")

    with ChatServer(default=deaf) as server:
        with_teacher(runtime(server.url), lambda t: draw(t, 6, concurrency=1))
    structured = ["response_format" in body for body in server.requests]
    assert structured == [True, True] + [False] * 5  # the ask and its repair: then it is known


def test_a_model_whose_replies_never_fit_stops_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "UNUSABLE_ASKS", 3)

    async def work(teacher: Teacher) -> list[type[BaseException]]:
        seen: list[type[BaseException]] = []
        for sample in range(3):
            try:
                await teacher.ask(ask(sample))
            except AstraError as error:
                seen.append(type(error))
        return seen

    with ChatServer(default=lambda _: Answer("no")) as server:
        seen = with_teacher(runtime(server.url, max_attempts=2), work)
    assert [issubclass(one, StageStop) for one in seen] == [False, False, True]


TOO_LONG = Answer(status=400, error="context_length_exceeded")
DOWN = Answer(status=500, error="boom")
JUNK = Answer("I would rather not.")


def number_of(body: dict[str, Any]) -> int:
    return int(body["messages"][0]["content"].split(".")[0].split()[1])


async def outcomes(teacher: Teacher, count: int, concurrency: int = 4) -> list[str]:
    """What comes of as many different asks: the word, or the name of the error."""

    async def one(number: int) -> str:
        try:
            return (await teacher.ask(Ask("demo/say", {"word": number}, Word))).word
        except (ProviderError, ParseError) as error:
            return type(error).__name__

    return [outcome async for outcome in map_bounded(range(count), one, concurrency)]


class Picky:
    """A server that never gives some asks a usable answer; ``down``: what it gives to any."""

    def __init__(self, hopeless: Callable[[int], bool], bad: Answer) -> None:
        self.hopeless, self.bad = hopeless, bad
        self.down: Answer | None = None

    def __call__(self, body: dict[str, Any]) -> Answer:
        if self.down is not None:
            return self.down
        return self.bad if self.hopeless(number_of(body)) else Answer(GOOD)


def every_tenth(number: int) -> bool:
    return number % 10 == 0


def the_last(number: int) -> bool:
    return number == 119


@pytest.mark.parametrize(
    ("bad", "hopeless", "concurrency"),
    [
        (TOO_LONG, every_tenth, 32),
        (DOWN, every_tenth, 32),
        (JUNK, every_tenth, 32),
        (Answer(drop=True), every_tenth, 32),
        (Answer(raw=b"<html>"), every_tenth, 32),
        (JUNK, every_tenth, 1),
        (DOWN, the_last, 1),
    ],
)
def test_a_stage_that_ended_may_be_run_again(
    bad: Answer, hopeless: Callable[[int], bool], concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then only asks that fail whenever they are sent are sent; so it is after a stop, too."""
    monkeypatch.setattr(endpoints, "UNUSABLE_ASKS", 5)
    monkeypatch.setattr(servers, "REST_MAX_S", 0.01)
    answers = Picky(lambda number: number != 0 and hopeless(number), bad)
    with ChatServer(default=answers) as server:
        config = runtime(server.url, max_attempts=2, concurrency=concurrency)
        runs = [with_teacher(config, lambda t: outcomes(t, 120, concurrency)) for _ in range(3)]
        assert runs[0] == runs[1] == runs[2]
        failed = [number for number, outcome in enumerate(runs[0]) if outcome != "tree"]
        assert failed == [number for number in range(1, 120) if hopeless(number)]
        for answers.down in (DOWN, Answer(drop=True), Answer(raw=b"[]")):
            with pytest.raises(EndpointError, match="no endpoint answers"):
                with_teacher(config, lambda t: outcomes(t, 125, concurrency))
        answers.down = JUNK
        with pytest.raises(EndpointError, match="could not be used"):
            with_teacher(config, lambda t: outcomes(t, 130, concurrency))
        answers.down = None
        assert with_teacher(config, lambda t: outcomes(t, 120, concurrency)) == runs[0]
    with pytest.raises(EndpointError, match="no endpoint answers"):
        with_teacher(config, lambda t: outcomes(t, 120, concurrency))  # the connection is refused


def test_a_check_for_an_outage_is_made_once_and_keeps_no_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many asks fail at once, each with a share of a nearly spent budget."""
    monkeypatch.setattr(servers, "REST_MAX_S", 0.01)
    answers = Picky(lambda number: number >= 20, DOWN)
    budget = {"stage": {"requests": 100}}
    with ChatServer(default=answers) as server:
        config = runtime(server.url, max_attempts=1, concurrency=20, budget=budget)
        with_teacher(config, lambda t: outcomes(t, 20))
        kept = list(AnswerCache().replies())
        before = len(server.requests)
        found = with_teacher(config, lambda t: asyncio.wait_for(outcomes(t, 44, 40), 30))
        assert found == ["tree"] * 20 + ["ProviderError"] * 24
        again = [number for body in server.requests[before:] if (number := number_of(body)) < 20]
        assert 1 <= len(again) <= 4
        with pytest.raises(BudgetReached):
            with_teacher(config, lambda t: asyncio.wait_for(outcomes(t, 99, 40), 30))
        assert len(server.requests) == 100
    assert list(AnswerCache().replies()) == kept


def test_a_role_whose_asks_all_fail_is_excused_by_the_answers_of_another() -> None:
    answers = Picky(lambda number: number >= 100, DOWN)
    with ChatServer(default=answers) as server:
        for _ in range(2):
            with Teachers(runtime(server.url, max_attempts=1), "demo") as teachers:
                one, other = teachers.teacher(CONFIG, {}), teachers.teacher(CONFIG, {})

                async def both(one: Teacher, other: Teacher) -> list[str]:
                    await one.ask(Ask("demo/say", {"word": 1}, Word))
                    with pytest.raises(ProviderError, match="boom"):
                        await other.ask(Ask("demo/say", {"word": 100}, Word))
                    return await outcomes(one, 3)

                assert asyncio.run(both(one, other)) == ["tree"] * 3


def test_refusals_are_no_outage_and_end_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "REST_MAX_S", 0.01)
    script = [Answer(GOOD), *([DOWN] * 7 + [TOO_LONG] * 2) * 3, Answer(GOOD)]
    with ChatServer(*script) as server:
        found = with_teacher(
            runtime(server.url, max_attempts=1), lambda t: outcomes(t, 26, concurrency=1)
        )
    assert found[0] == found[25] == "tree"
    assert found[1:9] == found[9:17] == ["ProviderError"] * 7 + ["RefusedRequest"]


def test_a_server_that_refuses_whatever_is_asked_stops_the_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "UNUSABLE_ASKS", 3)
    with ChatServer(default=lambda _: TOO_LONG) as server:
        config = runtime(server.url)
        found = with_teacher(config, lambda t: outcomes(t, 2))
        assert found == ["RefusedRequest"] * 2
        with pytest.raises(EndpointError, match=r"could not be used.*context_length_exceeded"):
            with_teacher(config, lambda t: outcomes(t, 3))


def test_a_cancelled_ask_leaks_neither_place_nor_budget() -> None:
    with ChatServer(Answer(GOOD, delay_s=2), default=lambda _: Answer(GOOD)) as server:

        async def work(teacher: Teacher) -> None:
            slow = asyncio.create_task(teacher.ask(ask()))
            while not server.requests:
                await asyncio.sleep(0.01)
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            await asyncio.wait_for(teacher.ask(ask(1)), 1)
            with pytest.raises(BudgetReached):
                await teacher.ask(ask(2))

        with_teacher(runtime(server.url, concurrency=1, budget={"run": {"requests": 2}}), work)
        assert len(asyncio.all_tasks(asyncio.new_event_loop())) == 0


def test_connections_close_with_the_loop_and_another_loop_opens_its_own(place: Path) -> None:
    with (
        ChatServer(default=lambda _: Answer(GOOD)) as server,
        Teachers(runtime(server.url), "demo") as teachers,
    ):
        teacher = teachers.teacher(CONFIG, {})

        async def one(sample: int) -> None:
            await teacher.ask(ask(sample))

        for sample in range(2):
            asyncio.run(one(sample))
            assert all(known.client is None for known in teachers.gateway().servers)
        assert len(server.requests) == 2


def test_quantiles_to_five_percent() -> None:
    latency = Latency()
    assert latency.quantile(0.5) is None
    for milliseconds in range(1, 1001):
        latency.add(milliseconds / 1000)
    assert latency.quantile(0.5) == pytest.approx(0.5, rel=0.06)
    assert latency.quantile(0.95) == pytest.approx(0.95, rel=0.06)
    assert len(latency.classes) < 150
