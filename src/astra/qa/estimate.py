"""The asks of stages ``qa`` and ``qa_valid``, before they are made.

Lengths of replies and yields are those of a strong model (360 recorded asks of the environment
track: 21 questions, 49 tools), and of the graph's own builds where that model met too few.
"""

from __future__ import annotations

from dataclasses import replace

from astra.estimate.asks import Amount, AskForm, ExpectedAsks, counted
from astra.estimate.questions import QuestionFacts
from astra.qa.config import ACTING_KINDS, Language, QAConfig, QAValidConfig
from astra.qa.free import ASKS
from astra.qa.hearing import TRIES, VERIFIERS
from astra.qa.replies import (
    CompletenessReport,
    NecessityReport,
    StepReport,
    Synthesis,
    Wording,
)
from astra.records.qa import QuestionKind, Scenario

WORDED = {
    "classic": AskForm("qa/decompose", Wording, 420),
    "en": AskForm("qa/outline", Wording, 420),
    "zh": AskForm("qa/outline_zh", Wording, 420),
}
FREE: dict[Language, AskForm] = {
    "en": AskForm("qa/synthesise", Synthesis, 2516),
    "zh": AskForm("qa/synthesise_zh", Synthesis, 2516),
}
NECESSITY = AskForm("qa/necessity", NecessityReport, 248)
OPINIONS = {
    "dependency": AskForm("qa/dependency", StepReport, 168),
    "atomicity": AskForm("qa/atomicity", StepReport, 200),
    "sequential": AskForm("qa/sequential", StepReport, 171),
    "completeness": AskForm("qa/completeness", CompletenessReport, 39),
}
OUTLINE_BYTES, FREE_BYTES = 900, 3150
"""The variables of an ask for a question: the plan's steps, or a text and names."""
STEPS, STEPS_SHARE = 4.0, 0.47
"""Sub-questions of a question where many are allowed, and their share of what is allowed where
few are: measured at scales full and smoke."""
QUESTION_BYTES, STEP_BYTES, TABLE_BYTES = 200, 110, 900
NEEDING, BUILT_ON = 0.95, 0.7
"""Shares of sub-questions: those that need a tool, and in linked questions those that others build
on; at scale smoke."""
OPERATED = 0.5
"""The share of free questions whose every step states its operation; ours, a guess."""
REFUSED = 0.2
"""The share of free replies that break a rule, so that their question is asked for again; ours."""
MADE, VALID = 0.9, 0.95
"""The shares of questions that pass the rules of ``qa`` and the verifiers of ``qa_valid``."""
STEP_LAYOUT_BYTES = 115
"""The layout of one sub-question in a judge's prompt."""


def question_asks(config: QAConfig, free: dict[Language, int]) -> list[ExpectedAsks]:
    """The asks of stage ``qa``. ``free``: how many questions corpora want, by language."""
    planned = sum(config.instances.values())
    asked: list[ExpectedAsks] = []
    for language in config.languages_used:
        amount = counted(planned * config.languages[language])
        form = WORDED["classic" if _classic(config, language) else language]
        asked.append(form.asked("teacher", config.teacher, amount, OUTLINE_BYTES))
        amount = counted(free.get(language, 0)).times(1 + REFUSED, ASKS)
        asked.append(FREE[language].asked("teacher", config.teacher, amount, FREE_BYTES))
    return asked


def _classic(config: QAConfig, language: Language) -> bool:
    reads_only = config.kinds_used == [QuestionKind.READ_ONLY]
    return language == "en" and reads_only and not config.extended


def expected_questions(config: QAConfig, free: dict[Language, int]) -> QuestionFacts:
    """The facts of table ``qa`` before it is there."""
    planned, made_freely = sum(config.instances.values()), sum(free.values())
    wanted = counted(planned + made_freely)
    share = planned / (planned + made_freely) if wanted.about else 0.0
    steps = min(STEPS, max(1.0, STEPS_SHARE * config.max_steps))
    deep = (Scenario.MULTI_HOP, Scenario.PARALLEL_MULTI_HOP)
    linked = sum(config.scenarios.get(scenario, 0.0) for scenario in deep)
    return QuestionFacts(
        rows=wanted.guessed(MADE),
        steps=steps,
        tools=NEEDING * steps,
        built_on=linked * steps * BUILT_ON,
        linked=linked,
        crowded=1.0 - config.scenarios.get(Scenario.SINGLE_HOP, 0.0),
        writing=sum(config.kinds.get(kind, 0.0) for kind in ACTING_KINDS),
        stated_bytes=QUESTION_BYTES + STEP_BYTES * steps,
        table_bytes=TABLE_BYTES,
        operated=share + (1.0 - share) * OPERATED,
        planned=share,
    )


def verdict_asks(config: QAValidConfig, questions: QuestionFacts) -> list[ExpectedAsks]:
    """The asks of stage ``qa_valid``: necessity, then the verifiers.

    What holds by construction is asked of those alone that are audited.
    """
    shown = questions.stated_bytes + STEP_LAYOUT_BYTES * questions.steps

    def asked(form: AskForm, proven: float, each: float, tries: int) -> ExpectedAsks:
        open_share = 1.0 - proven * (1.0 - config.audit_share)
        amount = questions.rows.times(open_share * each, open_share * tries)
        return form.asked("judge", config.judge, amount, shown)

    asks = [asked(NECESSITY, questions.operated, 1.0, TRIES)]
    for name in VERIFIERS:
        proven = questions.operated if name == "sequential" else questions.planned
        each = questions.linked if name == "dependency" else 1.0
        asks.append(asked(OPINIONS[name], proven, each, 1 if name == "completeness" else TRIES))
    return asks


def expected_valid(config: QAValidConfig, questions: QuestionFacts) -> QuestionFacts:
    """The facts of table ``qa_valid`` before it is there."""
    return replace(questions, rows=passing(config, questions.rows))


def passing(config: QAValidConfig, questions: Amount) -> Amount:
    """How many questions the threshold lets pass; ties may let all pass."""
    threshold = config.threshold
    share = VALID if threshold.kind == "absolute" else 1 - threshold.value / 100
    return questions.guessed(share)
