"""`--dry-run`: what a run would take, from a sample of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokpress
from tokpress.options import BuildOptions, build_config
from tokpress.run import projection
from tokpress.run.budget import PARENT_BYTES
from tokpress.run.coordinator import make_job
from tokpress.run.projection import Projection, project
from tokpress.storage.local import LocalStorage

from .jobs import write_texts

_SECONDS = 12.0  # that the sample took


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "a.jsonl", 90)


@pytest.fixture
def projected(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Projection:
    """Of three units, all of them sampled, on a machine of eight cores."""
    monkeypatch.setattr(projection, "usable_cores", lambda: 8)
    monkeypatch.setattr(projection, "_seconds", lambda _: _SECONDS)
    storage = LocalStorage(tmp_path / "store")
    job = make_job([source], storage, build_config("bytes", {"unit_size": source.stat().st_size // 3}))
    return project(job, storage)[1]


class TestProjection:
    def test_of_all_the_input_is_what_a_build_makes_of_it(
        self, projected: Projection, source: Path, tmp_path: Path
    ) -> None:
        store = tokpress.build(source, tokenizer="bytes", out=tmp_path / "store")
        assert (projected.inputs, projected.units) == (1, 3)
        assert projected.input_bytes == projected.sampled_bytes == source.stat().st_size
        assert (projected.docs, projected.tokens) == (store.num_docs, store.num_tokens)
        shards = store.manifest.splits["train"].shards
        assert projected.disk_bytes == sum(file.bytes for shard in shards for file in shard.files.values())

    def test_a_worker_without_a_unit_makes_nothing_faster(self, projected: Projection) -> None:
        seconds = {line.workers: line.seconds for line in projected.workers}
        assert list(seconds) == [1, 2, 4, 8, 16]
        start = seconds[1] - _SECONDS
        assert start > 0
        assert [round(taken - start, 1) for taken in seconds.values()] == [12.0, 6.0, 4.0, 4.0, 4.0]

    def test_each_worker_takes_its_memory(self, projected: Projection) -> None:
        memory = {line.workers: line.memory_bytes - PARENT_BYTES for line in projected.workers}
        assert memory[1] > 0
        assert memory == {count: count * memory[1] for count in memory}

    def test_writes_nothing(self, projected: Projection, tmp_path: Path) -> None:
        assert projected.docs > 0
        assert not (tmp_path / "store").exists()

    def test_masks_take_their_room(self, tmp_path: Path) -> None:
        source = tmp_path / "qa.jsonl"
        source.write_text('{"q": "How many?", "a": "Five."}\n' * 50)
        options: BuildOptions = {"prompt_field": "q", "completion_field": "a"}
        storage = LocalStorage(tmp_path / "store")
        projected = project(make_job([source], storage, build_config("bytes", options)), storage)[1]
        store = tokpress.build(source, tokenizer="bytes", out=tmp_path / "store", **options)
        [shard] = store.manifest.splits["train"].shards
        assert projected.disk_bytes == sum(file.bytes for file in shard.files.values())

    def test_no_more_is_read_than_a_sample(self, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(projection, "_SAMPLE_BYTES", 500)
        storage = LocalStorage(tmp_path / "store")
        projected = project(make_job([source], storage, build_config("bytes", {"batch_bytes": 200})), storage)[1]
        assert projected.input_bytes == source.stat().st_size > 2000
        assert 500 <= projected.sampled_bytes < 1000
        assert projected.docs == pytest.approx(90, abs=5)
