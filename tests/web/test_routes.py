"""What the page is told is what Python says, and the Python beside it gives the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import tokpress
from tokpress import view
from tokpress.web import session as session_module


def run(code: str) -> Any:
    """What a notebook shows for these lines: the value of the last one."""
    *before, last = code.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(before), names)
    return eval(last, names)


STORE_QUERIES = [
    "store?store=0",
    "store?store=0&split=val",
    "store/lengths?store=0",
    "store/tokens?store=0",
    "store/inputs?store=0&split=val",
    "store/rejects?store=0",
    "store/packings?store=0&seq_len=64",
    "document?store=0&doc=3",
    "document?store=0&split=val&doc=1&first=2&count=5",
    "document?store=1&doc=7",
    "find?store=0&by=text&value=Document 1",
    "find?store=0&by=text&value=document 1&ignore_case=1",
    "find?store=0&by=token&value=10",
    "find?store=0&by=field&field=id&value=a4",
    "sequence?store=0&seq=1&seq_len=64",
    "sequence?store=1&seq=2&seq_len=32&method=pad&shift=1&first=5",
    "step?store=0&step=1&seq_len=64&batch_size=4&world_size=2&seed=5",
    "step?store=0&step=0&seq_len=32&weights=0:3,1:1&shift=1",
    "when?store=0&doc=3&seq_len=64&batch_size=2",
    "align?store=0&doc=3&other=1",
]


@pytest.mark.parametrize("query", STORE_QUERIES)
def test_the_python_of_a_view_gives_the_same(client: httpx.Client, query: str) -> None:
    answer = client.get(f"/api/{query}")
    assert answer.status_code == 200, answer.text
    reply = answer.json()
    assert msgspec.json.decode(msgspec.json.encode(run(reply["python"]))) == reply["view"]


def test_contents_are_the_stores_that_were_given(client: httpx.Client, places: dict[str, Path]) -> None:
    stores = client.get("/api/contents").json()["view"]["stores"]
    assert [store["path"] for store in stores] == [str(place) for place in places.values()]
    assert stores[0]["splits"].keys() == {"train", "val"}
    assert (stores[0]["fields"], stores[1]["fields"]) == (True, False)


def test_a_document_by_its_place_in_an_input(client: httpx.Client, places: dict[str, Path]) -> None:
    store = tokpress.open(places["plain"])
    for doc in (0, 7, store.num_docs - 1):
        source, position = store.where(doc)
        asked: dict[str, str | int] = {"store": 0, "source": source, "position": position}
        assert client.get("/api/document/at", params=asked).json()["view"]["doc"] == doc
        asked["position"] = position - 1 if position else 0
        assert client.get("/api/document/at", params=asked).json()["view"]["doc"] == doc
    beyond: dict[str, str | int] = {"source": store.where(0)[0], "position": 10**9}
    assert client.get("/api/document/at", params=beyond).json()["view"]["doc"] is None


def test_errors_are_said_in_our_words(client: httpx.Client) -> None:
    assert "outside this split's" in client.get("/api/document?doc=100000").json()["error"]
    assert client.get("/api/document?doc=100000").status_code == 404
    assert "no split" in client.get("/api/store?split=nothing").json()["error"]
    assert "no store 9" in client.get("/api/store?store=9").json()["error"]
    assert "none of the fields" in client.get("/api/find?by=field&field=x&value=1").json()["error"]


def test_many_requests_at_once_are_all_answered(client: httpx.Client) -> None:
    asked = [f"/api/document?doc={i % 40}" for i in range(60)] + ["/api/store/tokens", "/api/find?by=text&value=zzz"]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(client.get, asked))
    assert {answer.status_code for answer in answers} == {200}
    alone = [client.get(path).json() for path in asked[:5]]
    assert [answer.json() for answer in answers[:5]] == alone


def test_a_page_of_tokens_is_what_view_gives(client: httpx.Client, places: dict[str, Path]) -> None:
    found = client.get("/api/document?doc=5").json()["view"]
    document = msgspec.convert(found, view.DocumentView, builtin_types=())
    assert document == view.view_document(tokpress.open(places["plain"]), 5)


def test_files_of_shards_are_let_go_and_opened_again(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_MOST_HELD", 0)  # always too much
    session = session_module.Session([str(places["plain"])])
    session.warm()
    store = session.store(0, "val")
    before, engine = store.doc(1).tolist(), session.engine_ready(store).engine
    session.let_go()
    again = session.store(0, "val")
    assert again is not store
    assert again.doc(1).tolist() == before == store.doc(1).tolist()
    assert session.engine_ready(again).engine is engine  # loaded once
