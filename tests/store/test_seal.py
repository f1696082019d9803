"""The manifest: written last, adds up, and vouches for every file that is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run.jobs import SETTINGS, begin, budget, inline, write_texts

from tokpress.documents.frame import frame_for
from tokpress.records import MANIFEST, Counts, Manifest, Parity, Plan, RunFacts, TokenizerInfo
from tokpress.run.messages import Job
from tokpress.run.tasks import remaining_tasks
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_manifest
from tokpress.store.receipts import Receipts, read_receipts
from tokpress.store.seal import seal_store
from tokpress.store.verify import verify_store

EQUAL = Parity(outcome="equal", engine="gigatoken", reference="huggingface", docs=9, bytes=99)
NOT_NEEDED = Parity(outcome="not-needed", engine="bytes", reference="bytes")


@pytest.fixture
def written(tmp_path: Path) -> tuple[Job, Plan]:
    """A store with all its shards and rejects, but without a manifest."""
    source = write_texts(tmp_path / "a.jsonl", 60)
    source.write_text(source.read_text() + "not json\n{}\nnot json\n")
    job, plan = begin(tmp_path / "store", [source], unit_bytes=900, shard_bytes=300)
    worker = inline(job)
    worker.configure(SETTINGS, budget(1))
    for _ in worker.run(remaining_tasks(plan, {}), lambda number, advanced: None, lambda views: None):
        pass
    return job, plan


def seal(job: Job, plan: Plan, receipts: Receipts, parity: Parity = NOT_NEEDED) -> Manifest:
    info: TokenizerInfo = plan.tokenizer
    frame = frame_for(job.config.tokenizer, info)
    return seal_store(LocalStorage(job.url), plan, job.config, frame, receipts, parity, RunFacts(seconds=1.5))


class TestSeal:
    def test_makes_a_store_that_is_sound(self, written: tuple[Job, Plan]) -> None:
        job, plan = written
        manifest = seal(job, plan, read_receipts(LocalStorage(job.url)))
        assert verify_store(Path(job.url)).ok
        assert read_manifest(LocalStorage(job.url)) == manifest
        assert manifest.run == RunFacts(seconds=1.5)

    def test_adds_up(self, written: tuple[Job, Plan]) -> None:
        job, plan = written
        receipts = read_receipts(LocalStorage(job.url))
        manifest = seal(job, plan, receipts)
        assert manifest.totals == Counts(read=63, written=60, rejected=3)
        assert len(manifest.units) == len(plan.units) > 1
        assert sum(manifest.units, Counts()) == manifest.totals
        assert manifest.rejects == {"bad-json": 2, "missing-field": 1}
        assert (manifest.splits["train"].docs, manifest.dtype, manifest.eos_id) == (60, "uint16", 256)

    def test_lists_shards_in_the_order_of_the_inputs(self, written: tuple[Job, Plan]) -> None:
        """Whatever the order in which units were finished."""
        job, plan = written
        receipts = read_receipts(LocalStorage(job.url))
        shuffled = {unit: receipts[unit] for unit in sorted(receipts, reverse=True)}
        shards = seal(job, plan, shuffled).splits["train"].shards
        assert [(shard.unit, shard.number) for shard in shards] == sorted((s.unit, s.number) for s in shards)
        assert verify_store(Path(job.url)).ok

    def test_a_unit_without_receipts_cannot_be_sealed(self, written: tuple[Job, Plan]) -> None:
        job, plan = written
        receipts = read_receipts(LocalStorage(job.url))
        del receipts[1]
        with pytest.raises(KeyError):
            seal(job, plan, receipts)
        assert not (Path(job.url) / MANIFEST).exists()

    @pytest.mark.parametrize(("parity", "rate"), [(EQUAL, 0.001), (NOT_NEEDED, 0.0)])
    def test_tells_the_audit_only_if_there_was_one(
        self, written: tuple[Job, Plan], parity: Parity, rate: float
    ) -> None:
        job, plan = written
        manifest = seal(job, plan, read_receipts(LocalStorage(job.url)), parity)
        assert (manifest.parity, manifest.audit.rate, manifest.audit.docs) == (parity, rate, 0)

    def test_is_the_last_thing_written(self, written: tuple[Job, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
        job, plan = written
        seen: list[bool] = []
        fsync = os.fsync

        def sync(descriptor: int) -> None:
            seen.append((Path(job.url) / MANIFEST).exists())
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", sync)
        seal(job, plan, read_receipts(LocalStorage(job.url)))
        assert seen == [False, True]  # the file's own sync, then the directory's
