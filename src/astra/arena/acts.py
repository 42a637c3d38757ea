"""What a message of the agent asks of the user, read by rules.

A message is taken apart into sentences, each of which does one thing; of the acts of all of them
the first in the order of ``AgentAct`` counts. What the message repeats of the user's own words, its
pleasantries and what looks like thoughts or calls do nothing. In doubt a message is OTHER: that
discloses nothing and ends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from astra.arena.agreements import is_of_other, options_of, verbs_of
from astra.arena.asked_slots import Slot, asked_for, offered_slots, proposed_slots, says, slots_of
from astra.arena.claims import name_stems, sentences, stems
from astra.arena.statements import dates_in, numbers_in, places_of
from astra.arena.traces import is_success, proposal
from astra.records.world import (
    AgentAct,
    EventKind,
    FactTime,
    OutcomeKind,
    ToolRole,
    TraceEvent,
    UserAct,
    World,
    WorldColumn,
    WorldGoal,
    WorldTool,
)

MOST_CHARACTERS = 8_000
"""So much of a message is read, half of it from either end; no user reads more."""
_MY = re.compile(r"\bmy (?=(\w[^.?!]{0,30}))")
_MINE = ("email", "name", "full name", "postcode", "account", "legal name", "reason")
"""What users call their own, besides rows."""
_ECHO = 4
"""A sentence of so many words that the user has said as well is theirs."""
_SHORT = 6
"""A question of so few words needs no verb: the number of days?"""
_PLEASE = re.compile(r"^(?:your|the)\b.*\bplease\W*$")
_UNSPOKEN = (
    re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S | re.I),
    re.compile(r"<tool_?call>.*?(?:</tool_?call>|\Z)", re.S | re.I),
    re.compile(r"```.*?(?:```|\Z)", re.S),
    re.compile(r"^[ \t]*[{\[][^\n]*[}\]][ \t]*$", re.M),
    re.compile(r"<\|[^|>]{0,40}\|>"),
)
"""What is not said to the user: thoughts, calls, code, JSON, marks of a chat template."""
_SHORTER = ((re.compile("[‘’ʼ]"), "'"), (re.compile(r"\be\.\s?g\.", re.I), "for example"),
            (re.compile(r"\bi\.\s?e\.", re.I), "that is"),
            (re.compile(r"^(\s*(?:\*\*)?)\d{1,2}[.)]\s+", re.M), r"- \1"))  # fmt: skip

_SKIPPED = (
    r"(?:(?:now|then|also|just|please|next|first|again|still|gladly|immediately|go ahead and|go ahead with|"
    r"proceed (?:to|with|by)|start by|begin by|need to|have to|be able to|to|and|be|try to|"
    r"go on to|get|the|your|this|that|of|with|right away|hereby|happily|officially) )*"
)
_ANNOUNCED = re.compile(
    rf"\b(?:(?:i|we)(?: will|'ll| shall| am going to| are going to|'m going to|'re going to| am "
    rf"about to|'m about to| would like to|'d like to| plan to| intend to| am ready to|'m ready to|"
    rf" am now|'m now| am|'m| are|'re)|let me|let us|let's|going to) {_SKIPPED}([a-z]+)"
)
_MAY_I = re.compile(
    rf"\b(?:(?:shall|should|may|can|could|might|must) (?:i|we)|(?:want|like|prefer|need) (?:for )?"
    rf"(?:me|us) to|(?:ok|okay|fine|alright|all right|good) (?:with you )?(?:if|that|for me to)"
    rf"(?: i)?|mind if i|(?:permission|approval|consent|confirmation|go-ahead) (?:to|for)|"
    rf"(?:do|would) you (?:still |really |also )?(?:want|like|wish) to|(?:^|that |so,? |confirm:? |, |: )you"
    rf"(?: want|'d like| would like| wish|r request is|r intention is|'re asking(?: me)?| are "
    rf"asking(?: me)?) to|"
    rf"(?:ready|sure) (?:(?:that )?you want )?to) {_SKIPPED}([a-z]+)"
)
_AGREE = re.compile(
    r"\b(?:is|are|does|do) (?:that|this|it|these|those|everything|all of (?:this|that)|the above|"
    r"the details|these details)\b.{0,40}"
    r"\b(?:correct|right|ok|okay|fine|alright|accurate|work|look|sound|good|acceptable|suit)\b|"
    r"\b(?:shall|should|may) (?:i|we)\W*\?|\bdo you (?:agree|accept|consent|approve|confirm)\b|"
    r"\b(?:proceed|go ahead|continue)\b[^.?!]{0,60}\?|\b(?:correct|right|agreed|okay|ok|yes)\W*\?|"
    r"\b(?:reply|respond|answer|say|type|write)\b.{0,20}\byes\b|\byes\W{0,4}(?:/|or)\W{0,4}no\b|"
    r"\b(?:please|kindly|could you|can you|would you|you to|to|you)(?: please| kindly| just)* "
    r"(?:confirm|approve|authori[sz]e)\b|^confirm\b|\bawait(?:ing)? your (?:confirmation|approval)|"
    r"\bneed your (?:explicit |final )?(?:confirmation|approval|consent|permission|agreement|"
    r"go-ahead)|\blet me know if (?:that|this|it|you(?:'d| would) like (?:me )?to (?:proceed|go))"
)
_CONFIRM_VALUE = re.compile(
    r"\b(?:confirm|verify|double-check)(?: with me)? (?:me )?(?:which|what|when|how|whether you have|"
    r"who|your|if you have|the (?!details|change|above|request|following|cancel|exten|renew|"
    r"booking\b.{0,20}\?))"
)
_IDLE = frozenset(
    "access again ask assist be check clarify come confirm do double find follow gather get give "
    "go guide have hear help inform keep know let like locate look need note offer provide pull "
    "query read recheck retrieve review search see share show start take tell try understand use "
    "verify wait walk want work explain identify inquire consult fetch list answer connect".split()
)
"""What an agent does that changes nothing."""
_CHANGING = stems(
    "renew extend prolong lengthen postpone cancel annul void withdraw revoke remove delete drop "
    "release create make book reserve add open register order place set arrange schedule change "
    "update adjust modify record mark move reschedule unlock reinstate reactivate finish close pay "
    "settle charge collect refund credit transfer reassign switch proceed process submit finalise "
    "finalize complete apply execute perform initiate issue increase reduce decrease enrol enroll "
    "sign end terminate restore file log swap call give go"
) | stems(
    "cancelling canceling extension cancellation renewal prolongation booking reservation payment "
    "modification termination enrolment removal withdrawal adjustment"
)  # fmt: skip
_WAITING = re.compile(
    r"\b(?:once|after|as soon as|when|if|until|unless) (?:i (?:have|know|receive|get|verify)|you "
    r"(?:have |can |could |'ve )?(?:provide|tell|give|let|share|specify|choose|pick|select|send|"
    r"supply|identify|verif))|\b(?:so (?:that )?(?:i|we) can|in order (?:for me )?to|before i (?:can"
    r"|proceed|do|make|go))\b"
)
"""What is only going to be done when something else is known."""
_NO_OPTIONS = re.compile(
    r",? or (?:not|no\b|is there|are there|do you (?:have|need|want (?:something|anything|to change"
    r"|me to change|any))|would you (?:like|prefer) (?:something|anything|to (?:change|make|adjust"
    r"|wait|keep|leave|stop|hold))|if (?:you|there)|let me know|should i (?:wait|stop|hold|leave)|"
    r"(?:leave|keep) (?:it|things|everything)|anything|something|any other|more|so\b|other)"
)
_PICK = re.compile(
    r"\bwhich\b|\bprefer\b|\bpreference\b|\bchoose\b|\bchoice\b|\bpick\b|\bselect\b|"
    r"\boptions?\b|\bdo you mean\b|\bdid you mean\b|\bone of (?:the|these)\b|\bwhat would you like\b"
    r"|\bwhat do you want\b|\bhow would you like to (?:proceed|continue)\b|\balternatively\b"
)
_OR = re.compile(r"\bor\b|\balternatively\b")
_GIVE = re.compile(r"\b(?:provide|tell|give|share|send|supply|specify|enter|state|what(?:'s| is| are)"
                   r"(?: your)?|have your|know your|need your|with your|by (?:your )?)\b")  # fmt: skip
_CLOSING = re.compile(
    r"\b(?:anything|something|any(?:thing)? (?:other|more|further)|what) (?:else|more|further)\b"
    r"(?!.{0,30}\b(?:know|tell|need from))|\bany (?:other|further|more|additional) (?:question|"
    r"request|assistance|help|concern|issue|thing|change|matter)s?\b|"
    r"\b(?:how|what) (?:else |more )?(?:can|may|could|might|would) (?:i|we) (?:help|assist|do for|"
    r"be of)|\blet (?:me|us) know if (?:you(?:'d| would)? (?:need|have|like (?:any|to know)|want any"
    r"|require|run)|there(?:'s| is)|i can|anything|any)|\bhow (?:can|may) i be of|"
    r"\b(?:have|need|if) (?:you have )?(?:any )?(?:questions|concerns|help|assistance)\b|"
    r"\bfeel free\b|\bdon't hesitate\b|\bhow are you\b|\bcan i (?:help|assist)\b|"
    r"\bmay i (?:help|assist)\b|\bis there any ?(?:thing|other)\b"
)
_ORDERED = re.compile(
    r"\b(?:please|kindly|could you|can you|would you|will you|you(?:'ll)? need to|i need you to|"
    r"i'd need you to|i ask you to|may i ask you to|you could|you can|you to|if you (?:could|can|"
    r"would))(?: please| kindly| also| first| just| either| now)* (?:provide|tell|give|specify|share|"
    r"let (?:me|us) know|enter|supply|state|confirm|indicate|choose|pick|select|reply|respond|send|"
    r"clarify|verify|identify|mention|describe|explain|say|type|name|elaborate|check|advise|inform|"
    r"help me (?:with|by|identify|understand)|include|be more specific|repeat|double-check)\b"
)
_NEEDED = re.compile(
    r"\b(?:i|we)(?: will|'ll| would|'d| do| also| still| just| first| only| may)* "
    r"(?:need|require|am missing|are missing|want|like)(?: to)?(?: (?:know|ask|have|first|just|also|"
    r"confirm|verify|understand|a|an|some|one|few|two|more|bit|of|further|additional|the following|"
    r"following|from you|by|for|on|until|with))* (?:(?:two|three|few|couple of) (?:things|details)|your|the|which|what|how|when|why|whether|where|who|information|detail|"
    r"details|clarification|from you|for you to|following|you to (?:tell|provide|give|specify|"
    r"choose|confirm|share|pick|clarify|verify))|'m missing (?:the|your|a|some)|"
    r"\blet (?:me|us) know (?:which|what|how|when|your|the|who|where|whether|why)\b|"
    r"\bmay i (?:have|ask|know|get)\b|\b(?:can|could) i (?:have|get|ask|also get|please have)\b|"
    r"^(?:provide|specify|enter|tell me|give me|share|choose|select|pick|confirm (?:your|the|which"
    r"|what|how))\b|\bneed\b[^.?!]{0,40}:$|\b(?:is|are) (?:needed|required|missing)\b|\bi (?:was|am|'m) wondering\b"
)
_QUESTION = re.compile(
    r"\b(?:is|are|was|were|do|does|did|can|could|shall|should|may|might|will|would|have|has|which|"
    r"what|when|who|whose|how|where|why|what's|for how|by how|for which|on which|under which)\b"
)
_REFUSED = re.compile(
    r"\b(?:(?:i|we)(?:'m| am| are|'re)?(?: (?:really|so|very|currently|simply|therefore|also|"
    r"unfortunately|still|afraid(?: that)?|sorry,? but i))* (?:can't|cannot|can not|could not|"
    r"couldn't|won't|will not|am not able|'m not able|not able|unable|don't have|do not have|lack|"
    r"must (?:decline|refuse|deny)|have to (?:decline|refuse|deny|reject)|have (?:declined|refused)|"
    r"not (?:allowed|permitted|authori[sz]ed)|decline|declined|refuse|refused|may not|"
    r"are not able|had to decline))\b|\bunable to\b|\b(?:not|n't) (?:be )?(?:possible|allowed|"
    r"permitted|available|eligible|supported|offered|something (?:i|we) can)\b|\bimpossible\b|"
    r"\bunfortunately\b|\b(?:cannot|can't|could not|couldn't|may not|won't) be\b|\bnot be able\b|"
    r"\b(?:against|violates?|outside|beyond|not within|prohibited by|forbidden by) (?:the |our |my )?"
    r"(?:\w+ )?(?:polic|rules?|scope|abilit|capabilit)|\b(?:policy|rules?) (?:do not|don't|does not|doesn't|forbids|"
    r"prohibits|prevents)|\b(?:has been|have been|had been|was|were|is) (?:declined|refused|denied|rejected)\b|"
    r"\bi(?:'m| am) (?:sorry|afraid)\b.{0,30}\bbut\b|\bnone of (?:my|the) tools\b|\bcan only (?:help|assist)\b|\bno (?:tool|way|option|function|means) (?:to|"
    r"for|that|of)\b|\bmust decline\b|\bturn (?:this|it|that|you|your request|down)\b.{0,20}\bdown\b|"
    r"\b(?:isn't|is not|not) (?:a reason|among|one of)\b|\bthere (?:is|are|was|were) no\b|\bno \w+ (?:was|were) found\b"
)
_HANDED = re.compile(
    r"\b(?:hand|handed|handing|pass|passed|passing|transfer|transferred|transferring|escalat\w*|"
    r"forward|forwarded|forwarding|refer|referred|referring|connect|connected|connecting|"
    r"transferr?al|route|routed)\b.{0,60}\b(?:colleague|human|agent|person|specialist|team|staff|"
    r"supervisor|representative|manager|department|someone|support)\b|"
    r"\b(?:colleague|specialist|team member|representative|human agent|human)s? (?:is going to|will|"
    r"is going|can|shall|would)\b|\bescalat(?:e|ed|ing)\b|\btransfer(?:red|ring)? you\b|\bhand(?:ed|ing)? (?:this|it|you|your)\b.{0,30}"
    r"\bover\b|\bcontact (?:the|our|customer|a) (?:\w+ )?(?:support|staff|team|service|desk|office)\b"
)
_DONE = re.compile(
    r"\b(?:has|have|had|'ve|'s|was|were|is|are|is now|are now)(?: now| been| already| just| also| "
    r"successfully| all| gone ahead and)* (\w+?(?:ed|en|id|ut|et|ne|lt|un|old|oved))\b|"
    r"\bsuccess(?:ful|fully)?\b|\b(?:all )?done\b|\bcompleted?\b|\ball set\b|\bi (\w+ed)\b|"
    r"\btaken care of\b"
)
_TOLD = re.compile(
    r"\b(?:is|are|was|were|has|have|had|costs?|shows?|found|see|there's|it's|that's|stands?|remains?|"
    r"starts?|ends?|falls?|returns?|here (?:is|are)|here's|means|expires?|belongs?|amounts?|"
    r"contains?|includes?|owe)\b"
)
_CHATTER = re.compile(
    r"^\W*(?:hello|hi|hey|thank(?:s| you)|sure|certainly|of course|great|ok|okay|understood|got it|"
    r"no problem|absolutely|good (?:morning|afternoon|evening|day)|you're welcome|my pleasure|"
    r"welcome|sorry|i apologi[sz]e|i(?:'m| am) (?:happy|glad|here|sorry|ready|an?\b)|have a|goodbye|bye|"
    r"one moment|just a moment|please (?:wait|hold)|hold on|perfect|i understand|i see\b|"
    r"take care|alright|noted|apologies)\b"
)
_NO_CHANGE = re.compile(r"\bmake (?:sure|certain|a note)\b|\bupdate you\b|\bgive you\b|\bplace you\b|"
                        r"\bopen (?:up )?your\b|\bprocess(?:ing)? (?:that|this|your) (?:query|"
                        r"question)\b|\bgo (?:through|over|back)\b")  # fmt: skip
_WH = re.compile(r"\b(?:which|what|when|how|why|who|where|whose)\b")
_WISH = re.compile(r"\byou(?: want|'d like| would like| wish|'re asking| are asking)\b(?! to know)")
_IF_WANTED = re.compile(r"\blet me know\b|\bconfirm\b|\bjust say\b|\bplease (?:say|reply)\b|"
                        r"\btell me if\b")  # fmt: skip
_EITHER = re.compile(r"\beither\b.{1,300}\bor\b|\boption (?:1|a|one)\b.*\boption (?:2|b|two)\b|"
                     r"(?<!\w)\(?1[).:] .*(?<!\w)\(?2[).:] |"
                     r"\b(?:i|we|you) (?:can|could)\b[^.?!]{1,200}\bor\b", re.S)  # fmt: skip
_NAMES = re.compile(r"[^\s|()\[\]{},;:\"'“”!?#/.]+")
_NOT_NOW = re.compile(r"\b(?:will|shall|going to|would|could|can|may|might|let me|'ll|'d|must|"
                      r"need|needs|should|if|once)\b")  # fmt: skip


class Reading(NamedTuple):
    """What a message asks of the user."""

    act: AgentAct
    slots: tuple[str, ...] = ()
    """Of ASK, OFFER and PROPOSE: slots of the script's facts that it asks for or puts up. A
    proposal that names a value for one that is held back asks for it."""
    unknown: bool = False
    """Of ASK: whether it asks for something that no fact of the script answers, besides slots."""
    wanted: bool | None = None
    """Of PROPOSE: whether the change proposed is one that the user wants now; None otherwise."""


class _Message(NamedTuple):
    """A message as it is read: normalised sentences, and which stand under the one before."""

    said: tuple[tuple[str, bool], ...]
    text: str
    changing: frozenset[str]
    """Stems of what the tools of the world do, and of what agents call it."""


def read_message(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> Reading:
    """The act of what the agent said since the user's last turn, and what it is about."""
    raw = proposal(trace, len(trace))
    message = _message(world, raw, trace)
    facts = goal.script.facts if goal.script else ()
    slots = slots_of(world, facts)
    asking = _asking(message)
    if _proposes(world, message, wanted_calls(world, goal, trace)):
        return _proposed(world, goal, slots, message, asking, trace)
    if _offers(world, message, asking):
        return Reading(AgentAct.OFFER, _put_up(world, slots, message, "\n".join(asking)))
    if asking:
        return _asked(world, slots, message, asking)
    for act, does in ((AgentAct.REFUSE, _refuses), (AgentAct.REPORT, _reports)):
        if any(does(message, sentence) for sentence, _ in message.said):
            return Reading(act)
    return Reading(AgentAct.OTHER)


def _message(world: World, raw: str, trace: Sequence[TraceEvent]) -> _Message:
    """A message without what is not said to the user, what the user said, and pleasantries."""
    if len(raw) > MOST_CHARACTERS:
        raw = f"{raw[: MOST_CHARACTERS // 2]}\n{raw[-MOST_CHARACTERS // 2 :]}"
    for pattern in _UNSPOKEN:
        raw = pattern.sub("\n", raw)
    for pattern, shorter in _SHORTER:
        raw = pattern.sub(shorter, raw)
    heard = {
        one
        for event in trace
        if event.kind == EventKind.USER
        for one, _ in sentences(event.text)
        if len(one.split()) >= _ECHO
    }
    said = tuple(
        (one, nested)
        for one, nested in sentences(raw)
        if one not in heard and not _CLOSING.search(one) and not _is_users(world, one)
    )
    tools = _changing_tools(world)
    verbs = _CHANGING.union(*(verbs_of(one) for one in tools)) - _IDLE
    changing = verbs | {one.removesuffix("e") for one in verbs}
    return _Message(said, "\n".join(one for one, _ in said), changing)


def _is_users(world: World, sentence: str) -> bool:
    """Whether a sentence is in the voice of a user: of what is mine."""
    nouns = {table.key.removesuffix("_id").replace("_", " ") for table in world.tables}
    return any(found[1].startswith((*_MINE, *nouns)) for found in _MY.finditer(sentence))


def _changing_tools(world: World) -> list[WorldTool]:
    """The tools that change what the user has, not those that end a request."""
    ending = (ToolRole.DECLINE, ToolRole.HAND_OVER)
    return [one for one in world.tools if (one.changes or one.writes) and one.role not in ending]


# Proposals ----------------------------------------------------------------------------------


def _proposes(world: World, message: _Message, wanted: Sequence[TraceEvent]) -> bool:
    """Whether a message says which change is going to be made, or asks whether it may be."""
    nouns = [name for table in world.tables for name in (table.name, *map(_name, table.columns))]
    changing = message.changing - frozenset[str]().union(*map(name_stems, nouns))
    named = (
        bool(stems(message.text) & changing)
        or _names_tool(world, message.text)
        or _WISH.search(message.text) is not None
        or any(_sums_up(one, message.text) for one in wanted)
    )
    return any(
        _announces(world, message, one) or _asks_leave(message, one, named)
        for one, _ in message.said
    )


def _names_tool(world: World, said: str) -> bool:
    return any(
        next(places_of(one.tool.name, said, False), None) is not None
        for one in _changing_tools(world)
    )


def _name(column: WorldColumn) -> str:
    return column.name


def _sums_up(call: TraceEvent, said: str) -> bool:
    """Whether a text has two of a call's values at least."""
    values = {str(one) for one in call.arguments.values()}
    return sum(next(places_of(one, said, True), None) is not None for one in values) > 1


def _announces(world: World, message: _Message, sentence: str) -> bool:
    """Whether a sentence says that a change is going to be made, and waits for nothing to know."""
    said = _NO_CHANGE.sub(" ", sentence)
    verbs = _ANNOUNCED.findall(said)
    if not verbs or _WAITING.search(said) or _HANDED.search(said) or _is_asking(said):
        return False
    return bool(stems(" ".join(verbs)) & message.changing) or _names_tool(world, said)


def _asks_leave(message: _Message, sentence: str, named: bool) -> bool:
    """Whether a sentence asks whether a change may be made. ``named``: the message names one."""
    asks = sentence.rstrip("\"')*_ ").endswith("?") or _IF_WANTED.search(sentence) is not None
    for found in _MAY_I.finditer(sentence) if asks else ():
        verb = stems(found[1])
        if not _WH.search(sentence[: found.start()]) and verb & message.changing:
            return not _HANDED.search(sentence) and not _has_options(message, sentence)
    agreed = _AGREE.search(sentence)
    if agreed is None or not named or _CONFIRM_VALUE.search(sentence):
        return False
    return not _WH.search(sentence[: agreed.start()]) and not _HANDED.search(sentence)


def _proposed(
    world: World, goal: WorldGoal, slots: Sequence[Slot], message: _Message,
    asking: Sequence[str], trace: Sequence[TraceEvent],
) -> Reading:  # fmt: skip
    """A proposal: whether it is wanted, and what it asks for on the way."""
    told = {slot for event in trace if event.kind == EventKind.USER for slot in event.facts}
    held = [one for one in slots if one.fact.when == FactTime.ASKED and one.fact.slot not in told]
    put = proposed_slots(world, held, message.text)
    asks = "\n".join(one for one in asking if not _asks_leave(message, one, named=True))
    asked = asked_for(world, slots, asks, message.text).slots if asks else ()
    text = proposal(trace, len(trace))
    wanted = any(not is_of_other(world, call, text, world.rows)
                 for call in wanted_calls(world, goal, trace))  # fmt: skip
    return Reading(AgentAct.PROPOSE, tuple(dict.fromkeys((*put, *asked))), wanted=wanted)


def wanted_calls(world: World, goal: WorldGoal, trace: Sequence[TraceEvent]) -> list[TraceEvent]:
    """The calls that write which the user wants now and that have not been made: those of the
    goal's trace; before a change of mind, and where a wish is declined, those of the wish."""
    writing = {one.tool.name for one in world.tools if one.changes or one.writes}
    calls = [one for one in goal.trace if is_success(one) and one.tool in writing]
    changed = any(one.kind == EventKind.USER and one.act == UserAct.CHANGE for one in trace)
    if goal.wish and goal.outcome.kind != OutcomeKind.DONE:
        calls += goal.wish
    elif goal.wish and not changed:
        given_up = {one.tool for one in goal.wish}
        calls = [*goal.wish, *(one for one in calls if one.tool not in given_up)]
    if not calls:  # what holds already is wanted as well
        calls = [TraceEvent(kind=EventKind.CALL, tool=one.tool, arguments=one.arguments)
                 for one in goal.asks if one.tool]  # fmt: skip
    made = [(one.tool, one.arguments) for one in trace if is_success(one)]
    return [one for one in calls if (one.tool, one.arguments) not in made]


# Questions ----------------------------------------------------------------------------------


def _asking(message: _Message) -> list[str]:
    """The sentences that ask for something that the user is to tell, with the items below them."""
    found: list[str] = []
    below = False
    for one, nested in message.said:
        if _is_asking(one) and not _offers_reading(message, one):
            found.append(one)
            below = one.endswith(":")
        elif below and nested:
            found.append(one)
        else:
            below = False
    return found


def _is_asking(sentence: str) -> bool:
    asks = sentence.rstrip("\"')*_ ").endswith("?")
    short = len(sentence.split()) <= _SHORT
    if (asks and (short or _QUESTION.search(sentence))) or (short and _PLEASE.search(sentence)):
        return True
    return _ORDERED.search(sentence) is not None or _NEEDED.search(sentence) is not None


def _offers_reading(message: _Message, sentence: str) -> bool:
    """Whether a question only offers to look something up."""
    found = [*_MAY_I.finditer(sentence)]
    return any(
        found[1] in _IDLE and found[1] not in ("have", "get", "know", "ask")
        and not _WH.search(sentence[: found.start()]) and found[0].split()[-2:-1] != ["like"]
        for found in found
    )  # fmt: skip


def _asked(
    world: World, slots: Sequence[Slot], message: _Message, asking: Sequence[str]
) -> Reading:
    request = asked_for(world, slots, "\n".join(asking), message.text)
    return Reading(AgentAct.ASK, request.slots, request.unknown)


# Options ------------------------------------------------------------------------------------


def _offers(world: World, message: _Message, asking: Sequence[str]) -> bool:
    """Whether the user is to pick one of several things that the message puts up."""
    listed = [one for one, nested in message.said if nested and one not in asking]
    for one in asking:
        if _has_options(message, one):
            return True
        if _OR.search(_NO_OPTIONS.sub(" ", one)) and _counts(world, one) > 1:
            return True
        if _PICK.search(one) and (
            len(listed) > 1 or _EITHER.search(message.text) or _counts(world, message.text) > 1
        ):
            return True
    return False


def _put_up(world: World, slots: Sequence[Slot], message: _Message, asking: str) -> tuple[str, ...]:
    """The slots whose values are options: those of the question, else those of the message."""
    named = asked_for(world, slots, asking, "").slots
    found = (*named, *offered_slots(world, slots, asking))
    found = found or offered_slots(world, slots, message.text)
    found = found or asked_for(world, slots, asking, message.text).slots
    return tuple(dict.fromkeys(found))


def _has_options(message: _Message, sentence: str) -> bool:
    """Whether a question puts up one thing or another, and not one datum or another."""
    left = _NO_OPTIONS.sub(" ", sentence)
    parts = _OR.split(left)
    if len(parts) < 2 or _GIVE.search(left):
        return False
    if re.search(r"\bone\b.*\bor\b.*\bone\b|\beither\b|\b(?:do|did) you mean\b|\bprefer\b", left):
        return True
    if all(stems(part) & message.changing for part in parts[-2:]):
        return True
    return all(next(numbers_in(part), None) or next(dates_in(part), None) for part in parts[-2:])


def _counts(world: World, said: str) -> int:
    """How many rows of one table, or options of one parameter, a text names; the most of any."""
    words = set(_NAMES.findall(said))
    most = 0
    for table in world.tables:
        most = max(
            most, len(words & {str(r[table.key]).casefold() for r in world.rows[table.name]})
        )
    for one in _changing_tools(world):
        for options in options_of(one).values():
            named = sum(says(option, said) for option in options)
            most = max(most, named)
    return most


# What is said -------------------------------------------------------------------------------


def _refuses(message: _Message, sentence: str) -> bool:
    return _REFUSED.search(sentence) is not None or _HANDED.search(sentence) is not None


def _reports(message: _Message, sentence: str) -> bool:
    """Whether a sentence tells something, and no plan or pleasantry."""
    if sentence.endswith("?"):
        return False
    if _CHATTER.match(sentence) and len(sentence.split()) < 9 and not _holds_value(sentence):
        return _DONE.search(sentence) is not None
    if _DONE.search(sentence):
        return True
    if _NOT_NOW.search(sentence):
        return False
    return _TOLD.search(sentence) is not None or _holds_value(sentence)


def _holds_value(sentence: str) -> bool:
    return (next(numbers_in(sentence), None) or next(dates_in(sentence), None)) is not None
