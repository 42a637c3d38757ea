"""The asks of stages ``envs`` and ``envs_merged``, before they are made.

Lengths of replies, tries and yields are those of a strong model (360 recorded asks of the
environment track: 49 sub-questions that need a tool, in 18 questions).
"""

from __future__ import annotations

from astra.envsynth.asks import CallReply, ClusterReply, CodeReply, DocumentReply, MergeReply
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.envsynth.worlds import Nodes
from astra.estimate.asks import Amount, AskForm, ExpectedAsks
from astra.estimate.questions import QuestionFacts

DOCUMENT = AskForm("envsynth/document", DocumentReply, 410)
COMPLEXITY = AskForm("envsynth/complexity", DocumentReply, 440)
CALL = AskForm("envsynth/call", CallReply, 105)
CODE = AskForm("envsynth/code", CodeReply, 933)
CODE_STATEFUL = AskForm("envsynth/code_stateful", CodeReply, 592)
CLUSTER = AskForm("envsynth/cluster", ClusterReply, 26)
MERGE = AskForm("envsynth/merge_code", MergeReply, 795)
ASKS_A_TOOL = 4
"""Document, complexity scaling, call and code."""
TRIES = 1.15
"""How often each of them is asked: 226 asks for 49 sub-questions."""
MERGES = 0.35
"""Merges asked for per question with tools to group: 6 for 15, with a repair."""
STEP_BYTES, CONTEXT_BYTES, TOOL_BYTES, CODE_BYTES = 120, 270, 540, 900
"""What prompts show of a sub-question, of what it builds on, of its tool, and of that one's code.
"""


def environment_asks(config: EnvsConfig, questions: QuestionFacts) -> list[ExpectedAsks]:
    """The asks of stage ``envs``. The most are what ``max_asks`` and the attempts allow."""
    each = tool_questions(questions, config.nodes)
    asked = each.times(TRIES, _most_asks(config) / ASKS_A_TOOL)
    writing = questions.writing
    call = STEP_BYTES + TOOL_BYTES
    forms = (
        (DOCUMENT, asked, STEP_BYTES + CONTEXT_BYTES),
        (COMPLEXITY, asked, call + CONTEXT_BYTES),
        (CALL, asked, call),
        (CODE, asked.times(1 - writing), call + questions.table_bytes),
        (CODE_STATEFUL, asked.times(writing), call + CONTEXT_BYTES + questions.table_bytes),
    )
    return [form.asked("teacher", config.teacher, asks, shown) for form, asks, shown in forms]


def _most_asks(config: EnvsConfig) -> int:
    """The asks of one sub-question whose every try fails."""
    documents = 2 * config.outer_attempts
    return min(config.max_asks, documents + 2 * config.outer_attempts * config.inner_attempts)


def tool_questions(questions: QuestionFacts, nodes: Nodes) -> Amount:
    """How many sub-questions get a tool."""
    return questions.rows.times(questions.tools if nodes == "needed" else questions.built_on)


def merge_asks(config: EnvsMergedConfig, questions: QuestionFacts) -> list[ExpectedAsks]:
    """The asks of stage ``envs_merged``: one to group a question's tools, some to merge groups.

    A group has two tools or more.
    """
    grouped = questions.rows.times(questions.crowded)
    tools = tool_questions(questions, config.nodes)
    tries = min(config.max_asks, config.merge_attempts)
    merged = Amount(grouped.about * MERGES, tools.most / 2 * tries, grouped.counted)
    member = STEP_BYTES + TOOL_BYTES + CODE_BYTES
    return [
        CLUSTER.asked(
            "teacher", config.teacher, grouped, (STEP_BYTES + TOOL_BYTES) * questions.tools
        ),
        MERGE.asked("teacher", config.teacher, merged, 2 * member),
    ]
