"""A store's bytes follow from its inputs and options alone: not from the workers, the memory or the batches."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from conftest import HARD_TEXTS, stored
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

import tokpress
from tokpress.errors import NothingWritten

pytestmark = pytest.mark.timeout(200)

BAD_LINES = [b"not json", b'{"text": 5}', b"{}", b'{"text": "\xff"}', b"[]"]
documents = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(HARD_TEXTS)
records = st.lists(
    documents.map(lambda text: json.dumps({"text": text, "id": text[::-1]}).encode()) | st.sampled_from(BAD_LINES)
)
tables = st.lists(st.none() | documents, max_size=30)
with_fields = st.one_of(
    st.tuples(st.sampled_from(["jsonl", "jsonl.gz", "jsonl.zst"]), records.map(b"\n".join)),
    st.tuples(st.sampled_from(["parquet", "arrow"]), tables),
)
files = with_fields | st.tuples(st.just("txt"), documents.map(str.encode))
corpora = st.lists(files, min_size=1, max_size=5)
cuts = st.fixed_dictionaries({"unit_size": st.integers(50, 3000), "shard_size": st.integers(20, 2000)})
resources = st.fixed_dictionaries(
    {"batch_bytes": st.none() | st.integers(1, 3000), "memory": st.sampled_from([None, "700MB", "2GB", "1TB"])}
)


def built(inputs: list[Path], out: Path, **options: Any) -> dict[str, bytes] | None:
    """The bytes of a store, sound and gone again; None if there was no good record for one."""
    try:
        store = tokpress.build(inputs, tokenizer="bytes", out=out, **options)
    except NothingWritten:
        return None
    assert store.verify().problems == []
    found = stored(store.path)
    shutil.rmtree(store.path)
    return found


def write(directory: Path, corpus: list[tuple[str, Any]]) -> list[Path]:
    directory.mkdir()
    for number, (kind, content) in enumerate(corpus):
        path = directory / f"{number}.{kind}"
        if kind in ("parquet", "arrow"):
            table = pa.table({"text": pa.array(content, pa.string()), "id": range(len(content))})
            if kind == "parquet":
                pq.write_table(table, path, row_group_size=7)
            else:
                with pa.ipc.new_stream(path, table.schema) as stream:
                    stream.write_table(table, max_chunksize=7)
        elif kind == "jsonl.gz":
            path.write_bytes(gzip.compress(content, mtime=0))
        elif kind == "jsonl.zst":
            path.write_bytes(zstandard.compress(content))
        else:
            path.write_bytes(content)
    return sorted(directory.iterdir())


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(corpus=corpora, cuts=cuts, used=st.lists(resources, min_size=3, max_size=3))
def test_whatever_the_workers_the_memory_and_the_batches(
    tmp_path_factory: pytest.TempPathFactory, corpus: list[tuple[str, Any]], cuts: Any, used: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("same")
    inputs = write(folder / "in", corpus)
    keep = [] if any(kind == "txt" for kind, _ in corpus) else ["id"]
    stores = []
    for workers, resources in zip((1, 2, 3), used, strict=True):
        options: dict[str, Any] = {"max_rejects": "100%", "keep": keep, "workers": workers}
        stores.append(built(inputs, folder / "out", **options, **cuts, **resources))
    assert stores[0] == stores[1] == stores[2]


SUPERVISED: dict[str, Any] = {"prompt_field": "text", "completion_field": "id", "overlong": "split"}


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    corpus=st.lists(st.tuples(st.sampled_from(["jsonl", "jsonl.gz"]), records.map(b"\n".join)), min_size=1, max_size=3),
    cuts=cuts,
    used=st.lists(resources, min_size=2, max_size=2),
    share=st.sampled_from([{"val_fraction": 0.4}, {"val_docs": 5}, {"val_fraction": 0.5, "split_key": "text"}]),
    max_length=st.integers(1, 40),
)
def test_of_masks_and_two_splits_too(
    tmp_path_factory: pytest.TempPathFactory, corpus: Any, cuts: Any, used: list[Any], share: Any, max_length: int
) -> None:
    folder = tmp_path_factory.mktemp("same")
    inputs = write(folder / "in", corpus)
    stores = []
    for workers, resources in zip((1, 2), used, strict=True):
        options: dict[str, Any] = {"max_rejects": "100%", "workers": workers, "max_length": max_length}
        stores.append(built(inputs, folder / "out", **SUPERVISED, **options, **share, **cuts, **resources))
    assert stores[0] == stores[1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    corpus=corpora,
    cuts=cuts,
    used=resources,
    split=st.booleans(),
    limit=st.none() | st.integers(1, 30),
    lost=st.integers(0, 2**16 - 1),
)
@example(  # a limit that is met in the second of two units, of which the last shard is lost
    corpus=[("jsonl", b"\n".join(b'{"text": "document %02d"}' % i for i in range(60)))],
    cuts={"unit_size": 500, "shard_size": 100},
    used={},
    split=False,
    limit=40,
    lost=1 << 7,
)
def test_however_much_of_it_was_there_already(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: list[tuple[str, Any]],
    cuts: Any,
    used: Any,
    split: bool,
    limit: int | None,
    lost: int,  # a bit a shard: how many there are is known later, and differs with the path, which splits depend on
) -> None:
    """A run that goes on after any receipts ends with the same bytes."""
    from tokpress.run import coordinator
    from tokpress.run.clusters.inline import InlineCluster

    folder = tmp_path_factory.mktemp("resumed")
    inputs = write(folder / "in", corpus)
    options: dict[str, Any] = {"tokenizer": "bytes", "out": folder / "out", "max_rejects": "100%", "workers": 1}
    options |= {"val_fraction": 0.4, "max_length": 9, "overlong": "split"} if split else {}
    options["limit"] = limit
    try:
        whole = tokpress.build(inputs, **options, **cuts)
    except NothingWritten:
        reject()  # nothing was there already
    expected = stored(whole.path)
    shards = [shard for part in whole.manifest.splits.values() for shard in part.shards]
    (whole.path / "manifest.json").unlink()
    for shard in (shard for i, shard in enumerate(shards) if lost >> i % 16 & 1):
        (whole.path / shard.path("json")).unlink()
        (whole.path / shard.path("bin")).write_bytes(b"half")
    with pytest.MonkeyPatch.context() as patch:  # in this process: a continued run usually gets processes
        patch.setattr(coordinator, "cluster_for", lambda job, storage, **_: InlineCluster(job, storage))
        resumed = tokpress.build(inputs, **options, **cuts, **used)
    assert stored(resumed.path) == expected
    assert resumed.verify().ok
