"""Which documents were in a step, and when a document is seen: against what the batches really held."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.errors import UsageError

from .conftest import SEQ_LEN

Data = tokpress.PretokenizedDataset


def text_at(path: str, position: int) -> str:
    with Path(path).open("rb") as file:
        file.seek(position)
        return str(json.loads(file.readline())["text"])


@pytest.mark.parametrize("world_size", [1, 2])
def test_where_names_the_documents_that_the_batch_holds(sources: dict[str, Data], world_size: int) -> None:
    options: dict[str, Any] = {"weights": {"web": 3, "code": 2}, "world_size": world_size}
    loaders = [tokpress.Loader(sources, batch_size=4, rank=rank, **options) for rank in range(world_size)]
    for step, batches in enumerate(itertools.islice(zip(*loaders, strict=True), 6)):
        rows = [row for batch in batches for row in batch["input_ids"].tolist()]
        told: list[list[int]] = [[] for _ in rows]
        assert [seen.sample for seen in loaders[0].where(step)] == sorted(s.sample for s in loaders[0].where(step))
        for seen in loaders[0].where(step):
            document = [*text_at(seen.path, seen.position).encode(), 256]
            told[seen.sample - step * len(rows)] += document[seen.first_token : seen.first_token + seen.tokens]
        assert told == rows


def test_when_is_the_inverse_of_where(sources: dict[str, Data]) -> None:
    loader = tokpress.Loader(sources, batch_size=4, weights={"web": 3, "code": 2}, max_epochs={"web": 2, "code": 1})
    seen = [(step, at) for step in range(len(loader)) for at in loader.where(step)]
    for name in ("web", "code"):
        for doc in range(len(sources[name].store)):
            told = sorted({step for step, at in seen if (at.source, at.doc) == (name, doc)})
            epochs = 2 if name == "web" else 1
            assert sorted({s for e in range(epochs) for s in loader.when(doc, source=name, epoch=e)}) == told


def test_hold_over_changes_of_the_batch_size(data: Data) -> None:
    first = tokpress.Loader(data, batch_size=4)
    for _ in itertools.islice(first, 3):
        pass
    second = tokpress.Loader(data, batch_size=10)
    second.load_state_dict(first.state_dict())
    assert second.where(2) == first.where(2)
    assert {seen.sample for seen in second.where(3)} == set(range(12, 22))
    for step in (2, 3, 7):
        assert all(step in second.when(seen.doc) for seen in second.where(step))


def test_a_step_that_there_is_not(data: Data) -> None:
    loader = tokpress.Loader(data, batch_size=4)
    for step in (-1, len(loader)):
        with pytest.raises(IndexError, match=f"there is no step {step}"):
            loader.where(step)


def test_a_document_that_there_is_not(data: Data) -> None:
    with pytest.raises(IndexError, match="document 100000 is outside"):
        tokpress.Loader(data, batch_size=4).when(100_000)


def test_an_empty_document_is_seen_nowhere(data: Data, tmp_path: Path) -> None:
    from .conftest import build

    store = build(tmp_path, ["a" * 40, "", "b" * 40], eos=False)
    loader = tokpress.Loader(Data(store, seq_len=SEQ_LEN), batch_size=1)
    assert loader.when(1) == []
    assert loader.when(0) != []


def test_of_several_sources_one_must_be_named(sources: dict[str, Data]) -> None:
    with pytest.raises(UsageError, match="give one of web, code, math"):
        tokpress.Loader(sources, batch_size=4).when(0)
