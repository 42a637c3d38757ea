"""What the names in a card's tables mean. Names of enumerations are all here; tests say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from astra.records.environment import DEEP, HARD_CALLS, HARD_TRAITS, Trait
from astra.records.qa import QuestionKind, Scenario
from astra.records.task import TaskKind
from astra.records.tool import Execution
from astra.records.world import GoalTrait

TRAITS: Mapping[str, str] = {
    Trait.SELECTION: "a part of a record or list that a tool returned is the answer or goes on",
    Trait.PAGES: "a result continues on further pages, which have to be asked for",
    Trait.TWINS: "two tools in scope are about the same, and one has a parameter more",
    Trait.UNLIKE_NAMES: "a needed tool's name shares no content word with the question",
    Trait.FORMATS: "an argument has to be written in another form than the question has it in",
    Trait.HOPS: f"the question has `{DEEP}` hop levels or more",
}
DIFFICULTY: Mapping[str, str] = {
    "hard": f"`{HARD_TRAITS}` of the traits or more, and `{HARD_CALLS}` calls or more",
    "lookup": "every other arena",
}
QUESTION_KINDS: Mapping[str, str] = {
    QuestionKind.READ_ONLY: "values are looked up, and nothing changes",
    QuestionKind.WRITE: "something has to be changed",
    QuestionKind.MIXED: "something is looked up and something changed",
    QuestionKind.MISSING_TOOL: "the tool that it takes is not offered; the agent has to say so",
    QuestionKind.MISSING_PARAMETER: "a value that a tool needs is not given; likewise",
    QuestionKind.INFEASIBLE: "what is asked for cannot be done; likewise",
    QuestionKind.ALREADY_SATISFIED: "what is asked for is so already; nothing may be changed",
    QuestionKind.FORBIDDEN: "what is asked for breaks a rule that no tool enforces; likewise",
    QuestionKind.CODE: "one tool runs Python; only the answer counts",
}
GOAL_TRAITS: Mapping[str, str] = {
    GoalTrait.IMPLICIT: "a row is named by what it is, not by its key",
    GoalTrait.CHOICE: "the words fit several rows, and the user says which one when asked",
    GoalTrait.CHANGES_MIND: "the user wants something else once it is proposed",
    GoalTrait.MULTI: "several wishes",
    GoalTrait.CROSS_TURN: "a value that a call needs was said in an earlier turn than the last",
    GoalTrait.LATE_TOOL: "a tool that it takes comes while the conversation goes on",
}
SCENARIOS: Mapping[str, str] = {
    Scenario.SINGLE_HOP: "one sub-question",
    Scenario.PARALLEL_SINGLE_HOP: "several sub-questions that do not need each other's answers",
    Scenario.MULTI_HOP: "sub-questions each of which needs the answer of the one before",
    Scenario.PARALLEL_MULTI_HOP: "several such rows of sub-questions, or a branching one",
}
TASK_KINDS: Mapping[str, str] = {
    TaskKind.CHAIN: "a request that takes a chain of calls which was found first",
    TaskKind.SERVER: "a request for anything that the server does",
    TaskKind.MISSING_FUNCTION: "the tool that it takes is not offered; the agent says so",
    TaskKind.MISSING_PARAMETER: "a value that a tool needs is not given; the agent asks for it",
    TaskKind.IRRELEVANT: "no tool of the server is of use; the agent says so",
}
EXECUTIONS: Mapping[str, str] = {
    Execution.LIVE: "a server process answered the calls",
    Execution.EMULATED: "a service that knows the tools' documents alone made the results up, and "
    "let a share of the calls fail on purpose",
}
DROPS: Mapping[str, str] = {
    "ask_failed": "no usable reply came",
    "below_min_score": "the mean of its scores is below the bound",
    "incoherent": "voters saw no task in the chain of calls",
    "infra": "a part of the machinery failed",
    "live_limit": "more tasks for a live server than wanted",
    "low_necessity": "the judge: it does not need the tools",
    "low_quality": "the judge: it is not clear or not whole",
    "low_realism": "the judge: nobody would ask this",
    "misunderstood": "the agent left out or mistook a part of the request",
    "near_duplicate": "nearly the words of one that stayed",
    "near_duplicate_slots": "built like one that stayed, and too few of its values differ",
    "max_calls": "more calls than an episode may make",
    "max_turns": "more turns than an episode may take",
    "no_choice": "no row of the world was left that words could leave open among several",
    "no_other_wish": "no second wish was found to change to",
    "no_row": "no row was found that a goal of its kind needs",
    "no_script": "nobody plays the user",
    "no_second_wish": "no second wish was found beside the first",
    "no_wish": "no call was found that a goal of its kind could ask for",
    "not_deterministic": "the same call gave different results",
    "not_faithful": "the answer claims what no result supports",
    "outcome_missing": "it was not ended as asked for, declined or handed over",
    "outcome_wrong": "it was ended otherwise than it has to be",
    "question_too_long": "more words than allowed",
    "rule": "a rule that no tool enforces was broken",
    "said_among_others": "what was asked for was told among other values",
    "said_unread": "what was asked for was told before it was looked up",
    "state_extra": "rows were changed that were not to be",
    "state_missing": "rows were not changed that were to be",
    "timeout": "it took too long",
    "too_few_tools": "fewer usable tools than a server needs",
    "too_long": "more tokens than training takes (`max_tokens`)",
    "unread": "what the answer stands in was never looked up",
    "unsaid": "what was asked for was not told, or another value was",
    "user_left": "the user gave up",
}
"""The drops of committed builds, and how conversations in worlds fail; stages have further ones."""
HOP_LEVELS = (
    "A sub-question whose values all stand in the question is of the first hop level, one that "
    "needs the answer of another is one level deeper, and an arena is counted by its deepest."
)


def explained(names: Iterable[str], meanings: Mapping[str, str]) -> str:
    """A Markdown list of what names mean, in their order; those without a meaning are left out."""
    return "\n".join(f"- `{name}`: {meanings[name]}." for name in names if name in meanings)
