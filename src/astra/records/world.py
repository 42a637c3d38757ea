"""Persistent worlds (stages ``worlds``, ``goals``): tables, rules, tools, goals and traces.

A world holds everything that many goals share. A goal names its world by id, says what the user
wants, what must have become of the tables, and what the agent must have said, read and respected.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from astra.records.base import Frozen, Record, Sparse
from astra.records.qa import Answer, QuestionKind, Split
from astra.records.state import FieldClass, Row, Tables, Write, WriteAction
from astra.records.tool import Tool

Expr = Any
"""A condition or value as a JSON tree; ``arena/expressions.py`` says what it may hold."""


class ColumnType(StrEnum):
    """What a cell holds; every type but ID admits null where the column is ``optional``."""

    ID = "id"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"  # ISO 8601
    ENUM = "enum"
    JSON = "json"  # a list or an object, compared by value


class WorldColumn(Sparse):
    """One column of a table."""

    sparse: ClassVar[tuple[str, ...]] = ("values", "references", "optional", "unit")
    name: str
    type: ColumnType
    values: tuple[str, ...] = ()
    """What an ENUM may be."""
    references: str = ""
    """The table whose key the cells hold; empty for none."""
    optional: bool = False
    unit: str = ""


class WorldTable(Frozen):
    """The shape of one table. ``key`` names the column that tells its rows apart."""

    name: str
    key: str
    columns: tuple[WorldColumn, ...]
    fields: dict[str, FieldClass] = {}
    """Columns whose end state is not compared exactly."""


class ToolRole(StrEnum):
    """What a tool of a world is for."""

    FIND = "find"  # one row by what its owner knows; authenticates where the row is a party
    GET = "get"  # one row by key
    LIST = "list"  # rows of an owner
    SEARCH = "search"  # rows by filters, in pages
    QUOTE = "quote"  # what a write would cost or whether it would be possible
    CREATE = "create"
    UPDATE = "update"
    CANCEL = "cancel"
    EXTEND = "extend"
    TRANSFER = "transfer"
    PAY = "pay"
    REFUND = "refund"
    DECLINE = "decline"  # ends a request that may not or cannot be met
    HAND_OVER = "hand_over"  # gives a request to a person


class Change(Sparse):
    """One write of a tool, as expressions over its arguments and the rows before the call."""

    sparse: ClassVar[tuple[str, ...]] = ("key", "parts", "binds", "values", "when")
    action: WriteAction
    table: str
    key: Expr = None
    """The row that is changed or deleted; none for a new one, whose key is made of ``parts``."""
    parts: tuple[Expr, ...] = ()
    """What ``new_id`` is given besides the table."""
    binds: str = ""
    """The argument by which later changes refer to the key of the new row."""
    values: dict[str, Expr] = {}
    """The cells that are set: all but the key where the row is new."""
    when: Expr = None
    """The change happens only where this holds; None: always."""


class WorldTool(Frozen):
    """A tool of a world: its document, its code and what it touches."""

    tool: Tool
    code: str
    """Python source defining a function named ``tool.name``: its first parameter is ``world``
    (``tables``, ``clock``, ``new_id(table, *parts)``), the others are the document's."""
    role: ToolRole
    reads: tuple[str, ...]
    """Tables whose rows it looks at."""
    writes: tuple[str, ...] = ()
    """Tables whose rows it may change."""
    shows: dict[str, tuple[str, ...]] = {}
    """Columns by table that its result may hold: what an agent can learn from it."""
    changes: tuple[Change, ...] = ()
    """What a successful call writes, said once more apart from the code."""


class Enforced(StrEnum):
    """Who refuses a call that breaks a rule."""

    TOOL = "tool"  # the tool does: the call fails
    POLICY = "policy"  # nobody does: the agent has to know


class PolicyRule(Sparse):
    """What must hold when a tool is called, as one expression from which text, guard and checker
    come: wherever ``when`` holds, ``require`` must."""

    sparse: ClassVar[tuple[str, ...]] = ("when",)
    id: str
    text: str
    """The sentence of the policy."""
    tools: tuple[str, ...]
    """The tools it governs."""
    when: Expr = None
    """None: always."""
    require: Expr
    enforced: Enforced
    reason: str
    """The code of ``decline_request`` that names it, and of the tool's refusal."""


class Invariant(Frozen):
    """What holds of every row of a table (scope ``row``), whatever tools do."""

    table: str
    text: str
    holds: Expr


class WorldShape(StrEnum):
    """How much of a domain a world has."""

    FULL = "full"
    SMALL = "small"  # three tables, six tools, eighty words of policy: for small policies
    SERVICE = "service"  # as large as the service is that it stands for


class World(Record):
    """A domain with its rows: what every goal in it starts from."""

    identity: ClassVar[tuple[str, ...]] = ("domain", "split", "variant", "tables", "rows", "tools",
                                           "rules", "clock")  # fmt: skip
    domain: str
    title: str
    split: Split
    variant: int
    """Which of the domain's worlds it is."""
    shape: WorldShape
    language: str
    clock: str
    """ISO 8601; stands still."""
    tables: tuple[WorldTable, ...]
    rows: Tables
    tools: tuple[WorldTool, ...]
    rules: tuple[PolicyRule, ...]
    invariants: tuple[Invariant, ...]
    policy: str
    """What an agent is told: the domain, the rules' sentences, and how to decline or hand over."""
    topics: dict[str, str]
    """What is for a person: codes of ``hand_over``, and the subject of each."""
    refusals: dict[str, str]
    """Codes of ``decline_request`` that are no rule's, and when each is right."""
    checks: dict[str, int]
    """How often each proof was made."""
    prompt_hash: str = ""
    """Hashes of the prompt templates whose answers it holds, joined by ``+``."""


OUTCOMES = "outcomes"
"""The table of every world in which declining and handing over leave a row: columns
``outcome_id``, ``outcome`` (declined or handed_over) and ``reason``."""


class OutcomeKind(StrEnum):
    DONE = "done"
    DECLINED = "declined"
    HANDED_OVER = "handed_over"


class GoalOutcome(Frozen):
    """How a request must end. ``reason`` is the code for one that is not done."""

    kind: OutcomeKind
    reason: str = ""


class UserAct(StrEnum):
    """What a turn of the user does."""

    OPENING = "opening"
    ANSWER = "answer"  # gives what was asked for
    CONFIRM = "confirm"  # agrees to what the agent proposed
    CHOOSE = "choose"  # picks one of the options offered
    CHANGE = "change"  # wants something else from now on
    REQUEST = "request"  # the next of several wishes
    TOOL = "tool"  # hands the agent a tool that was missing
    REJECT = "reject"  # does not want what the agent proposed or offered
    UNKNOWN = "unknown"  # does not know what was asked for
    NUDGE = "nudge"  # says nothing new: what the agent said leads nowhere
    CLOSE = "close"  # has what they wanted, or knows why not, and ends the conversation
    LEAVE = "leave"  # gives up: patience or turns are used up


class AgentAct(StrEnum):
    """What a message of the agent asks of the user. Of several, the first of this order counts."""

    PROPOSE = "propose"  # says which change it is going to make, or asks whether it may
    OFFER = "offer"  # puts two or more options before the user, who is to pick one
    ASK = "ask"  # asks for something that only the user can tell
    REFUSE = "refuse"  # says that it cannot, may not or will not do what is wanted
    REPORT = "report"  # says what was done, or tells what was asked for
    OTHER = "other"  # none of these: a greeting, thanks, "one moment", nothing at all


class EventKind(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    CALL = "call"


class ValueSource(StrEnum):
    """Where the value of an argument can be learned before the call."""

    USER = "user"  # a turn of the user
    RESULT = "result"  # the result of an earlier call
    DOCUMENT = "document"  # the policy or the tool's document


class Provenance(Frozen):
    """Where an argument's value stands: the event that holds it; -1 for documents."""

    source: ValueSource
    at: int = -1


class RowChange(Frozen):
    """What became of one row: what it is now, or None where it is gone."""

    table: str
    key: str
    row: Row | None


class TraceEvent(Sparse):
    """One event of an episode: a turn of the user, a message of the agent, or an executed call."""

    sparse: ClassVar[tuple[str, ...]] = ("text", "act", "facts", "adds_tools", "tool", "arguments",
                                         "provenance", "failed", "result", "changes")  # fmt: skip
    kind: EventKind
    text: str = ""
    act: UserAct | None = None
    facts: dict[str, Any] = {}
    """What a turn of the user discloses, by slot."""
    adds_tools: tuple[str, ...] = ()
    tool: str = ""
    arguments: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    failed: str = ""
    """Why the call failed; empty where it did not."""
    result: Any = None
    """What the call returned. Goals are stored without: executing them gives it."""
    changes: tuple[RowChange, ...] = ()
    """What the call made of the tables, by the host's account; goals are stored without."""


class GoalTrait(StrEnum):
    """What makes a goal harder than its calls; ours (reference: worlds with a user)."""

    IMPLICIT = "implicit"  # a row is named by what it is, not by its key
    CHOICE = "choice"  # the wording fits several rows, a fact of the user's one
    CHANGES_MIND = "changes_mind"
    MULTI = "multi"  # several wishes
    CROSS_TURN = "cross_turn"  # an argument stands in an earlier turn than the last
    LATE_TOOL = "late_tool"  # a needed tool comes while the conversation goes on


class ReadProof(Frozen):
    """A cell that the agent must have seen in the result of a successful call."""

    table: str
    key: str
    column: str


class RowReference(Sparse):
    """How the user's words name a row that a call takes: of the rows of one table that belong to
    the party (of all rows where they belong to nobody), the one with these cells."""

    sparse: ClassVar[tuple[str, ...]] = ("where", "least", "most")
    table: str
    key: str
    """The row that is meant."""
    at: int
    """The event of the trace whose call takes it."""
    argument: str
    where: Row = {}
    """Cells that it has."""
    least: str = ""
    """The column whose cell is the least in the row meant, among these rows; empty: not said."""
    most: str = ""
    """The column whose cell is the greatest, likewise."""


class Say(Frozen):
    """A value that the agent must tell the user, after it could have read it."""

    answer: Answer
    read: tuple[ReadProof, ...]
    """What must have been seen before it counts."""


class UserAsk(Sparse):
    """One thing asked for, in which words, and what these are: a call, a cell to tell, a topic."""

    sparse: ClassVar[tuple[str, ...]] = ("tool", "arguments", "cell", "topic")
    at: int
    """The turn of the user that asks."""
    text: str
    """The part of the turn that does."""
    tool: str = ""
    arguments: Row = {}
    cell: ReadProof | None = None
    topic: str = ""
    """A code of ``World.topics``."""


class FactTime(StrEnum):
    """When a user tells a fact."""

    OPENING = "opening"  # says it at the start, and again when asked
    ASKED = "asked"  # only when asked for it
    CHANGE = "change"  # once they have changed their mind
    REQUEST = "request"  # with the wish that it belongs to, and again when asked


class UserFact(Frozen):
    """Something that the user knows and an agent may need."""

    slot: str
    """A tool's parameter (``days``), a column (``loans.title``) or own data (``own email``);
    a number tells those of several wishes apart (``days 2``)."""
    value: Any
    when: FactTime


class UserTurn(Sparse):
    """One thing that the user can say, in words made beforehand."""

    sparse: ClassVar[tuple[str, ...]] = ("slots", "adds_tools", "after", "changed")
    act: UserAct
    slots: tuple[str, ...] = ()
    """The facts that it discloses, all of them in each wording."""
    wordings: tuple[str, ...]
    """Ways to say it; which one is drawn depends on the arena, the act and how often it came."""
    adds_tools: tuple[str, ...] = ()
    after: int = 0
    """The calls that write which the goal's trace has before a REQUEST."""
    changed: bool = False
    """Whether an ANSWER gives the value that holds once the user has changed their mind."""


class UserScript(Frozen):
    """A user as a finite automaton (``arena/user.py``): what they know, want and say."""

    facts: tuple[UserFact, ...]
    turns: tuple[UserTurn, ...]
    """ANSWER: one a slot, two where its value changes, none where CHOOSE gives it. CHOOSE, CHANGE,
    TOOL: one each at most. REQUEST: in order. All others: one each, which disclose nothing."""
    patience: int
    """So many messages that lead nowhere are borne; at the next the user leaves."""
    most_turns: int  # of the user, the opening included; then the user leaves


class WorldGoal(Sparse):
    """What a user wants of a world, and how it is told whether they got it."""

    sparse: ClassVar[tuple[str, ...]] = ("traits", "effect", "say", "must_read", "violates",
                                         "withheld", "candidates", "references", "wish",
                                         "asks", "script")  # fmt: skip
    kind: QuestionKind
    traits: tuple[GoalTrait, ...] = ()
    needs_user: bool = False
    """Whether it can only be reached by talking with the user on the way."""
    trace: tuple[TraceEvent, ...]
    """A way to reach it: user turns, messages and calls in order; the first is the opening."""
    effect: tuple[Write, ...] = ()
    """What must become of the tables, all of it and nothing else; ``outcomes`` stands apart."""
    outcome: GoalOutcome
    say: tuple[Say, ...] = ()
    must_read: tuple[ReadProof, ...] = ()
    violates: str = ""
    """The rule that forbids the wish."""
    withheld: tuple[str, ...] = ()
    """Tools of the world that are not offered at the start."""
    candidates: tuple[Row, ...] = ()
    """The rows that the wording fits, the one that is meant first."""
    references: tuple[RowReference, ...] = ()
    """Rows that are named by what they are, not by their keys."""
    wish: tuple[TraceEvent, ...] = ()
    """Calls that the words amount to and that must not be made: declined, or given up."""
    asks: tuple[UserAsk, ...] = ()
    """All that the words ask for, in their order; none where nobody can take them apart."""
    script: UserScript | None = None
    """The user who talks; None: nobody answers, the first message without a call is the last."""
