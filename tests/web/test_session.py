"""What the page's requests share."""

from __future__ import annotations

from pathlib import Path

from tokpress.web.session import Session


def test_all_splits_of_a_store_share_one_tokenizer(places: dict[str, Path]) -> None:
    """A tokenizer of a large vocabulary takes seconds and hundreds of megabytes to load."""
    session = Session([str(places["plain"])])
    first = session.store(0)
    others = [session.engine_ready(session.store(0, name)) for name in first.manifest.splits]
    assert len(others) > 1
    assert all(store.__dict__["engine"] is first.engine for store in others)
