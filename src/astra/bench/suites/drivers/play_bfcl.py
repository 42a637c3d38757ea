"""Driver of BFCL multi-turn: lists its entries, or plays them with the official loop."""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import json
from collections.abc import Iterator

import wire

PACKAGES = ("bfcl-eval", "openai")


def listed(categories: list[str]) -> Iterator[tuple[str, str]]:
    """(entry, category) from the data files, of categories as the package names them."""
    data = wire.package_folder("bfcl_eval") / "data"
    for category in categories:
        (path,) = data.glob(f"BFCL_v?_{category}.json")
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["id"], category


def main() -> None:
    channel = wire.Wire()
    if channel.request["task"] == "list":
        categories = [f"multi_turn_{one}" for one in channel.options["categories"]]
        channel.listing(listed(categories), PACKAGES)
        return
    from bfcl_loop import Suite

    suite = Suite(channel.options)
    channel.play(lambda job: suite.attempt(channel, job))


if __name__ == "__main__":
    main()
