"""Stage ``qa``: questions are planned, asked of the teacher, and kept if the rules pass them.

Questions of tables are planned first (questions/plan.py) and worded by the teacher; those of
corpora are made by the teacher (free.py).

Reasons for rejection: ``no_plan`` (no question could be planned), ``teacher`` (it gave no usable
reply), ``off_outline`` (the reply words other steps than the plan's), ``no_closing`` (the question
does not end by naming the outcomes), and every reason of rules.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from astra.llm.pool import flow
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.qa.config import QAConfig
from astra.qa.free import FreeRequest, count_requests, requests_of, synthesise
from astra.qa.knowledge.corpora import items_of
from astra.qa.knowledge.schema import KnowledgeError
from astra.qa.knowledge.sources import (
    KNOWLEDGE,
    Sources,
    all_sources,
    build_sources,
    shared_entities,
    source_weights,
)
from astra.qa.planned import build_instance
from astra.qa.questions.outline import ask_variables, outline_variables
from astra.qa.questions.plan import Planner, QuestionPlan, Stratum, Unplanned, strata_of
from astra.qa.questions.shapes import Shape
from astra.qa.replies import Wording
from astra.qa.report import refusal_detail
from astra.qa.rules import check
from astra.records.base import content_id
from astra.records.qa import (
    QAInstance,
    QuestionKind,
    Split,
)
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics

TEMPLATE = "qa/decompose"
"""The prompt for classic operations, in English questions that only read."""
OUTLINES = {"en": "qa/outline", "zh": "qa/outline_zh"}
"""Language -> the prompt for what ``qa/decompose`` does not cover."""
Outcome = QAInstance | Rejection
Wanted = FreeRequest | tuple[Stratum, QuestionPlan | Unplanned]
"""One question that is to be made."""


def corpus_counts(config: QAConfig, folder: Path) -> dict[str, dict[str, int]]:
    """The items of each corpus that are wanted (its limit, or all), available and used.

    Raises KnowledgeError where a corpus cannot be read.
    """
    counts: dict[str, dict[str, int]] = {}
    for name, spec in sorted(config.corpora.items()):
        if spec.language in config.languages_used:
            whole = spec.model_copy(update={"limit": None})
            available = sum(1 for _ in items_of(name, whole, folder))
            wanted = spec.limit or available
            counts[name] = {
                "wanted": wanted, "available": available, "used": min(wanted, available),
            }  # fmt: skip
    return counts


def instances(
    writer: QuestionWriter, teacher: Teacher, open_items: int, metrics: StageMetrics
) -> AsyncGenerator[Outcome, None]:
    """What came of each wanted question, in a fixed order. Counts ``in``."""

    async def work(wanted: Wanted) -> list[Outcome]:
        outcomes = await writer.make(wanted, teacher)
        metrics.count("in")
        return outcomes

    return flow(writer.wanted(), work, open_items)


class QuestionWriter:
    """Lists the questions that a configuration wants, and makes each with a teacher.

    Building it loads all knowledge and enumerates every composition. Raises KnowledgeError.
    """

    def __init__(self, config: QAConfig, knowledge: Path = KNOWLEDGE) -> None:
        self._config = config
        sources_of: dict[Split, Sources] = {
            split: build_sources(config, split, knowledge)
            for split in Split
            if config.instances.get(split, 0) > 0
        }
        shared = shared_entities(sources_of)
        if shared:
            raise KnowledgeError(
                f"knowledge sources put names into two splits: {sorted(shared)[:5]}; leave "
                "one of the sources out (weight 0), or those rows"
            )
        self._folder = knowledge
        # Read once ahead of any paid work: a broken corpus is found now, not hours later.
        self.requested = count_requests(config, knowledge)
        """The questions that corpora want, by language."""
        self.corpora = corpus_counts(config, knowledge)
        """How many items each corpus was to have, has and gives."""
        weights = source_weights(config)
        shapes: dict[Split, Counter[Shape]] = {split: Counter() for split in sources_of}
        self._planners = [
            Planner(config, stratum, sources[stratum.language], weights, shapes[split])
            for split, sources in sources_of.items()
            for stratum in strata_of(config, split)
        ]
        self._names = {
            split: frozenset[str]().union(*(source.names for source in all_sources(sources)))
            for split, sources in sources_of.items()
        }

    def composition_counts(self) -> dict[str, int]:
        """Compositions that each split owns within the hop budget, over languages and kinds."""
        counts: Counter[str] = Counter()
        for planner in self._planners:
            counts[planner.stratum.split.value] += planner.composition_count()
        return dict(counts)

    def total(self) -> int:
        """How many questions are wanted."""
        return sum(planner.stratum.total for planner in self._planners) + self.requested.total()

    def wanted(self) -> Iterator[Wanted]:
        """Every question to be made: those planned from tables, then those of corpora."""
        for planner in self._planners:
            for plan in planner.plans():
                yield planner.stratum, plan
        yield from requests_of(self._config, self._folder)

    async def make(self, wanted: Wanted, teacher: Teacher) -> list[Outcome]:
        """The instance that the teacher makes if every rule passes it, else why not; before it,
        the tries that failed.
        """
        if isinstance(wanted, FreeRequest):
            return await synthesise(wanted, teacher)
        stratum, plan = wanted
        if isinstance(plan, Unplanned):
            unplanned = Rejection(
                item=f"{stratum.split}/{stratum.kind}/{plan.scenario}",
                part=f"{stratum.language} {plan.number}",
                reason="no_plan",
                detail=plan.why,
            )
            return [unplanned]
        return [await self._word(stratum, plan, teacher)]

    def ask(self, stratum: Stratum, plan: QuestionPlan) -> Ask[Wording]:
        """The ask that words a plan."""
        closes = self._config.kinds_used != [QuestionKind.READ_ONLY]
        language, paraphrased = stratum.language, {"paraphrased": self._is_paraphrased(plan)}
        if plan.composition.classic and language == "en" and not closes:
            return Ask(TEMPLATE, ask_variables(plan, language) | paraphrased, Wording)
        variables = outline_variables(plan, language, closes) | paraphrased
        return Ask(OUTLINES[language], variables, Wording)

    def _is_paraphrased(self, plan: QuestionPlan) -> bool:
        told = [operation.model_dump(mode="json") for operation in plan.operations]
        ticket = int(content_id(["paraphrased", plan.names, told]), 16) / 16**16
        return ticket < self._config.paraphrased

    async def _word(self, stratum: Stratum, plan: QuestionPlan, teacher: Teacher) -> Outcome:
        item = f"{stratum.split}/{plan.composition.signature}/{', '.join(plan.names)}"
        ask = self.ask(stratum, plan)
        try:
            reply = await teacher.ask(ask)
        except (ProviderError, ParseError) as error:
            return Rejection(item=item, reason="teacher", detail=str(error))
        worded = sorted(step.id for step in reply.sub_questions)
        if worded != list(range(1, len(plan.operations) + 1)):
            why = f"words steps {worded} of {len(plan.operations)}"
            return Rejection(item=item, reason="off_outline", detail=refusal_detail(why, reply))
        ending = ask.variables.get("closing", "")
        if not reply.main_question.endswith(ending):
            why = f"does not end in {ending!r}"
            return Rejection(item=item, reason="no_closing", detail=refusal_detail(why, reply))
        instance = build_instance(
            plan, reply, stratum, self._names[stratum.split], template_hash(ask.template)
        )
        allowed = {hops for hops, weight in self._config.hops.items() if weight > 0}
        problem = check(instance, allowed, self._names[stratum.split])
        if problem is not None:
            reason, why = problem
            return Rejection(item=item, reason=reason, detail=refusal_detail(why, instance))
        return instance
