"""The offline rules for asks of stage ``goals``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.llm.protocol import OfflineHandlers
from astra.worlds.asks import WORDINGS, WordedTurn, WordingsReply


def _wordings(variables: Mapping[str, Any], _: random.Random) -> WordingsReply:
    """One wording of each turn, which is too few to take the place of those that rules made."""
    turns = [WordedTurn(turn=one["turn"], wordings=[one["says"]]) for one in variables["turns"]]
    return WordingsReply(turns=turns)


HANDLERS: OfflineHandlers = {WORDINGS: _wordings}
