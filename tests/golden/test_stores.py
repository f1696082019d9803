"""Stores that an earlier version wrote still open, verify, load, pack, export and go on, and give what they gave.

They are in `stores/`, one of every kind, and are never written again; `record.py` only adds to them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.cli import main

from .cases import CASES, EXPORTS, PACKS, STORE, build, lay_out, loaded
from .digests import batches_digest, documents_digest, export_digests, first_difference, pack_digests, store_digests
from .recipes import KEPT_IMPORTS, RECIPES, STORES, copy_kept, load_recorded, mixture

RECORDED = load_recorded()
KEPT = [name for name, case in CASES.items() if case.kept]
PACKED = [name for name, case in CASES.items() if case.kept_packs]
PARITY = "manifest.json: parity"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_kept_store_is_looked_at() -> None:
    assert sorted(path.name for path in STORES.iterdir()) == sorted([*KEPT, *KEPT_IMPORTS.values()])


@pytest.mark.usefixtures("directory")
class TestKeptStore:
    @pytest.mark.parametrize("name", KEPT)
    def test_gives_what_it_gave(self, name: str) -> None:
        assert tokpress.open(STORES / name).verify().problems == []
        found = RECIPES[f"store {name}"](RECORDED["fields"])
        assert first_difference(RECORDED["digests"][f"store {name}"], found) == ""

    @pytest.mark.parametrize("name", KEPT)
    def test_is_what_the_same_build_writes(self, name: str) -> None:
        """But for the record of how its engine was chosen: a later version tries more engines and says why not. And
        receipts of units with several shards or splits, which repeat each other now, and their checksums."""
        recorded = [RECORDED["digests"][f"{what} {name}"]["store"] for what in ("store", "build")]
        may_differ = {PARITY}
        if sum(re.fullmatch(r"shards/.*\.json", file) is not None for file in recorded[0]) > 1:
            may_differ |= {"manifest.json: files", *(file for file in recorded[0] if file.endswith(".json"))}
        kept, built = ({file: digest for file, digest in each.items() if file not in may_differ} for each in recorded)
        assert kept
        assert first_difference(kept, built) == ""

    @pytest.mark.parametrize("name", KEPT_IMPORTS)
    def test_of_imported_tokens_gives_what_it_gave(self, name: str) -> None:
        store = tokpress.open(STORES / KEPT_IMPORTS[name])
        assert store.verify().problems == []
        found = {"store": store_digests(store.path, RECORDED["fields"]), "documents": documents_digest(store)}
        assert first_difference(RECORDED["digests"][f"import {name}"], found) == ""

    @pytest.mark.parametrize("name", KEPT)
    def test_passes_a_deep_verify(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its documents are still what its sources and the reference tokenizer say; its packs are whole."""
        monkeypatch.setattr(sys, "argv", ["tokpress", "verify", "--deep", str(STORES / name)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0

    @pytest.mark.parametrize("name", KEPT)
    def test_is_found_finished_by_the_same_build(self, name: str) -> None:
        copy_kept(name)
        before = state_of(STORE)
        build(CASES[name])
        assert state_of(STORE) | {str(STORE): None} == before | {str(STORE): None}  # where the writer's lock was

    def test_that_is_unfinished_is_continued(self) -> None:
        store = copy_kept("plain", STORE)
        (store.path / "manifest.json").unlink()
        (store.path / "shards" / "train-00001-000.json").unlink()
        (store.path / "shards" / "train-00001-000.bin").write_bytes(b"half")
        again = build(CASES["plain"])
        found = store_digests(again.path, RECORDED["fields"])
        assert first_difference(RECORDED["digests"]["build plain"]["store"], found) == ""
        assert again.verify().problems == []

    def test_is_resumed_by_a_loader_that_was_saved_then(self) -> None:
        """The state names the stores by their fingerprints: it fits them, and no step is made twice."""
        options: dict[str, Any] = {"seed": 11, "weights": {"plain": 2, "masks": 1, "chats": 1}}
        whole, resumed = mixture(**options), mixture(**options)
        resumed.load_state_dict(RECORDED["state"])
        assert batches_digest(islice(resumed, 10)) == batches_digest(islice(whole, 7, 17))


@pytest.mark.usefixtures("directory")
class TestReadOnly:
    """A store may stand where nobody may write: nothing is created, removed or changed by whoever reads it."""

    @pytest.mark.parametrize("name", PACKED)
    def test_a_store_and_its_packs_are_read(self, name: str) -> None:
        recorded = RECORDED["digests"][f"store {name}"]
        store = tokpress.open(read_only(name))
        before = state_of(store.path)
        assert store.verify().problems == []
        assert first_difference(recorded["store"], store_digests(store.path, RECORDED["fields"])) == ""
        assert first_difference(recorded["packs"], pack_digests(store.path)) == ""
        assert documents_digest(store) == recorded["documents"]["train"]
        assert dict(loaded(store)) == recorded["batches"]["train"]
        for pack, options in PACKS.items():
            assert recorded["waste"][f"train {pack}"].startswith(f"{tokpress.pack(store.path, **options).sequences} ")
        tokpress.export(store, to="parquet", out="parquet", **EXPORTS["parquet bestfit"])
        assert first_difference(recorded["exports"]["parquet bestfit"], export_digests(Path("parquet"))) == ""
        assert state_of(store.path) == before


def read_only(name: str) -> Path:
    """A copy that may not be written to. The superuser may all the same: hence `state_of`."""
    copy = Path(shutil.copytree(STORES / name, STORE))
    for path in [copy, *copy.rglob("*")]:
        os.utime(path, ns=(0, 0))
        path.chmod(0o555 if path.is_dir() else 0o444)
    return copy


def state_of(directory: Path) -> dict[str, tuple[int, int]]:
    """When each file and directory was last changed; a file that comes and goes changes its directory."""
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in [directory, *directory.rglob("*")]}
