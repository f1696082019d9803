"""`tokpress report`, and `tokpress view` before it serves."""

from __future__ import annotations

from pathlib import Path

from .conftest import Cli


def test_a_page_and_its_plots(cli: Cli, store: Path, tmp_path: Path) -> None:
    result = cli("report", store, "--out", tmp_path / "r.html", "--plots", tmp_path / "plots", "--seq-len", 64)
    assert result.code == 0
    assert "\x1b[31mred" not in (tmp_path / "r.html").read_text()
    assert {path.stem for path in (tmp_path / "plots").iterdir()} >= {
        "lengths",
        "frequent",
        "sources",
        "packing-pad-64",
    }


def test_view_of_nothing_says_what_to_name(cli: Cli) -> None:
    result = cli("view")
    assert result.code == 2
    assert "nothing to show" in result.err


def test_view_of_no_store_says_so(cli: Cli, tmp_path: Path) -> None:
    result = cli("view", tmp_path / "none", "--no-open")
    assert result.code == 1
    assert "no store at" in result.err
