"""What a linear model weighs of a message of the agent: its words and where they stand.

Words are those of normalised sentences. What differs from world to world is a mark in capitals:
keys, numbers, dates, addresses, names, what the tools are called and what they do. Beside the words
stand classes of them, so that what few messages say is known from many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from astra.arena import act_phrases as phrases
from astra.arena.claims import stems
from astra.arena.heard_message import HeardMessage, changes_in
from astra.arena.world_words import WorldWords, words_in, world_words
from astra.records.world import EventKind, TraceEvent, World

FOUND = "r:"
"""How features begin that rules find."""
_CLASSES = {
    "I": "i we im",
    "MY": "my our ours mine",
    "ME": "me us",
    "YOU": "you u ya",
    "YOUR": "your yours ur",
    "BE": "is are was were be been being am 's 're 'm isnt",
    "HAVE": "have has had 've got get gets",
    "WILL": "will 'll shall gonna",
    "WOULD": "would 'd could might",
    "CAN": "can may able",
    "MUST": "must should need needs required require requires ought",
    "NOT": "not n't no never none nothing neither nor nobody cannot cant without dont wont isnt "
    "doesnt didnt nope",
    "WH": "which what when how why who where whose whether whch wich wat",
    "OR": "or / either alternatively rather",
    "PICK": "pick choose select prefer choice option options decide decision preference favour "
    "favor alternatives",
    "TELL": "tell give provide share send specify name type enter say state mention supply quote "
    "clarify describe explain indicate answer reply respond write text inform advise let know "
    "hear point spell read",
    "PLS": "please pls plz kindly",
    "OK": "ok okay okey alright fine good great right correct agree agreed agreeable happy yes yep "
    "y sure confirm confirmed confirmation approve approval consent permission go-ahead green "
    "objection objections mind proceed accept acceptable suit suits comfortable agreement nod",
    "GO": "go going continue start begin carry next now then follow follows",
    "SORRY": "sorry unfortunately afraid regret regrettably sadly apologies apologise apologize "
    "alas",
    "PERSON": "colleague colleagues collegue team human person specialist staff supervisor manager "
    "desk office department agent representative someone somebody officer librarian crew expert "
    "counter reception support advisor",
    "HAND": "hand handed handing pass passed passing transfer transferred transferring forward "
    "forwarded forwarding escalate escalated escalating connect connecting refer referred route "
    "put involve",
    "REFUSE": "decline declined declining refuse refused refusing reject rejected denied deny turn "
    "turned unable impossible possible allowed allow allows permitted permit permits eligible "
    "available allowance policy rule rules limit forbidden prohibits prohibited beyond outside "
    "exceeds late early tools tool function functions",
    "DONE": "done complete completed finished success successful successfully sorted worked went "
    "through set processed applied booked recorded updated",
    "LOOK": "look looking check checking find finding search searching see verify verifying pull "
    "pulling fetch fetching review reviewing open opening locate identify retrieve list listing "
    "reading confirming consult lookup",
    "WAIT": "moment minute second sec wait hold bit shortly soon patience while",
    "THANK": "thank thanks welcome pleasure hello hi hey morning afternoon evening goodbye bye day "
    "dear congratulations wonderful",
    "REASON": "reason because since due",
    "MONEY": "€ £ $ eur euro euros fee fees cost costs charge charges price balance amount",
    "ELSE": "else anything further more other additional another",
    "IF": "if unless once until before after provided",
    "THIS": "this that it these those them one ones",
    "MEAN": "mean meant referring meaning intend",
    "WANT": "want wants like wish wished love wanted",
    "DATA": "email e-mail postcode phone number id address reference code details information info "
    "date days",
}
_CLASS: Mapping[str, str] = {
    word: name for name, words in reversed(_CLASSES.items()) for word in words.split()
}
_TOKEN = re.compile(
    r"[\w.+-]+@[\w.-]+\w|\d{4}-\d\d-\d\d|[a-z]+-?\d+\w*|[^\W\d_]+(?:['_-]\w+)*|"
    r"\d{1,2}(?:st|nd|rd|th)\b|\d[\d.,:]*\d%?|\d%?|[^\s\w]"
)
_KEY = re.compile(r"[a-z]{1,4}-?\d{2,}\w*")
_DATE = re.compile(
    r"\d{4}-\d\d(?:-\d\d)?|\d{1,2}(?:st|nd|rd|th)|\d{1,2}[./]\d{1,2}(?:[./]\d{2,4})?|"
    r"(?:jan|febr?)(?:uary)?|march|mar|april|apr|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|(?:nov|dec)(?:ember)?|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
)
_NUMBERS = frozenset("two three four five six seven eight nine ten eleven twelve".split())
_SUFFIX = re.compile(r"(.+?)('(?:ll|d|s|m|re|ve)|n't)")
_ENDINGS = (("ed", "wn", "id"), ("ing",), ("tion", "al", "ment", "sion"))
_PLACED = re.compile(rf"{FOUND}.+|[qs]:[A-Z]+")
_ECHO = "ECHO"
_LONG = re.compile(r"[^\W\d_]{3,}")
_MOST_WORDS = 400
"""So many words of a sentence are weighed."""
_ENDS = 30
"""So many sentences at either end of a message are weighed."""


def features(
    world: World, message: HeardMessage, raw: str, trace: Sequence[TraceEvent]
) -> set[str]:  # fmt: skip
    """What the model weighs of a message besides what rules find in it and where it stands."""
    words = world_words(world)
    said: list[list[str]] = []
    listed = 0
    spoken = message.spoken
    for one, nested in spoken[:_ENDS] + spoken[_ENDS:][-_ENDS:]:
        echoed = one in message.heard
        marked = [_ECHO] if echoed else [*_marked(words, message, one)][:_MOST_WORDS]
        said.append(["^", *marked, "$"])
        listed += nested
    found = {"listed" if listed > 1 else "flat"}
    if any(one.search(raw) for one in phrases.UNSPOKEN):
        found.add("unspoken")
    asking = sum("?" in one[-3:] for one in said)
    found |= {f"questions {min(asking, 2)}", f"sentences {min(len(said), 6)}",
              f"words {min(10, sum(map(len, said)) // 8)}"}  # fmt: skip
    found.update(_strange(words, message, trace))
    for at, one in enumerate(said):
        found.update(_of_sentence(one, at == 0, at == len(said) - 1))
    return found


def placed(places: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    """What rules find and which classes of words there are, together with where the message
    stands."""
    held = [one for one in found if _PLACED.fullmatch(one)]
    for place in places:
        yield from (f"@{place}: {one}" for one in held)


def _strange(
    words: WorldWords, message: HeardMessage, trace: Sequence[TraceEvent]
) -> Iterator[str]:  # fmt: skip
    """How many words, and how many of all, are neither everyday ones nor the world's, nor were said
    before."""
    said = [word for one, _ in message.spoken for word in _LONG.findall(one)]
    before = words_in(" ".join(one.text for one in trace[:-1]))
    strange = [one for one in said if one not in words.known and one not in before
               and one not in _CLASS and stems(one).isdisjoint(words.known)]  # fmt: skip
    yield f"strange {min(8, len(strange))}"
    yield f"strange share {min(6, 20 * len(strange) // max(1, len(said)))}"


def _of_sentence(said: Sequence[str], first: bool, last: bool) -> Iterator[str]:
    """The sequences of a sentence's words and of their classes, and which stand together in it."""
    asks = "?" in said[-3:]
    classes = [_class(one) for one in said]
    yield from _runs("", said, 3)
    yield from _gapped("", said, 2)
    yield from _runs("k:", classes, 4)
    yield from _gapped("k:", classes, 2)
    yield from _gapped("k:", classes, 3)
    if asks:
        yield from _runs("Q:", said, 2)
        yield f"Q^{' '.join(said[1:3])}"
    if first:
        yield from _runs("F:", said, 1)
    if last:
        yield from _runs("L:", said, 2)
        yield from _runs("K:", classes, 3)
    tag = "q" if asks else "s"
    held = sorted({one for one in classes if one not in ("x", "^", "$")})
    for at, one in enumerate(held):
        yield f"{tag}:{one}"
        for other in held[at + 1 :]:
            yield f"{tag}:{one},{other}"


def _runs(tag: str, said: Sequence[str], most: int) -> Iterator[str]:
    for size in range(1, most + 1):
        for at in range(len(said) - size + 1):
            yield tag + " ".join(said[at : at + size])


def _gapped(tag: str, said: Sequence[str], apart: int) -> Iterator[str]:
    for one, other in zip(said, said[apart:], strict=False):
        yield f"{tag}{one}{' _' * (apart - 1)} {other}"


def _class(word: str) -> str:
    """The class of a word, itself where it is a mark, and ``x`` of other words."""
    return _CLASS.get(word) or ("x" if word.isalpha() and word.islower() else word)


def _marked(words: WorldWords, message: HeardMessage, sentence: str) -> Iterator[str]:
    """The words of a sentence, marked."""
    for token in _TOKEN.findall(sentence):
        ended = _SUFFIX.fullmatch(token)
        for one in ended.groups() if ended else (token,):
            yield _mark(words, message, one)


def _mark(words: WorldWords, message: HeardMessage, token: str) -> str:
    if token in words.kinds:
        return f"TOOL{words.kinds[token]}"
    if "@" in token[1:]:
        return "EMAIL"
    if _DATE.fullmatch(token):
        return "DATE"
    if _KEY.fullmatch(token):
        return "KEY"
    if token[0].isdigit() or token in _NUMBERS:
        return "NUM"
    if "_" in token:
        return "CODE"
    if not token.isalpha():
        return token
    if token in words.people:
        return "NAME"
    if changes_in(message, token):
        form = next((one[0] for one in _ENDINGS if token.endswith(one)), "")
        return f"CHANGE{form}"
    if token in words.names:
        return "NOUNs" if token.endswith("s") else "NOUN"
    return token


def where(world: World, trace: Iterable[TraceEvent]) -> Iterator[str]:
    """Where in the conversation a message stands: what came last before it."""
    before = [one for one in trace if one.kind != EventKind.ASSISTANT]
    if not before:
        return
    last = before[-1]
    yield f"after {last.kind}"
    if last.kind == EventKind.USER:
        yield f"user {last.act}"
        return
    kind = world_words(world).kinds.get(last.tool, "none")
    yield f"call {kind} {'failed' if last.failed else 'made'}"
    if isinstance(last.result, list) and len(last.result) > 1:
        yield "rows"
