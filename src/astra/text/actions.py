"""Whether a text asks that something be done, not only found out.

A rule of plain cases: a request that opens with a verb of doing. A wish that leads up to a
question ("I want to book a trip. What would it cost?") asks for none. Whether other texts do is
for a judge to say.
"""

from __future__ import annotations

import re

_DOING = (
    r"book|reserve|pay|cancel|buy|purchase|register|enrol+|swap|replace|reschedule|schedule|send|"
    r"submit|rent|subscribe|delete|remove|preorder|sign me up|apply(?= (?:for|to))|"
    r"add(?= [^.?!]{1,120}\b(?:cart|basket)\b)|find and book|"
    r"order(?= (?:me|a|an|some|\d))|(?:change|update)(?= (?:my|our|the))"
)
"""Verbs of doing. Several others find out as well: order by price, update me, add two numbers."""
_ASKED = re.compile(
    r"(?:^|[.!?]\s+)(?:(?:please|hi|hello|hey),? +)*"
    r"(?:(?:can|could|would|will) you (?:please )?(?:help me (?:to )?)?|help me (?:to )?)?"
    rf"(?:please )?(?:{_DOING})\b",
    re.IGNORECASE,
)
_WISHED = re.compile(
    rf"(?:^|[.!?]\s+)i(?:'d| would) (?:like|love) (?:you )?to (?:{_DOING})\b"
    rf"|(?:^|[.!?]\s+)i (?:want|need) (?:you )?to (?:{_DOING})\b",
    re.IGNORECASE,
)
_ASKED_ZH = re.compile(
    r"(?:^|[，。！？\s])(?:请|麻烦|能不能|可以|能)?(?:你|您)?(?:帮我|替我|为我|给我|帮忙)?(?:把[^，。？！]{1,20})?"
    r"(?:预订|预定|订购|订[一两二三四五六七八九十\d]|支付|缴纳|取消|购买|注册|报名|更换|换成|改签|提交|退订|删除)"
)

_WONDERS_ZH = re.compile(r"什么|多少|哪|谁|几[个号点]")


def asks_for_action(text: str) -> bool:
    """Whether a text plainly asks for something to be done."""
    if _ASKED.search(text):
        return True
    if _ASKED_ZH.search(text) and not _WONDERS_ZH.search(text):
        return True
    return "?" not in text and _WISHED.search(text) is not None
