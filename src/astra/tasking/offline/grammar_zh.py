"""Chinese questions from tools and plans, by grammar: the offline writer of Chinese tasks.

A tool whose description is Chinese gives its words; of other tools the English words of the
name stand inside the Chinese sentence, as technical Chinese has it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from astra.records.graph import ArgumentOrigin, ArgumentSource
from astra.tasking.checks import spoken
from astra.tasking.offline.grammar import PlanText, words
from astra.text.words import has_cjk

_CLAUSE_END = re.compile(r"[，。；：,;:（(\n]")
_READING = re.compile(r"^(?:请|用于|可以)?(?:查询|获取|查找|查看|返回|列出|搜索|读取|检索)+")
_ASKS = (
    "请问{}是什么？",
    "请告诉我{}。",
    "请帮我查一下{}，谢谢。",
    "我想知道{}，请帮我查一下。",
)
_ORDERS = ("请{}。", "请帮我{}。", "麻烦你{}，谢谢。")
_LONGEST_LABEL = 8


class ChineseText(PlanText):
    """Phrases for the steps of one plan, in Chinese."""

    def head(self, index: int) -> str:
        clause = self._clause(index)
        return (_READING.sub("", clause) or clause) if clause else super().head(index)

    def _clause(self, index: int) -> str:
        """The first clause of a Chinese description, else an empty string."""
        tool = self.tools[self.plan[index].tool]
        return _CLAUSE_END.split(tool.description)[0] if has_cjk(tool.description) else ""

    def noun(self, index: int, path: Sequence[str | int] = ()) -> str:
        subject = self.subject(index)
        about, others = "", []
        for name, source in self.plan[index].arguments.items():
            if source.origin is ArgumentOrigin.DEFAULT or self.omitted == (index, name):
                continue
            text = self._value(source)
            if name == subject:
                about = f"{text}的"
            else:
                others.append(f"{self._label(index, name)}为{text}")
        head = self.head(index)
        if about:  # "Amber Cove的园丁", not "Amber Cove的地块的园丁"
            head = head.rsplit("的", 1)[-1]
        whole = f"{about}{head}" + (f"（{'，'.join(others)}）" if others else "")
        keys = [key for key in path if isinstance(key, str)]
        return f"{whole}中的{' '.join(words(keys[-1]))}" if keys else whole

    def _value(self, source: ArgumentSource) -> str:
        if source.origin is ArgumentOrigin.OUTPUT and source.step is not None:
            return self.noun(source.step, source.path)
        return spoken(source.value)

    def _label(self, index: int, name: str) -> str:
        properties = self.tools[self.plan[index].tool].parameters.get("properties", {})
        described = str(properties.get(name, {}).get("description", ""))
        if has_cjk(described) and len(described) <= _LONGEST_LABEL:
            return described
        return " ".join(words(name))

    def order(self, index: int) -> str:
        step = self.plan[index]
        given = [
            f"{self._label(index, name)}为{self._value(source)}"
            for name, source in step.arguments.items()
            if source.origin is not ArgumentOrigin.DEFAULT and self.omitted != (index, name)
        ]
        doing = self._clause(index) or f"执行 {' '.join(words(step.tool))}"
        return "，".join([doing, *given])


def question(text: ChineseText, rng: random.Random) -> str:
    """One question for the whole plan; the form is drawn."""
    indices = range(len(text.plan))
    if any(text.is_order(index) for index in indices):
        parts = [
            text.order(index) if text.is_order(index) else f"查一下{text.noun(index)}"
            for index in indices
            if text.is_order(index) or index in text.sinks()
        ]
        return rng.choice(_ORDERS).replace("{}", "，然后".join(parts))
    nouns = "，以及".join(text.noun(index) for index in text.sinks())
    return rng.choice(_ASKS).replace("{}", nouns)
