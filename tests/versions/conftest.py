"""The scripted chat server of tests/llm answers as the judge that has to be paid."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "llm"))
