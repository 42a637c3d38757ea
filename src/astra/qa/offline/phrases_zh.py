"""Chinese wording of questions, as phrases.py words English ones.

A phrase begins with what it is asked of: ``{x}的要价``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from astra.qa.knowledge.chinese import WORDS as WORDS_OF
from astra.qa.offline.phrases import SEVERAL, Step, respoken

DIRECT = (
    "{np}是{what}？",
    "请告诉我{np}。",
    "请查询{np}。",
    "我想知道{np}。",
    "帮我查一下{np}。",
    "麻烦查出{np}。",
)
PLURAL = (
    "{np}分别是什么？",
    "请列出{np}。",
    "请告诉我{np}。",
    "帮我查一下{np}。",
    "我想知道{np}。",
)
COMPARISON = (
    "{names}相比，哪一个的{rest}更{word}？",
    "请告诉我{names}中{rest}更{word}的是哪一个。",
    "在{names}之间，{rest}更{word}的是哪一个？",
)
INTERVAL = ("{np}之间相隔多少天？", "请计算{np}之间相隔的天数。", "{np}之间的天数是多少？")
CHECK = ("{np}，对吗？", "请核实{np}是否属实。", "我想确认一下，{np}，是这样吗？")
ACT = ("请{np}。", "帮我{np}。", "麻烦{np}。", "我需要{np}。")
WORDS = {"greater": "高", "less": "低"}
"""Comparison -> its word."""


def noun(step: Step) -> str:
    """The words for a step's answer, for example ``要价``."""
    return _filled(step, "").removeprefix("的")


def join(items: Sequence[str]) -> str:
    """``甲``, ``甲和乙``, ``甲、乙和丙``."""
    if len(items) < 2:
        return "".join(items)
    return "、".join(items[:-1]) + "和" + items[-1]


def noun_phrase(step: Step, steps: Sequence[Step], names: Sequence[str]) -> str:
    """The step's answer described from the named entities alone, nesting its parents."""
    return _filled(step, _asked(step, steps, names))


def _asked(step: Step, steps: Sequence[Step], names: Sequence[str]) -> str:
    if step["start"] is not None:
        return names[int(step["start"])]
    if choice := step["choice"]:
        whole = steps[step["parents"][0] - 1]
        return str(choice["phrase"]).format(x=_asked(whole, steps, names), y=choice["value"])
    return join([noun_phrase(steps[p - 1], steps, names) for p in step["parents"]])


def sub_question(step: Step, steps: Sequence[Step], names: Sequence[str]) -> str:
    """The step alone; answers of earlier steps are referred to by step number."""
    references = _references(step, steps)
    if step["op"] == "pick":
        return f"{references[0]}是{_what(step)}？"
    if step["op"] in WORDS:
        return f"已知{join(references)}，{join(names)}中数值更{WORDS[step['op']]}的是哪一个？"
    asked = names[int(step["start"])] if step["start"] is not None else join(references)
    phrase = _filled(step, asked)
    if step["writes"]:
        return f"{phrase}。"
    if step["op"] == "check":
        return f"{phrase}，对吗？"
    if step["op"] == "page":
        before = step["page_after"]
        page = f"步骤{before}之后的下一页" if before else "第一页"
        return f"{phrase}的{page}有哪些？"
    opening = "".join(f"步骤{p}完成之后，" for p in step["after"])
    return f"{opening}{phrase}{'分别' if step['op'] in SEVERAL else ''}是{_what(step)}？"


def _references(step: Step, steps: Sequence[Step]) -> list[str]:
    choice = step["choice"]
    if not choice:
        return [f"步骤{p}得到的{noun(steps[p - 1])}" for p in step["parents"]]
    of = "、".join(f"步骤{p}" for p in step["parents"])
    chosen = ""
    if choice["where"]:
        chosen = f"{WORDS_OF[choice['where']]}为{choice['value']}的"
    elif measure := choice["lowest"] or choice["highest"]:
        ranked = "" if measure == choice["field"] else WORDS_OF[measure]
        chosen = f"{ranked}最{'低' if choice['lowest'] else '高'}的"
    return [f"{of}得到的{chosen}{WORDS_OF[choice['field']]}"]


def _what(step: Step) -> str:
    return "多少" if step["answer_type"] == "number" else "什么"


def main_question(
    form: str, steps: Sequence[Step], names: Sequence[str], rng: random.Random, paraphrased: bool
) -> str:
    """One of the shape's wordings, drawn by ``rng``, in other words than its relations' or not."""
    if paraphrased and form not in WORDS:  # a comparison is cut out of its phrases
        steps = respoken(steps, "zh", rng)
    last = steps[-1]
    if form in ("act", "and", "then"):
        return _action(form, steps, names, rng)
    if form in WORDS:
        rest = noun_phrase(steps[last["parents"][0] - 1], steps, [""] * len(names))
        chosen = rng.choice(COMPARISON)
        return chosen.format(names=join(names), word=WORDS[form], rest=rest.removeprefix("的"))
    if form == "between":
        ends = [noun_phrase(steps[p - 1], steps, names) for p in last["parents"]]
        return rng.choice(INTERVAL).format(np=join(ends))
    if form == "last":
        phrase = noun_phrase(last, steps, names)
        if last["op"] == "check":
            return rng.choice(CHECK).format(np=phrase)
        chosen = rng.choice(PLURAL if last["op"] in SEVERAL else DIRECT)
        return chosen.format(np=phrase, what=_what(last))
    used = {parent for step in steps for parent in step["parents"]}
    phrases = [noun_phrase(s, steps, names) for s in steps if s["id"] not in used]
    return rng.choice(PLURAL).format(np=join(phrases))


def _action(form: str, steps: Sequence[Step], names: Sequence[str], rng: random.Random) -> str:
    acts = "，并".join(noun_phrase(step, steps, names) for step in steps if step["writes"])
    if form == "and":
        acts += f"，并告诉我它的{noun(steps[-1])}"
    elif form == "then":
        acts += f"，然后告诉我{noun_phrase(steps[-1], steps, names)}"
    return rng.choice(ACT).format(np=acts)


def _filled(step: Step, asked: str) -> str:
    return str(step["phrase"]).format(x=asked, y=step["literal"])
