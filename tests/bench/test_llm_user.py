"""A model in the user's place: its words pass a gate, and its faults are never scored."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_server import Answer, ChatServer, runtime
from talking import DAY, GOAL, OPENING, TRACE, WORLD, ByTrace, said, talking_arena, user

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "export"))
from talkers import talking_arenas
from user_faults import BAD, FAULTY, bad_users

from astra.arena.user import UserAnswer
from astra.bench import llm_user
from astra.bench.llm_user import LlmUser, LlmUsers, UserWords, gate_faults
from astra.errors import AstraError
from astra.llm.protocol import ModelConfig
from astra.prompting import render
from astra.records.trajectory import StopReason
from astra.records.world import TraceEvent, UserAct
from astra.rollout.live import EpisodeJob
from astra.sandbox.local import LocalSandbox

MODEL = ModelConfig(backend="openai", model="m")
ASKED = (OPENING, said("For which day?"))
OWN = "On 2026-03-05."
"""What the automaton says to that."""


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path))
    monkeypatch.setenv("ASTRA_TEST_KEY", "sk-test")
    monkeypatch.setattr(llm_user, "ScriptedUser", ByTrace)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as started:
        yield started


def words(message: str, ends: bool = False) -> Answer:
    return Answer(json.dumps({"message": message, "ends": ends}))


def reply(server: ChatServer, *script: Answer) -> tuple[UserAnswer, dict[str, float]]:
    server.script = list(script)
    with LlmUsers(MODEL, runtime(server.url, max_attempts=1, request_timeout_s=1)) as users:
        found = users.user("rl", talking_arena())
        assert isinstance(found, LlmUser)
        return found.reply(ASKED, {}), users.rates["rl"]


def test_the_words_are_the_models_and_the_rest_is_the_automatons(server: ChatServer) -> None:
    answer, rates = reply(server, words("March 5, 2026 would suit me."))
    assert answer.turn.text == "March 5, 2026 would suit me."
    assert (answer.turn.act, answer.turn.facts) == (UserAct.ANSWER, {"day": "2026-03-05"})
    assert answer.ends is None
    assert rates == {"turns": 1.0, "retries": 0.0, "fallbacks": 0.0, "faults": 0.0}


def test_what_is_held_back_is_not_in_the_prompt(server: ChatServer) -> None:
    server.script = [words("Please go on.")]
    with LlmUsers(MODEL, runtime(server.url)) as users:
        found = users.user("rl", talking_arena())
        assert found is not None
        variables = llm_user._variables(
            WORLD, GOAL, ASKED, UserAnswer(user(UserAct.NUDGE, "Please go on."))
        )
    assert variables["held_back"] == ["day"]
    assert "2026-03-05" not in json.dumps({**variables, "now": ""})


@pytest.mark.parametrize(
    ("act", "facts", "ends", "has", "lacks"),
    [
        (UserAct.ANSWER, {"day": DAY}, None, "say that you do not know it", "say goodbye, and"),
        (UserAct.ANSWER, {"day": DAY}, None, "The conversation goes on: do not say", "- Agree to"),
        (UserAct.CONFIRM, {"day": DAY}, None, "tell it what it still has to know", "Do not agree"),
        (UserAct.CONFIRM, {}, None, "- Agree to what the assistant wants to do", "still has to"),
        (UserAct.TOOL, {}, None, "what that is called you do not know", "- Agree to"),
        (UserAct.NUDGE, {}, None, "If it has just refused, you may be disappointed", "- Agree to"),
        (UserAct.CLOSE, {}, StopReason.ANSWERED, "`ends` is true", "`ends` is false"),
        (UserAct.CLOSE, {}, StopReason.ANSWERED, "no event, promise, price, person", "- Agree to"),
        (UserAct.CLOSE, {}, StopReason.ANSWERED, "have said you may name again", "goes on"),
    ],
)  # fmt: skip
def test_the_model_is_told_what_a_turn_does(
    act: UserAct, facts: dict[str, str], ends: StopReason | None, has: str, lacks: str
) -> None:
    decided = UserAnswer(user(act, "So.", facts=facts), ends)
    asked = (OPENING, said("Two boats:\n- boat-1\n- boat-2\nWhich one?"))
    variables = llm_user._variables(WORLD, GOAL, asked, decided)
    prompt = render(llm_user.TEMPLATE, {**variables, "persona": "a customer", "refused": []})
    assert "assistant: \n| Two boats:\n| - boat-1" in prompt
    assert 'below its speaker, each line after a "|"' in " ".join(prompt.split())
    assert has in " ".join(prompt.split())
    assert lacks not in prompt


def test_what_was_told_stays_known_when_it_is_told_again_and_not_when_it_changes() -> None:
    def known(act: UserAct, **facts: Any) -> dict[str, str]:
        trace = (*ASKED, user(UserAct.ANSWER, OWN, facts={"day": DAY, "boat_id": "boat-1"}))
        decided = UserAnswer(user(act, "So.", facts=facts))
        return llm_user._variables(WORLD, GOAL, trace, decided)["known"]

    assert known(UserAct.ANSWER, day=DAY) == {"day": DAY, "boat id": "boat-1"}
    assert known(UserAct.CHANGE, day="2026-03-06") == {"boat id": "boat-1"}


@pytest.mark.parametrize(
    ("slot", "label"),
    [
        ("own email", "own email"), ("boat_id", "boat id"), ("day 2", "day (wish 2)"),
        ("boat_id.made_on", "made on of the boat"), ("boats.made_on", "made on of the boats"),
        ("boat_id.made_on 2", "made on of the boat (wish 2)"),
    ],
)  # fmt: skip
def test_a_column_is_that_of_the_thing(slot: str, label: str) -> None:
    turn = user(UserAct.CHOOSE, OWN, facts={slot: DAY})
    assert llm_user._variables(WORLD, GOAL, ASKED, UserAnswer(turn))["due"] == {label: DAY}
    assert llm_user._reason(f"untold:{slot}").startswith(f"the value of {label} is")


def test_a_refused_value_is_quoted_as_it_was_written() -> None:
    assert llm_user._reason("invents:12.5") == "12.5 is no value of yours"


def test_who_says_goodbye_too_early_is_told_by_which_words(server: ChatServer) -> None:
    reply(server, words("On 2026-03-05, bye."), words("On 2026-03-05.", True), words("2026-03-05"))
    first, second = (one["messages"][0]["content"] for one in server.requests[1:])
    assert 'the conversation is not over, and "bye" says that it is' in first
    assert "the conversation is not over, and `ends` says that it is" in second


def test_refused_words_are_asked_for_again_with_the_reason(server: ChatServer) -> None:
    answer, rates = reply(server, words("Tomorrow."), words("On 5 March 2026."))
    assert answer.turn.text == "On 5 March 2026."
    assert rates["retries"] == rates["gate.untold"] == 1.0
    asked = server.requests[1]["messages"][0]["content"]
    assert '"Tomorrow.": the value of day is missing' in asked


@pytest.mark.parametrize(
    ("message", "ends", "code"),
    [
        ("On 2026-03-06.", False, "untold"), ("", False, "empty"),
        ("2026-03-05. Goodbye!", False, "stops"), ("On 2026-03-05.", True, "stops"),
        ("Yes, go ahead, on 2026-03-05.", False, "agrees"),
        ("Call book_boat for 2026-03-05.", False, "names"),
        ("On 2026-03-05 for 44 people.", False, "invents"),
        ("Am liebsten wäre mir der 2026-03-05.", False, "language"),
        ("On 2026-03-05, the cafÃ© is open.", False, "broken"),
        ("On 2026-03-05. " + "Please. " * 90, False, "long"),
    ],
)  # fmt: skip
def test_after_three_tries_the_automaton_speaks(
    server: ChatServer, message: str, ends: bool, code: str
) -> None:
    answer, rates = reply(server, *[words(message, ends)] * 3)
    assert (answer.turn.text, answer.ends) == (OWN, None)
    assert (rates["retries"], rates["fallbacks"], rates[f"gate.{code}"]) == (2.0, 1.0, 3.0)


def test_consent_is_the_automatons_to_give() -> None:
    trace = (OPENING, said("I am going to book boat-1. Shall I go ahead?"))

    def gate(act: UserAct, text: str, ends: bool = False) -> list[str]:
        decided = UserAnswer(user(act, "Well."), StopReason.ANSWERED if ends else None)
        return gate_faults(WORLD, GOAL, trace, decided, UserWords(message=text, ends=ends))

    assert gate(UserAct.CONFIRM, "Yes, please do.") == []
    assert gate(UserAct.CONFIRM, "Hmm.") == ["denies"]
    assert gate(UserAct.CONFIRM, "Yes, but stop, I changed my mind.") == ["takes_back"]
    assert gate(UserAct.REJECT, "No, not like that.") == []
    assert gate(UserAct.REJECT, "Fine by me.") == ["rejects_nothing", "agrees"]
    assert gate(UserAct.REJECT, "That is not it.") == ["rejects_nothing"]
    assert gate(UserAct.NUDGE, "Okay, go ahead.") == ["agrees"]
    assert gate(UserAct.NUDGE, "No, wait.") == ["takes_back"]
    assert gate(UserAct.NUDGE, "Could you see to it?") == []
    assert gate(UserAct.NUDGE, "Nothing else on your list is what I asked for.") == []
    assert gate(UserAct.NUDGE, "There is nothing else.") == ['stops:"nothing else"']
    assert gate(UserAct.NUDGE, "I need nothing else for now!") == ['stops:"nothing else"']
    assert gate(UserAct.CLOSE, "Okay, thanks, goodbye.", ends=True) == []
    assert "leaks:day" in gate(UserAct.CLOSE, "See you on 5 March.", ends=True)


HEARD = "I find only one boat of yours: {}, which has 2 seats rather than 3."
WHICH = " Is this the boat you want changed, and if so, on which day?"


@pytest.mark.parametrize(
    ("asked", "text", "codes"),
    [
        (HEARD.format("boat-1") + WHICH, "Yes, that must be the one I had in mind. {}.", []),
        ("A booking of boat-1. Is it all as you want it, and which day?", "Yes, {}.", ["agrees"]),
        ("Could you tell me the day, please?", "Sure, it is {}.", []),
        ("For which day?", "Yes, {}.", ["agrees"]),
        (HEARD.format("boat-2") + WHICH, "Yes, that must be it. {}.", ["agrees"]),
        (HEARD.format("boat-1") + WHICH, "Yes, go ahead. {}.", ["agrees"]),
        ("I am going to book boat-1. Is it the boat you mean? Which day?", "Yes, {}.", ["agrees"]),
        ("Is it boat-1 you mean? Shall I book it, and for which day?", "Yes, {}.", ["agrees"]),
    ],
)  # fmt: skip
def test_a_yes_to_what_is_meant_is_no_consent(asked: str, text: str, codes: list[str]) -> None:
    trace = (OPENING, said(asked))
    turn = user(UserAct.ANSWER, OWN, facts={"day": DAY})
    message = UserWords(message=text.format(DAY), ends=False)
    assert gate_faults(WORLD, GOAL, trace, UserAnswer(turn), message) == codes
    nudged = UserAnswer(user(UserAct.NUDGE, "Please go on."))
    assert "agrees" in gate_faults(WORLD, GOAL, trace, nudged, message)


def test_values_of_the_agent_may_be_named_again_where_they_mislead_nobody() -> None:
    opening = user(UserAct.OPENING, "Book a boat.")
    trace = (opening, said("boat-1 costs 12.5 and boat-2 costs 25. Which one do you mean?"))
    goal = GOAL.model_copy(update={"trace": (opening, *TRACE[1:])})

    def gate(act: UserAct, text: str, ends: StopReason | None = None) -> list[str]:
        decided = UserAnswer(user(act, OWN, facts={} if ends else {"day": DAY}), ends)
        return gate_faults(WORLD, goal, trace, decided, UserWords(message=text, ends=bool(ends)))

    assert gate(UserAct.CHOOSE, f"I mean boat-1, on {DAY}.") == []
    assert gate(UserAct.CONFIRM, f"Yes, take boat-1 on {DAY}.") == []
    assert gate(UserAct.CHOOSE, f"I mean boat-2, on {DAY}.") == ["invents:boat-2"]
    assert gate(UserAct.NUDGE, f"Go on with boat-1 on {DAY}.") == ["invents:boat-1"]
    assert gate(UserAct.CLOSE, "Thanks for boat-2, goodbye.", StopReason.ANSWERED) == []


@pytest.mark.parametrize(
    "bad",
    [
        Answer(raw=b'{"choices": [{"mess'), Answer("no JSON at all"), Answer('{"message": 3}'),
        Answer(status=500, error="internal"), Answer(drop=True), Answer("", delay_s=3.0),
    ],
)  # fmt: skip
def test_a_model_without_words_is_a_fault_and_no_turn(server: ChatServer, bad: Answer) -> None:
    with pytest.raises(AstraError):
        reply(server, bad)


def test_what_breaks_in_the_client_is_a_fault_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"

        async def ask(self, ask: Any) -> Any:
            raise KeyError("choices")

    with LlmUsers(MODEL, runtime("http://127.0.0.1:9/v1")) as users:
        users._teacher = Broken()
        found = users.user("rl", talking_arena())
        assert found is not None
        with pytest.raises(AstraError, match="the model of the user failed: KeyError"):
            found.reply(ASKED, {})
        assert users.rates["rl"]["faults"] == 1.0


def test_a_further_wish_keeps_its_own_words(server: ChatServer, monkeypatch: Any) -> None:
    wish = user(UserAct.REQUEST, "Also, add a helmet.")

    class Wishes(ByTrace):
        def reply(self, trace: Any, rows: Any) -> UserAnswer:
            return UserAnswer(wish)

    monkeypatch.setattr(llm_user, "ScriptedUser", Wishes)
    with LlmUsers(MODEL, runtime(server.url)) as users:
        found = users.user("rl", talking_arena())
        assert found is not None
        assert found.reply(ASKED, {}).turn == wish
    assert server.requests == []


def test_an_episode_is_played_with_the_user_of_its_job() -> None:
    class Somebody:
        def reply(self, trace: Any, rows: Any) -> UserAnswer:
            return UserAnswer(TraceEvent(kind=TRACE[0].kind, act=UserAct.NUDGE, text="Me."))

    with LocalSandbox() as sandbox:
        env = EpisodeJob(talking_arena(), user=Somebody()).environment(sandbox)
        env.say("Hello.")
        answer = env.reply()
    assert answer is not None
    assert answer.turn.text == "Me."


def test_an_arena_without_a_user_gets_none() -> None:
    silent = talking_arena(GOAL.model_copy(update={"script": None}))
    with LlmUsers(MODEL, runtime("http://127.0.0.1:9/v1")) as users:
        assert users.user("rl", silent) is None
        assert users.rates == {}


@pytest.mark.slow
def test_of_a_bad_model_nothing_reaches_the_agent_and_no_fault_is_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # the real rules
    arenas = talking_arenas()
    with LocalSandbox() as sandbox:
        found = bad_users([arenas[1], arenas[2], arenas[3]], sandbox)
    for count in ("leaks", "contradictions", "premature_ends", "scored_faults"):
        assert found[count] == 0, found
    for name in BAD:
        model = found["models"][name]
        assert model["faults" if name in FAULTY else "scored"] > 0
        assert model["scored"] == (0 if name in FAULTY else 3), (name, model)
