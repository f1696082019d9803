"""What notebooks show: HTML in which every text is text; and a build's progress."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress import drawing, view
from tokpress.run import events
from tokpress.view.progress import NotebookProgress, ScriptProgress, build_progress

HOSTILE = "<script>alert(1)</script> \u202ert\u202c \x1b[31m \0 <img src=x onerror=a> & \"q\" 'p' 👍\u200d"
TAGS = {"style", "div", "h3", "table", "tr", "th", "td", "span", "svg", "rect", "progress"}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    return tags


@pytest.fixture
def store(tmp_path: Path) -> tokpress.Store:
    source = tmp_path / "<b>name.jsonl"
    source.write_text(
        "".join(json.dumps({"text": text, "k": HOSTILE}) + "\n" for text in (HOSTILE, "plain " * 50)) + "<i>\n"
    )
    return tokpress.build(source, tokenizer="bytes", out=tmp_path / "s<u>", keep=["k"])


def shown(store: tokpress.Store) -> dict[str, Any]:
    data = tokpress.PretokenizedDataset(store, seq_len=32, output="numpy")
    loader = tokpress.Loader(data, batch_size=2, threads=0)
    return {
        "store": store,
        "dataset": data,
        "loader": loader,
        "document": view.view_document(store, 0),
        "sequence": view.view_sequence(store, 0, seq_len=32),
        "batch": view.view_step(loader, 0),
    }


def test_everything_is_escaped(store: tokpress.Store) -> None:
    for name, each in shown(store).items():
        tags = parsed(each._repr_html_())
        assert tags.found <= TAGS, name
        assert not {attribute for attribute in tags.attributes if attribute.startswith("on")}, name
        assert not set(tags.text) & set("\x00\x1b\u202e\u202c"), name
    assert "U+202E" in shown(store)["document"]._repr_html_()


def test_what_is_shown_is_the_text(store: tokpress.Store) -> None:
    seen = parsed(drawing.visible("a <b> 👩\u200d👧 é\u202e")).text
    assert seen == "a <b> 👩\u200d👧 éU+202E"


def test_a_report_is_one_file_without_anything_else(store: tokpress.Store) -> None:
    html = view.report_store(store, seq_len=32).html()
    tags = parsed(html)
    assert tags.found <= TAGS | {"html", "head", "meta", "title", "body", "main", "h1", "h2", "p", "pre"}
    assert not {"src", "href"} & tags.attributes
    assert "http" not in html.replace("http-equiv", "")
    assert "bad-json" in tags.text
    assert not set(html) & set("\x00\x1b\u202e")


def test_plots_are_drawn(store: tokpress.Store, tmp_path: Path) -> None:
    names = []
    for name, figure in view.report_store(store, seq_len=32).plots():
        figure.savefig(tmp_path / f"{name}.png")
        names.append(name)
        assert (tmp_path / f"{name}.png").stat().st_size > 1_000
    assert names[:3] == ["lengths", "frequent", "sources"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told() -> list[events.Event]:
    """A build of half a minute."""
    advanced = [events.Advanced(time=k, worker=0, input_bytes=100, docs=1, tokens=50) for k in range(1, 31)]
    return [
        events.Began(started_at=0.0, store="\x1b[31m", version="0"),
        events.Started(bytes=3000, units=1, workers=1, threads=1),
        *advanced,
        events.Failed(time=31.0, error="KeyboardInterrupt", message="\x1b[31m"),
    ]


def test_a_script_s_log_gets_a_line_now_and_then() -> None:
    stream, clock = io.StringIO(), Clock()
    reporter = ScriptProgress(stream, clock)
    for event in told():
        clock.now = event.time
        reporter.on(event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "33%" in lines[0] or "37%" in lines[0]
    assert "30 documents, 1,500 tokens" in lines[-1]
    assert "\x1b" not in stream.getvalue()


def test_a_notebook_s_bar_moves() -> None:
    class Handle:
        def __init__(self, html: str) -> None:
            self.shown = [html]

        def update(self, obj: Any) -> None:
            self.shown.append(obj._repr_html_())

    handles: list[Handle] = []
    clock = Clock()
    reporter = NotebookProgress(lambda html: handles.append(Handle(html)) or handles[-1], clock)  # type: ignore[func-returns-value]
    for event in told():
        clock.now = event.time
        reporter.on(event)
    (handle,) = handles
    assert len(handle.shown) > 20
    assert 'value="1.0000"' in handle.shown[-1]
    assert "failed" in handle.shown[-1]


def test_where_progress_is_shown() -> None:
    assert build_progress(False, has_reporter=False) is None
    assert build_progress("auto", has_reporter=True) is None
    assert isinstance(build_progress("auto", has_reporter=False), ScriptProgress)
    assert isinstance(build_progress(True, has_reporter=True), ScriptProgress)


def test_a_build_tells_a_reporter_and_shows_its_progress(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    heard: list[events.Event] = []
    tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "s", reporter=heard.append, progress=True)
    assert isinstance(heard[-1], events.Finished)


def test_other_reprs(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "some text to read"}\n' * 20)
    live = tokpress.LiveDataset(tmp_path / "a.jsonl", tokenizer="bytes", seq_len=8, batch_size=2, workers=1)
    assert repr(live) == "LiveDataset(bytes, seq_len=8, batch_size=2, step=0, rejects=0)"
    tokenizer = tokpress.ParallelTokenizer("bytes", workers=1)
    assert repr(tokenizer) == "ParallelTokenizer('bytes', engine='bytes', vocab_size=257, workers=1)"
