"""The offline teacher's and judge's rules for every ask of this domain."""

from __future__ import annotations

from astra.llm.protocol import OfflineHandlers
from astra.qa.free_offline import synthesise
from astra.qa.judging import JUDGES
from astra.qa.reading import decompose

HANDLERS: OfflineHandlers = {
    "qa/decompose": decompose,
    "qa/outline": decompose,
    "qa/outline_zh": decompose,
    "qa/synthesise": synthesise,
    "qa/synthesise_zh": synthesise,
    **JUDGES,
}
