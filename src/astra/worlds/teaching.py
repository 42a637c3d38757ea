"""A world that a teacher writes: schema, rules, tools and rows, each proved, each asked for again.

1. Each reply is checked by itself as it comes (``replies``): a schema before anything rests on it.
2. The world of all replies has to pass the proofs that drawn worlds pass (``proofs``).
3. For each rule, some calls are decided by its sentence alone (``agreement``): where one of them is
   decided otherwise than by its expression, the rule is refused.

What is refused goes back with the reasons to whoever wrote the part that the fault may lie in
(``blame``). A part has ``inner_attempts`` tries, and a world ``max_asks`` asks.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import islice
from typing import Any

from pydantic import BaseModel

from astra.llm.notes import AskBudget, AskBudgetSpent, PromptNotes
from astra.llm.protocol import Ask, ParseError, ProviderError, Reply, Teacher
from astra.records.base import compact_json, content_id
from astra.records.score import Rejection
from astra.records.world import PolicyRule, World, WorldShape
from astra.sandbox.protocol import Sandbox, SandboxError, SandboxLoadError, SandboxStatus
from astra.worlds import asks
from astra.worlds.agreement import agreement_fault, rule_cases
from astra.worlds.asks import (
    NOT_YET,
    RefusedPart,
    RowsReply,
    RulesReply,
    SchemaReply,
    ToolBody,
)
from astra.worlds.assembly import HOST_TOOL_NAMES, world_of
from astra.worlds.blame import ROWS, RULES, SCHEMA, PartFault, suspects, tool_part
from astra.worlds.config import WorldsConfig
from astra.worlds.proofs import WorldProof
from astra.worlds.replies import body_faults, rows_faults, rule_faults, schema_faults
from astra.worlds.soundness import WorldFault
from astra.worlds.subjects import WorldSubject

TOOLS_AN_ASK = 4
"""The most tools whose code one reply holds."""
MAKE_ROWS = "make_rows"
_MOST_FAULTS = 6
"""The most faults that the next ask for a part is told."""
_DETAIL_CHARS = 1_200
"""How much of a fault the next ask is told."""
_REFUSED_CHARS = 6_000
"""How much of a refused reply a rejection keeps."""
_FIRST_DAY = date(2026, 1, 12)
_NO_RULES = RulesReply(rules=[])
SharedFault = Callable[[World], WorldFault | None]
"""What a world shares with a benchmark suite; None: nothing."""


class TaughtWorld:
    """One subject on its way to a world: the parts that stand, and why others were refused."""

    def __init__(
        self,
        subject: WorldSubject,
        teacher: Teacher,
        judge: Teacher,
        sandbox: Sandbox,
        config: WorldsConfig,
        shared: SharedFault,
        openapi: str = "",
    ) -> None:
        budget = AskBudget(config.max_asks)
        self._notes = PromptNotes()
        self._teacher = self._notes.of(budget.of(teacher))
        self._judge = self._notes.of(budget.of(judge))
        self._subject, self._sandbox, self._config = subject, sandbox, config
        self._shared, self._openapi = shared, openapi
        self._shape = WorldShape.SERVICE if openapi else config.shape
        self._clock = _clock(subject, config.seed)
        self._schema: SchemaReply | None = None
        self._rules: RulesReply | None = None
        self._bodies: dict[str, ToolBody] = {}
        self._rows: RowsReply | None = None
        self._made: dict[str, Any] = {}
        self._refused: dict[str, RefusedPart] = {}
        self._tries: Counter[str] = Counter()
        self._unread: list[PartFault] = []
        self.checks: Counter[str] = Counter()

    async def outcomes(self) -> list[World | Rejection]:
        """The parts that were refused on the way, and the world; or, in its place, a last rejection
        that is final."""
        refused: list[Rejection] = []
        while True:
            try:
                faults = await self._round()
            except (AskBudgetSpent, ProviderError) as error:
                spent = isinstance(error, AskBudgetSpent)
                reason = "asks_spent" if spent else "provider_error"
                fault = WorldFault(reason, str(error)[:200])
                return [*refused, self._rejection("", fault, 0, final=True)]
            if not faults:
                checks = dict(sorted(self.checks.items()))
                return [*refused, self._world().model_copy(update={"checks": checks})]
            refused += self._take_back(faults)
            spent = [
                part for part, tries in self._tries.items() if tries >= self._config.inner_attempts
            ]
            if spent:
                last = max(at for at, one in enumerate(refused) if one.part in spent)
                fields = refused.pop(last).model_dump(exclude={"id", "final"})
                final = Rejection(**fields, final=True)
                return [*refused, final]

    async def _round(self) -> list[PartFault]:
        """Ask for the parts that are missing, check what is there as far as it goes; the faults of
        the first part that has any. None: the world is proved."""
        for part in (self._schema_round, self._rules_round, self._tools_round, self._rows_round):
            if faults := await part():
                return faults
        world = self._world()
        found = await asyncio.to_thread(self._proved, world)
        return found or await self._read_apart(world)

    async def _schema_round(self) -> list[PartFault]:
        if self._schema is None:
            ask = asks.schema_ask(self._subject, self._openapi, self._shape, *self._told(SCHEMA))
            self._schema = await self._asked(ask, SCHEMA)
        if self._schema is None:
            return self._unreadable()
        world = self._world()
        if faults := _of(SCHEMA, schema_faults(world)):
            return faults
        shared = self._shared(world)  # before anything is written for it
        return [PartFault((SCHEMA,), shared)] if shared else []

    async def _rules_round(self) -> list[PartFault]:
        if self._rules is None:
            ask = asks.rules_ask(self._known_schema, self._shape, *self._told(RULES))
            self._rules = await self._asked(ask, RULES)
        if self._rules is None:
            return self._unreadable()
        return _of(RULES, rule_faults(self._world()))

    async def _tools_round(self) -> list[PartFault]:
        """Every tool that has no body is asked for, a few at a time."""
        names = [tool.name for tool in self._known_schema.tools]
        wanted = [name for name in names if name not in self._bodies]
        groups = [wanted[at : at + TOOLS_AN_ASK] for at in range(0, len(wanted), TOOLS_AN_ASK)]
        await asyncio.gather(*map(self._ask_bodies, groups))
        # In the order of the tools, however long each answer took.
        if faults := sorted(
            self._unreadable(), key=lambda one: (_place(one, names), one.fault.detail)
        ):
            return faults
        return await asyncio.to_thread(self._bodies_checked)

    async def _ask_bodies(self, wanted: list[str]) -> None:
        assert self._rules is not None
        told = [self._refused.get(tool_part(name), NOT_YET) for name in wanted]
        refused = RefusedPart(
            tuple(dict.fromkeys(reason for one in told for reason in one.reasons)),
            [one.reply for one in told if one.reply] or None,
        )
        sample = max(self._tries[tool_part(name)] for name in wanted)
        ask = asks.tools_ask(self._known_schema, self._rules, wanted, sample, refused)
        reply = await self._asked(ask, *map(tool_part, wanted))
        if reply is None:
            return
        given = {body.name: body for body in reply.tools}
        for name in wanted:
            if name not in given:
                fault = WorldFault("missing_tool", f"{name}: the reply has {sorted(given)}")
                self._unread.append(PartFault((tool_part(name),), fault))
            elif why := given[name].impossible:
                fault = WorldFault("impossible", f"{name}: {why[:_DETAIL_CHARS]}")
                self._unread.append(PartFault((SCHEMA,), fault))
            else:
                self._bodies[name] = given[name]

    def _bodies_checked(self) -> list[PartFault]:
        world = self._world()
        found: list[PartFault] = []
        for tool in world.tools:
            name = tool.tool.name
            if name in HOST_TOOL_NAMES:
                continue
            faults = _of(tool_part(name), body_faults(world, tool))
            if not faults and (why := self._load_fault(name, tool.code)):
                faults = [PartFault((tool_part(name),), WorldFault("load_error", why))]
            found += faults
        return found

    def _load_fault(self, name: str, code: str) -> str:
        """Why a source does not load; empty where it does."""
        try:
            self._sandbox.session({name: code}).close()
        except SandboxLoadError as error:
            return f"{name}: {error.reason}"
        return ""

    async def _rows_round(self) -> list[PartFault]:
        assert self._rules is not None
        if self._rows is None:
            names = [tool.name for tool in self._known_schema.tools]  # not as answers came
            codes = {name: self._bodies[name].code for name in names}
            ask = asks.rows_ask(
                self._known_schema, self._rules, codes, self._shape, self._clock,
                *self._told(ROWS),
            )  # fmt: skip
            self._rows = await self._asked(ask, ROWS)
        if self._rows is None:
            return self._unreadable()
        made = await asyncio.to_thread(self._run_rows, self._rows.code)
        if isinstance(made, WorldFault):
            return [PartFault((ROWS,), made)]
        self._made = made if isinstance(made, dict) else {}
        try:
            world = self._world()
        except ValueError as error:
            return [PartFault((ROWS,), WorldFault("bad_rows", str(error)[:_DETAIL_CHARS]))]
        return _of(ROWS, rows_faults(world, made))

    def _run_rows(self, code: str) -> Any:
        """What the program makes, or the fault in it: two sessions have to make the same."""
        seed = int(content_id(["rows", self._subject.name, self._config.seed]), 16) % 1_000_000
        results: list[Any] = []
        for _ in range(2):
            try:
                session = self._sandbox.session({MAKE_ROWS: code})
            except SandboxLoadError as error:
                return WorldFault("load_error", f"{MAKE_ROWS}: {error.reason}")
            result = session.call(MAKE_ROWS, {"clock": self._clock, "seed": seed})
            session.close()
            if result.status is SandboxStatus.INFRA:
                raise SandboxError(
                    f"world {self._subject.name}: {MAKE_ROWS} was not run: {result.error}; see "
                    "`astra doctor`, then run the stage again"
                )
            if result.status is not SandboxStatus.OK:
                why = result.error[:_DETAIL_CHARS]
                return WorldFault("bad_rows", f"{MAKE_ROWS} ({result.status}): {why}")
            results.append(result.value)
        if results[0] != results[1]:
            return WorldFault("not_repeatable", f"{MAKE_ROWS} makes other rows each time")
        return results[0]

    def _proved(self, world: World) -> list[PartFault]:
        """The faults that the proofs of worlds find."""
        proof = WorldProof(world, self._sandbox, self._config.proofs)
        shared = self._shared(world)
        found = [shared] if shared else list(islice(proof.faults(), _MOST_FAULTS))
        self.checks = proof.checks
        return suspects(world, found)

    async def _read_apart(self, world: World) -> list[PartFault]:
        """The rules whose sentences are decided otherwise than their expressions."""
        found = await asyncio.gather(*(self._rule_read(world, rule) for rule in world.rules))
        self.checks["agreed_cases"] = self._config.agreement_cases * found.count(None)
        return suspects(world, [fault for fault in found if fault is not None])

    async def _rule_read(self, world: World, rule: PolicyRule) -> WorldFault | None:
        count = self._config.agreement_cases
        cases = await asyncio.to_thread(rule_cases, world, rule, count)
        reply = None
        if len(cases) == count and len({case.allowed for case in cases}) == 2:
            tools = [tool.tool.view() for tool in world.tools if tool.tool.name in rule.tools]
            tables = [table.model_dump(mode="json") for table in self._known_schema.tables]
            shown = [case.shown(number) for number, case in enumerate(cases, start=1)]
            ask = asks.decide_ask(rule.text, tables, tools, self._clock, shown)
            try:
                reply = await self._judge.ask(ask)
            except ParseError as error:
                return WorldFault("undecided", f"{rule.id}: {str(error)[:200]}")
        return agreement_fault(rule, cases, count, reply)

    @property
    def _known_schema(self) -> SchemaReply:
        assert self._schema is not None
        return self._schema

    def _world(self) -> World:
        """The world of the parts that are there."""
        return world_of(
            self._subject, self._known_schema, self._rules or _NO_RULES, self._bodies, self._made,
            self._shape, self._clock, self._notes.prompt_hash,
        )  # fmt: skip

    def _told(self, part: str) -> tuple[int, RefusedPart]:
        """The sample of a part's next ask, and what it is told of the last reply."""
        return self._tries[part], self._refused.get(part, NOT_YET)

    async def _asked(self, ask: Ask[Reply], *parts: str) -> Reply | None:
        """The reply; None where there is none that can be read, which is noted for the parts."""
        try:
            return await self._teacher.ask(ask)
        except ParseError as error:
            fault = WorldFault("parse_error", str(error)[:_DETAIL_CHARS])
            self._unread += [PartFault((part,), fault) for part in parts]
            return None

    def _unreadable(self) -> list[PartFault]:
        found, self._unread = self._unread, []
        return found

    def _take_back(self, faults: list[PartFault]) -> Iterator[Rejection]:
        """Drop every part that a fault may lie in, with what its next ask is told."""
        told: dict[str, list[WorldFault]] = defaultdict(list)
        for found in faults:
            for part in found.parts:
                told[part].append(found.fault)
        for part, reasons in told.items():
            reply = self._drop(part)
            given = reply and reply.model_dump(
                mode="json", exclude={"analysis"}, exclude_defaults=True
            )
            lines = [" ".join(f"{fault.reason}: {fault.detail}".split())[:_DETAIL_CHARS]
                     for fault in reasons]  # fmt: skip
            self._refused[part] = RefusedPart(tuple(lines[:_MOST_FAULTS]), given)
            self._tries[part] += 1
            for fault in reasons[:_MOST_FAULTS]:
                text = compact_json(given)[:_REFUSED_CHARS] if given else ""
                told_fault = WorldFault(fault.reason, f"{fault.detail}\n{text}".strip())
                yield self._rejection(part, told_fault, self._tries[part] - 1, final=False)

    def _drop(self, part: str) -> BaseModel | None:
        """Take a part back and return it."""
        dropped: BaseModel | None
        if part == SCHEMA:
            dropped, self._schema = self._schema, None
        elif part == RULES:
            dropped, self._rules = self._rules, None
        elif part == ROWS:
            dropped, self._rows, self._made = self._rows, None, {}
        else:
            dropped = self._bodies.pop(part.removeprefix(tool_part("")), None)
        return dropped

    def _rejection(self, part: str, fault: WorldFault, attempt: int, final: bool) -> Rejection:
        return Rejection(
            item=self._subject.name, part=part, reason=fault.reason, detail=fault.detail,
            attempt=attempt, final=final,
        )  # fmt: skip


def _of(part: str, faults: Iterator[WorldFault]) -> list[PartFault]:
    return [PartFault((part,), fault) for fault in faults]


def _place(found: PartFault, names: list[str]) -> tuple[str, ...]:
    """What a fault is sorted by: the first of the tools that it is about."""
    return tuple(f"{at:03d}" for at, name in enumerate(names) if tool_part(name) in found.parts)


def _clock(subject: WorldSubject, seed: int) -> str:
    """Now, in the world of a subject."""
    rng = random.Random(int(content_id(["clock", subject.name, seed]), 16))
    day = _FIRST_DAY + timedelta(days=rng.randint(0, 330))
    return f"{day.isoformat()}T{rng.randint(8, 17):02d}:{rng.choice((0, 15, 30, 45)):02d}:00"
