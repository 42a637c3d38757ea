"""Load a published data set with `datasets` alone.

    python -I load_data_set.py FOLDER

It prints rows by split and the types of the columns as JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any


def main(folder: str) -> None:
    sys.modules["astra"] = None  # type: ignore[assignment]  # whoever imports it now fails
    from datasets import load_dataset

    loaded: Any = load_dataset(folder)
    features = next(iter(loaded.values())).features
    found = {
        "rows": {str(split): rows.num_rows for split, rows in loaded.items()},
        "features": {name: str(kind) for name, kind in features.items()},
        "versions": {"datasets": metadata.version("datasets")},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
