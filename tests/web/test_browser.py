"""The page in a real Chromium: every view, on text that wants to be more than text."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.web.server import ViewServer
from tokpress.web.session import Session

from . import corpora, sparse
from .browsing import Visit, browser, visit
from .serving import serving

WHOLE = os.environ.get("TOKPRESS_BROWSER_EVERYTHING") == "1"  # make browser; make test has a seeded few
ADDRESSES = {  # address -> what is there when it is drawn
    "/store?store=0": "#lengths svg",
    "/store?store=0&split=val": "#frequent .rows",
    "/store?store=1": "#provenance",
    "/document?store=0&doc=1": ".tokens .t",
    "/document?store=0&doc=2&ids=1&ws=1": ".t-id",
    "/document?store=1&doc=3": ".t.masked",
    "/document?store=2&doc=1": ".pager",
    "/document?store=2&doc=1&first=500000": ".tokens .t",
    "/document?store=0&by=text&value=number%205": ".hits a",
    "/document?store=0&by=token&value=10": ".progress",
    "/document?store=0&by=field&field=id&value=a4": ".hits a",
    "/sequence?store=0&seq_len=128&seq=2": ".doc-mark",
    "/sequence?store=1&seq_len=64&method=pad&seq=1": ".t.padding",
    "/sequence?store=0&seq_len=64&shift=1": ".tokens .t",
    "/step?store=0&seq_len=64&step=2&batch_size=4&world_size=2": ".row .t",
    "/step?store=0&seq_len=64&weights=0:3,1:1&doc=3": ".answer",
    "/compare?store=0&doc=3&a=0&b=3": ".t.differs",
    "/compare?store=0&text=Stra%C3%9Fe%20%F0%9F%91%8D&a=0&b=3": ".tokens.plain .t",
    "/compare?store=0&doc=3&other=3": ".count-row",
    "/run": "#what",
    "/training": "#phases svg",
    "/store?store=4": "#lengths .note",
    "/document?store=4&doc=99999999": ".tokens .t",
}
A_FEW = random.Random(20).sample(sorted(ADDRESSES), 7)


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def shown(
    opened: Any, places: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, bpe: Path
) -> Iterator[ViewServer]:
    directory = tmp_path_factory.mktemp("browser")
    events = directory / "events.jsonl"
    source = corpora.write(directory / "run.jsonl", [{"text": text} for text in corpora.HOSTILE], "<script>bad\n")
    from tokpress.run.event_log import EventLog

    with EventLog(events) as log:
        tokpress.build(source, tokenizer=bpe, out=directory / "run", reporter=log)
    (directory / "meter.jsonl").write_text("".join(json.dumps(_values(step)) + "\n" for step in range(1, 30)))
    again = tokpress.build(
        [places["plain"].parent / "a.jsonl", places["plain"].parent / "b.jsonl"],
        tokenizer="bytes",
        out=directory / "again",
    )
    stores = [
        *places.values(),
        corpora.long(directory, bpe),
        again.path,
        sparse.make(directory / "sparse", shards=100),
    ]
    session = Session([str(store) for store in stores], events=[str(events)], meters=[str(directory / "meter.jsonl")])
    with serving(session) as server:
        yield server


def _values(step: int) -> dict[str, float]:
    return {"step": step, "step_ms": 50.0, "tokens_per_s": 1e5, "share_data": 0.1, "share_compute": 0.9}


@pytest.fixture
def visitor(opened: Any, shown: ViewServer) -> Iterator[Visit]:
    with visit(opened, shown) as page:
        yield page


@pytest.mark.parametrize("address", sorted(ADDRESSES) if WHOLE else A_FEW)
def test_every_address_is_drawn_and_nothing_is_complained_of(visitor: Visit, address: str) -> None:
    visitor.go(address, ADDRESSES[address])
    visitor.check()
    assert visitor.page.locator(".failure").count() == 0


@pytest.mark.parametrize("number", range(len(corpora.HOSTILE)) if WHOLE else [0, 1, 5, 7])
def test_hostile_text_is_text_everywhere(visitor: Visit, places: dict[str, Path], number: int) -> None:
    text = corpora.HOSTILE[number]
    store = tokpress.open(places["plain"])
    splits = {name: store.split(name) for name in ("train", "val")}
    split, doc = next((name, i) for name, each in splits.items() for i in range(len(each)) if each.text(i) == text)
    plain = "".join(char for char in text if char.isprintable())
    visitor.go(f"/document?store=0&split={split}&doc={doc}", ".doc-text")
    spelled = visitor.page.locator(".doc-text").evaluate(
        "e => [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('')"
    )
    assert spelled == plain
    drawn = visitor.page.locator(".doc-text .hidden-char").count()
    assert drawn == sum(not char.isprintable() for char in text)
    assert not set(visitor.text(".doc-text")) & set("\x00\x07\x1b\x9b\u202e\u2066")
    for address, ready in (
        (f"/sequence?store=0&split={split}&seq_len=64&method=pad&seq={doc}", ".tokens .t"),
        (f"/compare?store=0&split={split}&doc={doc}&a=0&b=3", ".tokens.plain"),
        ("/store?store=0", "#rejects .reason, #rejects .badge"),
        ("/run", "#latest .preview"),
    ):
        visitor.go(address, ready)
        visitor.check()
    assert visitor.page.locator("main script, main img, main iframe, main svg[onload]").count() == 0


class TestUse:
    def test_keys_go_from_document_to_document(self, visitor: Visit) -> None:
        visitor.go("/document?store=0&doc=1", ".tokens .t")
        visitor.page.keyboard.press("j")
        visitor.page.locator('#doc-number[value="2"]').wait_for()
        visitor.page.keyboard.press("k")
        visitor.page.locator('#doc-number[value="1"]').wait_for()
        assert "doc=1" in visitor.page.url
        visitor.page.keyboard.press("w")
        visitor.page.locator(".tokens .space").first.wait_for()
        visitor.page.keyboard.press("3")
        visitor.page.locator(".view-sequence .tokens .t").first.wait_for()
        visitor.page.go_back()
        visitor.page.locator(".view-document .tokens .space").first.wait_for()
        visitor.page.keyboard.press("?")
        assert "next document" in visitor.text("dialog")
        visitor.check()

    def test_a_token_says_what_it_is(self, visitor: Visit, places: dict[str, Path]) -> None:
        visitor.go("/document?store=0&doc=3", ".tokens .t")
        visitor.page.locator(".tokens").focus()
        visitor.page.keyboard.press("ArrowRight")
        visitor.page.keyboard.press("ArrowRight")
        token = int(tokpress.open(places["plain"]).doc(3)[1])
        assert f"id{token}" in visitor.text(".inspector").replace("\n", "").replace(" ", "")
        assert "at=1" in visitor.page.url  # the state is in the address
        visitor.page.reload()
        visitor.page.locator('[data-n="1"][aria-selected="true"]').wait_for()
        visitor.check()

    def test_the_python_that_is_copied_gives_the_same(self, visitor: Visit) -> None:
        visitor.go("/document?store=0&doc=3", ".copy")
        code = visitor.page.locator(".copy").get_attribute("data-python")
        names: dict[str, Any] = {}
        *before, last = code.splitlines()
        exec("\n".join(before), names)
        found = eval(last, names)
        shown = visitor.page.locator(".doc-text").inner_text()
        assert found.text.removesuffix("<|endoftext|>").strip() == shown.strip()

    def test_right_to_left_text_is_laid_out_so(self, visitor: Visit, places: dict[str, Path]) -> None:
        store = tokpress.open(places["plain"])
        found = [
            (name, i)
            for name in ("train", "val")
            for i in range(len(store.split(name)))
            if "اللغة" in store.split(name).text(i)
        ]
        split, doc = found[0]
        visitor.go(f"/document?store=0&split={split}&doc={doc}", ".doc-text")
        box = visitor.page.locator(".doc-text").evaluate(
            "e => { const r = document.createRange(); r.setStart(e.firstChild, 0); r.setEnd(e.firstChild, 1);"
            " const a = r.getBoundingClientRect(), b = e.getBoundingClientRect();"
            " return [a.left - b.left, b.right - a.right] }"
        )
        assert box[1] < box[0]  # the first letter stands at the right edge
        visitor.check()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_narrow_screens_do_not_scroll_sideways(self, opened: Any, shown: ViewServer, scheme: str) -> None:
        with visit(opened, shown, viewport={"width": 360, "height": 740}, color_scheme=scheme) as page:
            for address in (
                "/store?store=0",
                "/document?store=0&doc=3",
                "/sequence?store=1&seq_len=64",
                "/step?store=0&seq_len=64",
                "/run",
            ):
                page.go(address, ADDRESSES.get(address, "main h1, main h2"))
                wide = page.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, address
            page.check()


def test_no_serious_fault_of_accessibility(opened: Any, shown: ViewServer) -> None:
    axe = Path(os.environ.get("TOKPRESS_AXE", Path(__file__).parent.parent.parent / "node_modules/axe-core/axe.min.js"))
    if not axe.is_file():
        pytest.skip("no accessibility test: there is no axe-core (npm install --no-save axe-core@4, or make browser)")
    for scheme in ("light", "dark"):
        with visit(opened, shown, color_scheme=scheme) as page:
            for address in sorted(ADDRESSES) if WHOLE else ["/store?store=0", "/document?store=1&doc=3", "/run"]:
                page.go(address, ADDRESSES[address])
                page.page.evaluate(axe.read_text())
                found = page.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
                serious = [
                    (entry["id"], [node["html"][:160] for node in entry["nodes"][:3]])
                    for entry in found["violations"]
                    if entry["impact"] in ("serious", "critical")
                ]
                assert serious == [], (address, scheme)
