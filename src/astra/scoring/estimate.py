"""The asks of stage ``sft_set``, before they are made.

Lengths of replies are estimates from 80 recorded asks of a strong model, which were shorter ones
about single dimensions.
"""

from __future__ import annotations

from astra.estimate.asks import AskForm, ExpectedAsks
from astra.estimate.episodes import EpisodeFacts
from astra.scoring.asks import AnswerGrade, ConductGrade, TurnGrade
from astra.scoring.config import SFTSetConfig

CONDUCT = "scoring/conduct"
CONDUCT_BYTES, CALL_BYTES = 400, 160
"""The reply about the whole conduct, and what it says of each call."""
ANSWER = AskForm("scoring/final_answer", AnswerGrade, 700)
TURN = AskForm("scoring/turn", TurnGrade, 260)
LEFT = 0.9
"""The share of trajectories that can still pass after the first two asks."""
ROUND_BYTES = 60
"""The layout of a turn and its calls."""


def grade_asks(config: SFTSetConfig, episodes: EpisodeFacts) -> list[ExpectedAsks]:
    """The asks of stage ``sft_set``: two about the whole, then one for each turn after the first.

    A trajectory that cannot pass any more is not asked about further.
    """
    layout = episodes.turns * ROUND_BYTES
    whole = episodes.documents_bytes + episodes.message_bytes + layout
    # A turn is judged by what came before it: half of the messages on average.
    before = episodes.documents_bytes + (episodes.message_bytes + layout) * 0.6
    later = max(0.0, episodes.turns - 1)
    turns = episodes.rows.times(later * LEFT, later)
    conduct = AskForm(CONDUCT, ConductGrade, CONDUCT_BYTES + episodes.calls * CALL_BYTES)
    asks = ((conduct, episodes.rows, whole), (ANSWER, episodes.rows, whole), (TURN, turns, before))
    return [form.asked("judge", config.judge, number, shown) for form, number, shown in asks]
