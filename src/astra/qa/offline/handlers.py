"""The offline teacher's and judge's rules for every ask of this domain."""

from __future__ import annotations

from astra.llm.protocol import OfflineHandlers
from astra.qa.offline.decompose import decompose
from astra.qa.offline.free import synthesise
from astra.qa.offline.judge import JUDGES

HANDLERS: OfflineHandlers = {
    "qa/decompose": decompose,
    "qa/outline": decompose,
    "qa/outline_zh": decompose,
    "qa/synthesise": synthesise,
    "qa/synthesise_zh": synthesise,
    **JUDGES,
}
