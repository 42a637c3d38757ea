"""The page in a real browser: it renders, fits a phone, loads nothing and runs nothing hostile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chromium import BROWSER, TIMEOUT_S, browse

from astra.report.page import write_report

pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason="no Chromium here: pages are not checked in a real browser (apt-get install chromium)",
)

STATE = """({
  title: document.title,
  owned: window.owned ?? null,
  scrolls: document.documentElement.scrollWidth > window.innerWidth,
  background: getComputedStyle(document.body).backgroundColor,
  charts: [...document.querySelectorAll('svg.chart')].filter(
    (one) => one.closest('details') === null && one.getBoundingClientRect().height < 20).length,
  letters: Math.min(...[...document.querySelectorAll('svg.chart text')].filter(
    (one) => one.getBoundingClientRect().height > 0).map(
    (one) => one.getBoundingClientRect().height)),
  open: document.querySelectorAll('#rollouts details[open]').length,
  details: document.querySelectorAll('#rollouts details').length,
})"""
INJECT = """(() => {
  const place = document.querySelector('main');
  place.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.owned = 1">');
  const script = document.createElement('script');
  script.textContent = 'window.owned = 2';
  place.append(script);
})()"""


async def look(page_file: Path, profile: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(3 * TIMEOUT_S), browse(profile) as page:
        for width, dark in ((1280, False), (390, True)):
            page.problems.clear()
            page.requests.clear()
            await page.open(page_file.as_uri(), width, dark)
            before = await page.evaluate(STATE)
            await page.evaluate("document.getElementById('open-all').click()")
            opened = await page.evaluate(STATE)
            await page.evaluate("document.getElementById('close-all').click()")
            await page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            printed = await page.evaluate("document.querySelectorAll('details:not([open])').length")
            problems, requests = list(page.problems), list(page.requests)
            await page.evaluate(INJECT)
            await asyncio.sleep(0.2)
            owned = await page.evaluate("window.owned ?? null")
            found.append({
                "before": before, "opened": opened, "printed": printed, "problems": problems,
                "requests": requests, "injected": owned, "refused": len(page.problems),
            })  # fmt: skip
    return found


def test_the_page_renders_and_hostile_rollouts_stay_text(build: Path, tmp_path: Path) -> None:
    page_file = build / "report.html"
    write_report(build, page_file, 5)
    wide, narrow = asyncio.run(look(page_file, tmp_path / "profile"))
    for found in (wide, narrow):
        assert found["problems"] == []
        assert found["requests"] == [page_file.as_uri()]  # it loads nothing
        for state in (found["before"], found["opened"]):
            assert state["title"] == "ASTRA-DVC report"
            assert state["owned"] is None
            assert not state["scrolls"]  # never wider than the window, only tables scroll
            assert state["charts"] == 0  # none is empty
            assert state["letters"] >= 9  # legible at this width
        assert found["before"]["open"] == 0
        assert found["opened"]["open"] == found["opened"]["details"] > 10
        assert found["printed"] == 0  # paper cannot be unfolded
        # Even markup that got into the page could run nothing: the policy refuses it.
        assert found["injected"] is None
        assert found["refused"] >= 2
    assert wide["before"]["background"] != narrow["before"]["background"]  # light and dark
