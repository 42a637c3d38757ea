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
CLUSTER = AskForm("envsynth/cluster", ClusterReply, 150)
MERGE = AskForm("envsynth/merge_code", MergeReply, 900)
ASKS_A_TOOL = 4
"""Document, complexity scaling, call and code."""
TRIES, CODE_TRIES = 1.05, 1.25
"""How often a part is asked for: 51 documents were scaled and 61 codes written for 49
sub-questions."""
FILTERED = 0.25
"""The share of tools that may gain a filter, whose document is scaled: those over several rows."""
MERGES = 0.35
"""Merges asked for per question whose tools a teacher groups: 6 for 15, with a repair."""
STEP_BYTES, CONTEXT_BYTES, TOOL_BYTES, CODE_BYTES = 120, 270, 540, 900
"""What prompts show of a sub-question, of what it builds on, of its tool, and of that one's code.
"""


def environment_asks(config: EnvsConfig, questions: QuestionFacts) -> list[ExpectedAsks]:
    """The asks of stage ``envs``. The most are what ``max_asks`` and the attempts allow."""
    each = tool_questions(questions, config.nodes)
    most = _most_asks(config) / ASKS_A_TOOL
    asked, coded = each.times(TRIES, most), each.times(CODE_TRIES, most)
    writing = questions.writing
    call = STEP_BYTES + TOOL_BYTES
    forms = (
        (DOCUMENT, asked, STEP_BYTES + CONTEXT_BYTES),
        (COMPLEXITY, each.times(TRIES * FILTERED, most), call + CONTEXT_BYTES),
        (CALL, asked, call),
        (CODE, coded.times(1 - writing), call + questions.table_bytes),
        (CODE_STATEFUL, coded.times(writing), call + CONTEXT_BYTES + questions.table_bytes),
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

    Tools of stated operations are grouped by construction, and one of them serves its group as it
    is. A group has two tools or more.
    """
    crowded = questions.rows.times(questions.crowded)
    grouped = crowded.times(1.0 - questions.operated, 1.0)
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
