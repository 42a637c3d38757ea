"""A real headless browser for tests, driven over its DevTools protocol; nothing but Chromium
itself is needed (Debian and Ubuntu: apt-get install chromium).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

TIMEOUT_S = 120
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("ASTRA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. ``problems`` collects console errors, exceptions and refused loads."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self._loaded = asyncio.Event()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.requests: list[str] = []

    async def listen(self) -> None:
        """Runs beside everything else until the browser goes away."""
        async for message in self._socket:
            document = message.json()
            if "id" in document:
                self._answers.pop(document["id"]).set_result(document)
                continue
            name, values = document["method"], document["params"]
            if name == "Page.loadEventFired":
                self._loaded.set()
            elif name == "Network.requestWillBeSent":
                self.requests.append(values["request"]["url"])
            elif name == "Runtime.exceptionThrown":
                self.problems.append(str(values["exceptionDetails"]))
            elif name == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
                self.problems.append(str(values["args"]))
            elif name == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
                self.problems.append(values["entry"]["text"])

    async def ask(self, method: str, **values: Any) -> dict[str, Any]:
        self._last += 1
        future = self._answers[self._last] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._last, "method": method, "params": values})
        answer = await asyncio.wait_for(future, TIMEOUT_S)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def open(self, url: str, width: int, dark: bool = False, height: int = 900) -> None:
        """Load an address in a window of that many CSS pixels."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.ask(f"{domain}.enable")
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[theme])
        self._loaded.clear()
        await self.ask("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), TIMEOUT_S)

    async def evaluate(self, expression: str) -> Any:
        found = await self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    async def picture(self, path: Path, whole: bool = False, quality: int = 80) -> None:
        """A WebP or PNG file, by the name's ending, of the window or the whole page."""
        kind = path.suffix.removeprefix(".")
        options = {"quality": quality} if kind == "webp" else {}
        found = await self.ask(
            "Page.captureScreenshot", format=kind, captureBeyondViewport=whole, **options
        )
        path.write_bytes(base64.b64decode(found["data"]))


@contextlib.asynccontextmanager
async def browse(profile: Path) -> AsyncIterator[Page]:
    """A tab of a fresh browser, which ends with the block."""
    assert BROWSER is not None
    profile.mkdir(parents=True, exist_ok=True)
    # Its own process group: the browser's many processes must end with it.
    process = subprocess.Popen(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run",
            "--disable-dev-shm-usage", "about:blank",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(TIMEOUT_S):
            port = await _port(profile / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                tab = next(one for one in await listed.json() if one["type"] == "page")
            address = tab["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                page = Page(socket)
                listener = asyncio.create_task(page.listen())
                try:
                    yield page
                finally:
                    listener.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


async def _port(file: Path, process: subprocess.Popen[bytes]) -> str:
    while process.poll() is None:
        with contextlib.suppress(OSError):
            if lines := file.read_text().splitlines():
                return lines[0]
        await asyncio.sleep(0.1)
    raise RuntimeError("Chromium ended before it could be asked")
