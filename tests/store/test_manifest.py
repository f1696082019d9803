"""The records of a store: canonical, sealed, and refused where they could lead astray."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokpress.errors import StoreError
from tokpress.records import MANIFEST, PLAN, Counts, Manifest, Plan, Receipt, shard_name
from tokpress.storage.base import checksum
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import encode, fingerprint, is_intact, read_manifest, read_record, seal, write_manifest
from tokpress.store.reader import open_store
from tokpress.store.verify import verify_store

JsonObject = dict[str, Any]


class TestCanonicalForm:
    @pytest.mark.parametrize(
        ("name", "kind"), [(PLAN, Plan), (MANIFEST, Manifest), ("shards/train-00000-000.json", Receipt)]
    )
    def test_a_record_that_was_read_is_written_the_same(
        self, sound_store: Path, name: str, kind: type[msgspec.Struct]
    ) -> None:
        assert encode(read_record(LocalStorage(sound_store), name, kind)) == (sound_store / name).read_bytes()

    def test_the_manifest_is_sealed_by_its_own_checksum(self, sound_store: Path) -> None:
        data = (sound_store / MANIFEST).read_bytes()
        manifest = read_manifest(LocalStorage(sound_store))
        assert is_intact(manifest, data)
        assert manifest.checksum == checksum(data.replace(manifest.checksum.encode(), b""))

    @pytest.mark.parametrize("spoil", [bytes.strip, lambda data: data + b"\n", lambda data: data.replace(b" ", b"", 1)])
    def test_bytes_that_mean_the_same_are_not_intact(self, sound_store: Path, spoil: Callable[[bytes], bytes]) -> None:
        assert not is_intact(read_manifest(LocalStorage(sound_store)), spoil((sound_store / MANIFEST).read_bytes()))

    def test_writing_seals(self, sound_store: Path, tmp_path: Path) -> None:
        manifest = read_manifest(LocalStorage(sound_store))
        again = write_manifest(LocalStorage(tmp_path), msgspec.structs.replace(manifest, checksum="?", fingerprint="?"))
        assert again == manifest
        assert (tmp_path / MANIFEST).read_bytes() == (sound_store / MANIFEST).read_bytes()
        assert seal(msgspec.structs.replace(manifest, checksum="?")) == manifest


class TestFingerprint:
    @pytest.mark.parametrize(
        "change",
        [{"dtype": "uint32"}, {"bos_id": 7}, {"eos_id": None}, {"special_tokens": "parse"}, {"splits": {}}],
    )
    def test_depends_on_what_gives_tokens_their_meaning(self, sound_store: Path, change: JsonObject) -> None:
        manifest = read_manifest(LocalStorage(sound_store))
        assert fingerprint(msgspec.structs.replace(manifest, **change)) != manifest.fingerprint

    @pytest.mark.parametrize("change", [{"run": {}}, {"units": []}, {"rejects": {}}, {"files": {}}, {"checksum": ""}])
    def test_does_not_depend_on_how_they_were_made(self, sound_store: Path, change: JsonObject) -> None:
        manifest = read_manifest(LocalStorage(sound_store))
        assert fingerprint(msgspec.structs.replace(manifest, **change)) == manifest.fingerprint


class TestSmallRecords:
    def test_counts_add_up(self) -> None:
        one, two = Counts(read=3, written=2, rejected=1), Counts(read=1000, written=1000)
        assert one + two == Counts(read=1003, written=1002, rejected=1)
        assert str(one + two) == "1,003 read, 1,002 written, 1 rejected"

    @pytest.mark.parametrize(
        ("parts", "name"),
        [
            (("train", 0, 0), "train-00000-000"),
            (("val", 12, 3), "val-00012-003"),
            (("t", 123456, 1234), "t-123456-1234"),
        ],
    )
    def test_shards_are_named_by_split_unit_and_number(self, parts: tuple[str, int, int], name: str) -> None:
        assert shard_name(*parts) == name


opened: list[str] | None = None


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and opened is not None:
        opened.append(str(arguments[0]))


sys.addaudithook(_note_open)


@contextmanager
def files_opened() -> Iterator[list[str]]:
    global opened
    opened = []
    try:
        yield opened
    finally:
        opened = None


def set_at(*keys: str | int, to: object) -> Callable[[JsonObject], None]:
    def change(manifest: JsonObject) -> None:
        inner: Any = manifest
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to

    return change


def remove(*keys: str | int) -> Callable[[JsonObject], None]:
    def change(manifest: JsonObject) -> None:
        inner: Any = manifest
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]

    return change


def both(*changes: Callable[[JsonObject], None]) -> Callable[[JsonObject], None]:
    def change(manifest: JsonObject) -> None:
        for part in changes:
            part(manifest)

    return change


SHARD = ("splits", "train", "shards", 0)
ENTRY = {"bytes": 4, "xxh3": "0" * 16}
NAMES = [
    "../x",
    "/etc/passwd",
    "shards/../../x",
    "a/b/c",
    "..",
    ".",
    "",
    "shards/",
    "shards/..",
    "a\0b",
    "a\\b",
    "a b",
    "x\n",
]
HOSTILE: dict[str, Callable[[JsonObject], None]] = (
    {f"file {name!r}": set_at("files", name, to=ENTRY) for name in NAMES}
    | {f"extension {name!r}": set_at(*SHARD, "files", name, to=ENTRY) for name in ("/../../x", "a/b", "\0", " ")}
    | {
        f"split {name!r}": both(
            lambda manifest, name=name: manifest["splits"].update({name: manifest["splits"]["train"]}),  # type: ignore[misc]
            set_at("splits", name, "shards", 0, "split", to=name),
        )
        for name in ("../../x", "/x", "a/b", "x\n")
    }
    | {
        f"{field} {value}": set_at(*SHARD, field, to=value)
        for field in ("unit", "number", "docs", "tokens", "max_id", "next_position")
        for value in (-2, 2**49, 10**30, 1.5, "1", True, [1])
    }
    | {
        "split of another": set_at(*SHARD, "split", to="val"),
        "shard twice": lambda manifest: manifest["splits"]["train"]["shards"].extend(
            manifest["splits"]["train"]["shards"]
        ),
        "shard file among the others": set_at("files", "shards/train-00000-000.bin", to=ENTRY),
        "no bin": remove(*SHARD, "files", "bin"),
        "no ends": remove(*SHARD, "files", "ends"),
        "no pos": remove(*SHARD, "files", "pos"),
        "negative bytes": set_at(*SHARD, "files", "bin", "bytes", to=-1),
        "huge bytes": set_at("files", PLAN, "bytes", to=2**64),
        "object dtype": set_at("dtype", to="object"),
        "float dtype": set_at("dtype", to="float64"),
        "dtype with a line end": set_at("dtype", to="uint16\n"),
        "unknown policy": set_at("special_tokens", to="maybe"),
        "version 2": set_at("format_version", to=2),
        "version as text": set_at("format_version", to="1"),
        "other format": set_at("format", to="something"),
        "no tokenizer": remove("tokenizer"),
        "splits as a list": set_at("splits", to=[]),
        "negative totals": set_at("totals", "read", to=-1),
    }
)  # fmt: skip

NOT_A_MANIFEST = {
    "empty": b"",
    "no JSON": b"hello",
    "cut": b'{"format": "tokpress-store", "format_version": 1',
    "null": b"null",
    "list": b"[]",
    "empty object": b"{}",
    "bytes": bytes(range(256)),
    "nested too deeply": b'{"format": "tokpress-store", "format_version": 1, "run": ' + b"[" * 100_000,
    "half a surrogate": b'{"format": "tokpress-store", "format_version": 1, "fingerprint": "\\ud800"}',
}


class TestHostileManifests:
    """A clear error at once; and whatever is named in there, nothing outside the store is opened."""

    @pytest.mark.parametrize("what", HOSTILE)
    def test_is_refused(self, store_copy: Path, what: str) -> None:
        manifest = json.loads((store_copy / MANIFEST).read_bytes())
        HOSTILE[what](manifest)
        self.check_refused(store_copy, json.dumps(manifest).encode())

    @pytest.mark.parametrize("what", NOT_A_MANIFEST)
    def test_is_no_manifest(self, store_copy: Path, what: str) -> None:
        self.check_refused(store_copy, NOT_A_MANIFEST[what])

    def check_refused(self, store: Path, data: bytes) -> None:
        (store / MANIFEST).write_bytes(data)
        with files_opened() as paths:
            with pytest.raises(StoreError, match=MANIFEST):
                open_store(store)
            assert [problem.file for problem in verify_store(store).problems] == [MANIFEST]
        assert set(paths) == {str(store / MANIFEST)}

    def test_a_newer_version_says_to_update(self, store_copy: Path) -> None:
        (store_copy / MANIFEST).write_text('{"format": "tokpress-store", "format_version": 2, "all": "new"}')
        with pytest.raises(StoreError, match=r"version 2.*pip install -U tokpress"):
            open_store(store_copy)

    def test_a_manifest_of_something_else_is_no_store(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text('{"name": "a web page"}')
        with pytest.raises(StoreError, match="no store at"):
            open_store(tmp_path)

    def test_a_manifest_that_may_not_be_read(self, store_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(path: Path) -> bytes:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(StoreError, match="Permission denied"):
            open_store(store_copy)
        assert [problem.file for problem in verify_store(store_copy).problems] == [MANIFEST]
