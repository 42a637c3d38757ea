"""Who gets the next place in flight."""

from __future__ import annotations

import asyncio

from astra.llm.places import Places


def order(places: int, *asks: tuple[str, bool], cancelled: frozenset[str] = frozenset()) -> str:
    """In which order asks (name, tried before) that come while all places are taken get one."""

    async def run() -> str:
        shared, got, queued = Places(places), list[str](), asyncio.Event()

        async def hold(name: str, again: bool) -> None:
            async with shared.taken(again):
                got.append(name)
                await queued.wait()

        first = [asyncio.create_task(hold("", False)) for _ in range(places)]
        await asyncio.sleep(0)
        later = {name: asyncio.create_task(hold(name, again)) for name, again in asks}
        await asyncio.sleep(0)
        for name in cancelled:
            later[name].cancel()
        queued.set()
        await asyncio.gather(*first, *later.values(), return_exceptions=True)
        # Every place came back: as many as there are can be held at once.
        async with asyncio.timeout(1):
            held = [shared.taken(False) for _ in range(places)]
            for place in held:
                await place.__aenter__()
        return "".join(got)

    return asyncio.run(run())


def test_what_was_tried_before_goes_first_then_whoever_came_first() -> None:
    assert order(1, ("a", False), ("b", False), ("c", True), ("d", True)) == "cdab"


def test_a_cancelled_ask_takes_no_place() -> None:
    asks = (("a", False), ("b", True), ("c", False))
    assert order(1, *asks, cancelled=frozenset("ab")) == "c"
    assert order(2, *asks, cancelled=frozenset("c")) == "ba"


def test_a_place_handed_to_an_ask_that_is_cancelled_then_goes_to_the_next() -> None:
    async def run() -> list[str]:
        shared, got = Places(1), list[str]()

        async def hold(name: str) -> None:
            async with shared.taken(False):
                got.append(name)

        held = shared.taken(False)
        await held.__aenter__()
        waiting = [asyncio.create_task(hold(name)) for name in "ab"]
        await asyncio.sleep(0)
        await held.__aexit__(None, None, None)  # hands the place to a, which has not run yet
        waiting[0].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return got

    assert asyncio.run(run()) == ["b"]
