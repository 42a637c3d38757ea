import sys
from pathlib import Path

for package in ("trajectories", "llm", "scoring"):
    sys.path.insert(0, str(Path(__file__).parents[1] / package))
