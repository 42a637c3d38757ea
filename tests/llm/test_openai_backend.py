from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict

from astra.errors import AstraError
from astra.llm import endpoints
from astra.llm.build import Teachers
from astra.llm.cache import AnswerCache
from astra.llm.openai_backend import OpenAITeacher
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError, UnfitReply
from astra.llm.servers import EndpointError
from astra.llm.wire import (
    BadRequest,
    Fatal,
    Fault,
    Retriable,
    classified,
    error_instead,
    retry_after_s,
)
from astra.settings import Endpoint, RuntimeConfig
from chat_server import KEY, Answer, ChatServer, runtime

T = TypeVar("T")


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str


CONFIG = ModelConfig(backend="openai", model="m")
GOOD = '{"word": "tree"}'


def ask(word: str = "tree", sample: int = 0) -> Ask[Word]:
    return Ask("demo/say", {"word": word}, Word, sample)


def with_teacher(
    config: RuntimeConfig,
    work: Callable[[OpenAITeacher], Awaitable[T]],
    model: ModelConfig = CONFIG,
) -> T:
    async def run(teacher: OpenAITeacher) -> T:
        return await work(teacher)

    with Teachers(config, "demo") as teachers:
        teacher = teachers.teacher(model, {})
        assert isinstance(teacher, OpenAITeacher)
        return asyncio.run(run(teacher))


def one(server: ChatServer, **values: Any) -> Word:
    return with_teacher(runtime(server.url, **values), lambda teacher: teacher.ask(ask()))


def test_asks_with_a_schema_and_sends_the_key_only_as_a_header(place: Path) -> None:
    with ChatServer(Answer(GOOD)) as server:
        assert one(server) == Word(word="tree")
    (body,) = server.requests
    assert body["messages"] == [{"role": "user", "content": "Say tree."}]
    assert body["response_format"]["json_schema"]["strict"] is True
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.6, 4096)
    assert server.authorization == [f"Bearer {KEY}"]
    for file in place.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


def test_shows_the_schema_where_structured_output_is_refused_and_remembers() -> None:
    refused = Answer(status=400, error="response_format is not supported")
    with ChatServer(refused, Answer(GOOD), Answer('{"word": "bird"}')) as server:

        async def work(teacher: OpenAITeacher) -> None:
            await teacher.ask(ask("tree"))
            assert (await teacher.ask(ask("bird"))).word == "bird"

        with_teacher(runtime(server.url), work)
    assert ["response_format" in body for body in server.requests] == [True, False, False]
    for body in server.requests[1:]:
        assert '"required":["word"]' in body["messages"][0]["content"]


def test_a_request_that_is_bad_in_itself_is_not_repeated() -> None:
    with ChatServer(default=lambda _: Answer(status=400, error="context too long")) as server:
        with pytest.raises(ProviderError, match="context too long"):
            one(server)
        assert len(server.requests) == 2  # with the schema, and once without
        with pytest.raises(ProviderError, match="demo/say sample 0"):
            one(server)


@pytest.mark.parametrize(
    "fault",
    [
        Answer(status=500),
        Answer(status=503, error="busy"),
        Answer(status=408),
        Answer(status=409),
        Answer(status=429),
        Answer(drop=True),
        Answer(GOOD, delay_s=1.0),
        Answer(raw=b"<html>gateway</html>"),
        Answer(raw=b'{"choices": []}'),
        Answer(raw=b'{"choices": [{}]}'),
        Answer(raw=b"[]"),
    ],
    ids=lambda fault: str(fault.status) + repr(fault.raw or fault.drop or fault.delay_s),
)
def test_transport_faults_are_retried(fault: Answer) -> None:
    with ChatServer(fault, Answer(GOOD)) as server:
        assert one(server, request_timeout_s=0.4).word == "tree"
        assert len(server.requests) == 2


@pytest.mark.parametrize("kind", ["seconds", "date"])
def test_retry_after_is_honoured(kind: str) -> None:
    seconds = {"seconds": "0.5", "date": formatdate(time.time() + 2, usegmt=True)}[kind]
    with ChatServer(Answer(status=429, headers={"Retry-After": seconds}), Answer(GOOD)) as server:
        started = time.monotonic()
        one(server)
        assert time.monotonic() - started >= 0.5


def test_retry_after_that_is_no_time_is_ignored() -> None:
    assert retry_after_s({"retry-after": "soon"}) is None
    assert retry_after_s({}) is None
    assert retry_after_s({"retry-after": "-3"}) == 0.0


def test_attempts_are_bounded_and_an_outage_is_no_answer() -> None:
    with ChatServer(default=lambda _: Answer(status=500, error="down")) as server:
        with pytest.raises(EndpointError, match=r"no endpoint answers.*down"):
            one(server, max_attempts=3)  # none ever answered: not this ask's fault
        assert len(server.requests) == 3
        server.script = [Answer(GOOD)]

        async def work(teacher: OpenAITeacher) -> None:
            await teacher.ask(ask())
            with pytest.raises(ProviderError, match=r"after 3 attempts.*down"):
                await teacher.ask(ask(sample=1))

        with_teacher(runtime(server.url, max_attempts=3), work)
        assert len(server.requests) == 7


def test_a_long_outage_stops_the_stage() -> None:
    with ChatServer(Answer(GOOD), default=lambda _: Answer(status=500)) as server:

        async def work(teacher: OpenAITeacher) -> list[type[BaseException]]:
            seen: list[type[BaseException]] = []
            await teacher.ask(ask())
            for sample in range(1, endpoints.OUTAGE_ASKS + 1):
                try:
                    await teacher.ask(ask(sample=sample))
                except AstraError as error:
                    seen.append(type(error))
            return seen

        seen = with_teacher(runtime(server.url, max_attempts=1), work)
    assert set(seen[:-1]) == {ProviderError}
    assert seen[-1] is EndpointError


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_stops_the_stage_at_once(status: int) -> None:
    with ChatServer(default=lambda _: Answer(status=status, error="no")) as server:
        with pytest.raises(EndpointError, match="check its key"):
            one(server)
        assert len(server.requests) == 1


def test_missing_endpoint_and_key_name_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AstraError, match=r"runtime\.endpoints is empty"):
        Teachers(RuntimeConfig(), "demo").teacher(CONFIG, {})
    monkeypatch.delenv("ASTRA_TEST_KEY")
    with pytest.raises(AstraError, match="ASTRA_TEST_KEY is not set"):
        Teachers(runtime("http://127.0.0.1:1/v1"), "demo").teacher(CONFIG, {})


def test_a_server_without_keys_needs_none() -> None:
    with ChatServer(Answer(GOOD)) as server:
        open_server = RuntimeConfig(endpoints=(Endpoint(base_url=server.url, api_key_env=""),))
        with_teacher(open_server, lambda teacher: teacher.ask(ask()))


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (Answer("no idea"), "no complete JSON"),
        (Answer('{"word": 3}'), "word"),
        (Answer('{"wor'), "no complete JSON"),
        (Answer(GOOD, finish="length"), "cut off"),
        (Answer(None), "empty"),
    ],
)
def test_an_unusable_reply_is_repaired_with_its_problem(bad: Answer, problem: str) -> None:
    with ChatServer(bad, Answer(f"```json\n{GOOD}\n```")) as server:
        assert one(server).word == "tree"
    repair = server.requests[1]["messages"]
    assert [message["role"] for message in repair] == ["user", "assistant", "user"]
    assert problem in repair[2]["content"]
    assert '"required":["word"]' in repair[2]["content"]


def test_repairs_are_bounded_and_nothing_is_made_up() -> None:
    with ChatServer(default=lambda _: Answer("still no JSON")) as server:
        with pytest.raises(ParseError, match="after all attempts"):
            one(server, max_attempts=3)
        assert len(server.requests) == 3
        server.default = lambda _: Answer(GOOD)
        assert one(server).word == "tree"  # the failure was not committed


def no_stones(reply: Word) -> None:
    if reply.word == "stone":
        raise ValueError("a stone is no plant; name a plant")


def checked(sample: int = 0) -> Ask[Word]:
    return replace(ask(sample=sample), check=no_stones)


STONE = Answer('{"word": "stone"}')


def test_a_reply_that_fails_the_check_is_asked_for_again_with_the_reason(place: Path) -> None:
    with ChatServer(STONE, Answer(GOOD)) as server:
        for _ in range(2):
            found = with_teacher(runtime(server.url), lambda teacher: teacher.ask(checked()))
            assert found.word == "tree"
    assert len(server.requests) == 2  # the good one was committed
    echo, told = server.requests[1]["messages"][1:]
    assert "stone" in echo["content"]
    assert "a stone is no plant; name a plant" in told["content"]
    first, _ = (json.loads(line) for line in (place / "runs/usage.jsonl").read_text().splitlines())
    assert (first["answers"], first["repairs"], first["faults"]) == (1, 1, {"unfit": 1})


def test_a_check_that_no_reply_passes_ends_with_its_reason_and_commits_nothing() -> None:
    with ChatServer(default=lambda _: STONE) as server:
        with pytest.raises(UnfitReply, match=r"demo/say.*after all attempts: a stone is no plant"):
            with_teacher(
                runtime(server.url, max_attempts=3), lambda teacher: teacher.ask(checked())
            )
        assert len(server.requests) == 3
    assert not AnswerCache().stats().models


def test_a_cached_reply_that_fails_a_later_check_is_asked_again() -> None:
    """The check is no part of the answer's identity: the same ask finds the same answer."""
    with ChatServer(STONE, Answer(GOOD)) as server:

        async def work(teacher: OpenAITeacher) -> list[str]:
            asks = (ask(), ask(), checked(), checked(), ask())
            return [(await teacher.ask(one)).word for one in asks]

        found = with_teacher(runtime(server.url), work)
    assert found == ["stone", "stone", "tree", "tree", "tree"]
    assert len(server.requests) == 2


def test_a_check_that_breaks_is_an_error_of_ours() -> None:
    def broken(reply: Word) -> None:
        raise KeyError(reply.word)

    with ChatServer(default=lambda _: Answer(GOOD)) as server, pytest.raises(KeyError):
        with_teacher(runtime(server.url), lambda teacher: teacher.ask(replace(ask(), check=broken)))


def stated(status: int, **error: Any) -> Answer:
    """A response whose body states an error."""
    return Answer(status=status, raw=json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    "answer",
    [
        Answer(None, refusal="refused"),
        Answer("", finish="content_filter"),
        stated(403, code=403, message="refused", metadata={"reasons": ["violence"]}),
        stated(403, code=403, message="refused", metadata={"flagged_input": "a knife"}),
        stated(403, code="content_policy_violation", message="refused"),
        stated(400, code=400, type="content_filter", message="refused"),
        stated(200, code=403, message="refused", metadata={"reasons": ["violence"]}),
        stated(200, code="content_filter", message="refused"),
    ],
)
def test_a_refusal_is_no_answer_and_says_nothing_of_key_and_schema(answer: Answer) -> None:
    with ChatServer(answer, default=lambda _: Answer(GOOD)) as server:

        async def work(teacher: OpenAITeacher) -> None:
            with pytest.raises(ProviderError, match="refused"):
                await teacher.ask(ask())
            await teacher.ask(ask("bird"))

        with_teacher(runtime(server.url), work)
        assert ["response_format" in body for body in server.requests] == [True, True]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (stated(403, code=403, message="no", metadata={"reasons": []}), Fatal),
        (stated(403, code=403, message="no", metadata={"provider_name": "x"}), Fatal),
        (stated(401, code=401, message="no", metadata={"reasons": ["x"]}), Fatal),
        (stated(403, message="moderation may not be turned off by this key"), Fatal),
        (stated(429, code=429, type="insufficient_quota", message="no"), Fatal),
        (stated(200, code=402, message="no credits"), Fatal),
        (stated(200, code="404", message="no endpoints found"), Fatal),
        (stated(200, code="insufficient_quota", message="no"), Fatal),
        (stated(200, code="model_not_found", type="invalid_request_error"), Fatal),
        (stated(200, code=429, message="slow down"), Retriable),
        (stated(200, code=502, message="the provider failed"), Retriable),
        (stated(200, code=None, type="overloaded_error", message="busy"), Retriable),
        (stated(200, code=1301, message="a number of the server's own"), Retriable),
        (Answer(raw=b'{"error": "something broke"}'), Retriable),
        (stated(200, code="context_length_exceeded", message="too long"), BadRequest),
        (stated(200, code=422, message="too long"), BadRequest),
    ],
)
def test_a_stated_error_is_judged_by_its_code_whatever_the_status(
    answer: Answer, outcome: type[Fault]
) -> None:
    if answer.status == 200:
        fault = error_instead(json.loads(answer.body()), {})
    else:
        fault = classified(answer.status, answer.body(), {})
    assert type(fault) is outcome
    assert "choices" not in str(fault)


def test_a_completion_with_an_empty_error_beside_it_is_one() -> None:
    for extra in ({"error": None}, {"error": {}}, {"error": {"code": 500}}):
        document = json.loads(Answer(GOOD).body()) | extra
        with ChatServer(Answer(raw=json.dumps(document).encode())) as server:
            assert one(server, max_attempts=1).word == "tree"
            AnswerCache().prune(None, None)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_an_error_that_quotes_the_key_is_told_without_it(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "astra")
    text = "x" * 285 + f" bad key {KEY}"
    code = status if status > 200 else 401
    with (
        ChatServer(default=lambda _: stated(status, code=code, message=text)) as server,
        pytest.raises(AstraError) as told,
    ):
        one(server, max_attempts=1)
    assert "bad key" in str(told.value)
    assert KEY[:4] not in str(told.value) + caplog.text


def test_the_same_ask_is_sent_once_however_often_it_is_made(place: Path) -> None:
    with ChatServer(default=lambda _: Answer(GOOD, delay_s=0.05)) as server:

        async def work(teacher: OpenAITeacher) -> None:
            await asyncio.gather(*(teacher.ask(ask()) for _ in range(5)))

        with_teacher(runtime(server.url), work)
        with_teacher(runtime(server.url), work)
        assert len(server.requests) == 1
        with_teacher(runtime(server.url), lambda teacher: teacher.ask(ask(sample=1)))
        assert len(server.requests) == 2
        warmer = CONFIG.model_copy(update={"temperature": 0.9})
        with_teacher(runtime(server.url), lambda teacher: teacher.ask(ask()), warmer)
        assert len(server.requests) == 3
    log = [json.loads(line) for line in (place / "runs/usage.jsonl").read_text().splitlines()]
    assert [(entry["requests"], entry["cache_hits"]) for entry in log[:2]] == [(1, 4), (0, 5)]
    assert log[0]["prompt_tokens"] == 10
    assert log[0]["completion_tokens"] == 3


def test_concurrency_is_bounded() -> None:
    with ChatServer(default=lambda _: Answer(GOOD, delay_s=0.05)) as server:

        async def work(teacher: OpenAITeacher) -> None:
            await asyncio.gather(*(teacher.ask(ask(sample=n)) for n in range(12)))

        with_teacher(runtime(server.url, concurrency=3), work)
    assert server.most_in_flight == 3


def test_load_is_spread_by_work_in_flight_and_a_resting_server_is_left_alone() -> None:
    def slow(_: dict[str, Any]) -> Answer:
        return Answer(GOOD, delay_s=0.3)

    def fast(_: dict[str, Any]) -> Answer:
        return Answer(GOOD, delay_s=0.02)

    with ChatServer(default=slow) as one_, ChatServer(default=fast) as other:

        async def work(teacher: OpenAITeacher) -> None:
            await asyncio.gather(*(teacher.ask(ask(sample=n)) for n in range(24)))

        with_teacher(runtime(one_.url, other.url, concurrency=4), work)
        assert len(other.requests) > 2 * len(one_.requests) > 0
    busy = Answer(status=429, headers={"Retry-After": "30"})
    with ChatServer(default=lambda _: busy) as resting, ChatServer(default=fast) as other:
        started = time.monotonic()
        with_teacher(runtime(resting.url, other.url), lambda teacher: teacher.ask(ask(sample=99)))
        assert time.monotonic() - started < 5
        assert len(other.requests) == 1


CHILD = """
import asyncio, sys
from pydantic import BaseModel
from astra import prompting
from astra.llm.build import Teachers
from astra.llm.protocol import Ask, ModelConfig
from astra.settings import Endpoint, RuntimeConfig
prompting._source = lambda name: "Say {{ word }}."
class Word(BaseModel):
    word: str
async def main(teacher):
    async def one(n):
        reply = await teacher.ask(Ask("demo/say", {"word": str(n)}, Word))
        print(n, reply.word, flush=True)
    await asyncio.gather(*(one(n) for n in range(20)))
runtime = RuntimeConfig(endpoints=(Endpoint(base_url=sys.argv[1], api_key_env=""),), concurrency=2)
with Teachers(runtime, "demo") as teachers:
    asyncio.run(main(teachers.teacher(ModelConfig(backend="openai", model="m"), {})))
"""


def test_after_a_kill_no_committed_answer_is_asked_again(place: Path) -> None:
    def echo(body: dict[str, Any]) -> Answer:
        word = body["messages"][0]["content"].split(".")[0].split()[-1]
        return Answer(json.dumps({"word": word}), delay_s=0.02)

    with ChatServer(default=echo) as server:
        command = [sys.executable, "-c", CHILD, server.url]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None
        returned = [first.stdout.readline() for _ in range(7)]
        first.kill()
        first.communicate()
        assert all(returned)
        assert not (place / "runs/usage.jsonl").exists()  # killed, not ended
        assert len(server.requests) < 20
        again = subprocess.run(command, capture_output=True, text=True, check=True)
        assert len(again.stdout.splitlines()) == 20
        asked = [body["messages"][0]["content"] for body in server.requests]
        for line in returned:
            assert asked.count(f"Say {line.split()[0]}.") == 1
        assert len(asked) - 20 <= 2  # repeats are at most the calls in flight
    (line,) = (place / "runs/usage.jsonl").read_text().splitlines()
    usage = json.loads(line)
    assert usage["requests"] + usage["cache_hits"] == 20


def test_several_processes_share_the_cache_file(place: Path) -> None:
    code = (
        "import sys; from astra.llm.cache import AnswerCache; c = AnswerCache()\n"
        "for n in range(40): c.put(f'{sys.argv[1]}-{n}', 'm', {'reply': n})"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert AnswerCache().stats().models["m"][0] == 160
