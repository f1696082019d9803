"""A real Chromium that goes nowhere but to the server under test, and remembers what it complained of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tokpress.web.server import ViewServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def browser() -> Iterator[Any]:
    """Skips the test where there is none: make browser says how to get it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no browser tests: there is no Chromium (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


class Visit:
    """One page; `problems` are errors of the console, of scripts and of requests that went elsewhere."""

    def __init__(self, page: Any, server: ViewServer) -> None:
        self.page = page
        self.base = f"http://127.0.0.1:{server.port}"
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        page.on("request", self._request)
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.goto(server.address)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        self.requests.append(request.url)
        if not request.url.startswith(self.base + "/"):
            self.problems.append(f"request to {urlsplit(request.url).netloc}: {request.url[:100]}")

    def go(self, path: str, ready: str) -> None:
        """Opens an address and waits for an element; text of it, as people see it."""
        self.page.goto(self.base + path)
        self.page.locator(ready).first.wait_for(state="attached", timeout=30_000)

    def text(self, selector: str = "main") -> str:
        shown: str = self.page.locator(selector).first.inner_text()
        return shown

    def check(self) -> None:
        """Nothing was complained of, and no text of a document became code."""
        assert self.problems == []
        assert self.page.evaluate("window.hacked") is None

    def screenshot(self, path: Path) -> None:
        self.page.screenshot(path=str(path))


@contextmanager
def visit(opened: Any, server: ViewServer, **context: Any) -> Iterator[Visit]:
    options = {"viewport": {"width": 1280, "height": 900}} | context
    inside = opened.new_context(**options)
    try:
        yield Visit(inside.new_page(), server)
    finally:
        inside.close()
