"""The page of a run: what it says while a build is killed and goes on, and while its server is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokpress.run import events
from tokpress.storage.lock import WriterLock
from tokpress.web.server import TOKEN_VARIABLE
from tokpress.web.session import Session

from .browsing import browser, visit
from .serving import serving


def tell(path: Path, *told: events.Event) -> None:
    with path.open("ab") as file:
        for event in told:
            file.write(events.encode(event) + b"\n")


def test_the_truth_is_shown_over_restarts_of_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "the-same-for-both-servers")
    path, store = tmp_path / "events.jsonl", tmp_path / "store"
    session = Session(runs=[str(store)], events=[str(path)])
    advanced = events.Advanced(time=1.0, worker=0, input_bytes=400, docs=7, tokens=3_210, rejects=1)
    with browser() as opened, serving(session) as server, visit(opened, server) as page:
        page.go("/run", "#connection")
        page.page.locator(".hero .badge", has_text="not begun").wait_for(timeout=20_000)
        with WriterLock(store):  # a build holds it
            tell(path, events.Began(started_at=1.0, store=str(store), version="0"))
            tell(path, events.Started(bytes=1000, units=3, workers=1, threads=1), advanced)
            page.page.locator(".hero .badge", has_text="silent").wait_for(timeout=20_000)  # its clock says 1970
            assert "3,210" in page.text(".stats")
        page.page.locator(".hero .badge", has_text="killed").wait_for(timeout=20_000)
        port = server.port
        server.server.should_exit = True
        page.page.locator("#connection", has_text="trying again").wait_for(timeout=20_000)
        with serving(Session(runs=[str(store)], events=[str(path)]), port=port):
            tell(path, events.Began(started_at=2.0, store=str(store), version="0"))
            tell(path, events.Resuming(units=3, units_left=1, docs=7))
            tell(path, events.Failed(time=9.0, error="KeyboardInterrupt", message="<b>\x1b[31m stopped"))
            page.page.locator(".hero .badge", has_text="failed").wait_for(timeout=30_000)
            assert "run 2 of this store" in page.text(".hero")
            assert "<b>␛[31m stopped" in page.text(".hero [role=alert]")
        script = [problem for problem in page.problems if not problem.startswith("console: Failed to load resource")]
        assert script == []  # but that the server was away, nothing was complained of
