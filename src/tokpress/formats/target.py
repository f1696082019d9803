"""The directory that an export writes to: may it, and is there something to go on with?

In: where the export is to stand, and what it is. Out: a directory beside it, `NAME.partial`, that has the files so far and a
receipt for every finished part. When the last file is there, the directory of files takes its final name, in one step: no
reader can meet half an export. A run that died is continued by the same command.

    NAME.partial/plan.json       what this is an export of; one of something else is refused with the differences
    NAME.partial/parts/*.json    receipts
    NAME.partial/files/          what will be NAME
    NAME.partial/old/            with --overwrite, what was NAME, for a moment
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from tokpress.errors import StoreError, UsageError
from tokpress.formats.base import ExportOptions, Written
from tokpress.records import TokenizerInfo
from tokpress.run.output import differences
from tokpress.store.durable import make_directory, move_directory, remove, remove_tree, sync_directory, write_file
from tokpress.store.manifest import PLAN, Count, Record, encode, read_record

METADATA = "metadata.json"
FORMAT = "tokpress-export"
FORMAT_VERSION = 1
PARTIAL = ".partial"
_PARTS = "parts"
_FILES = "files"
_OLD = "old"


class ExportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an export follows from: equal plans, equal files."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    options: ExportOptions
    store: str  # its fingerprint
    tokenizer: TokenizerInfo
    dtype: str  # of the store
    bos_id: int | None
    eos_id: int | None


class SplitFacts(msgspec.Struct, frozen=True, kw_only=True):
    docs: Count
    tokens: Count
    rows: Count | None = None  # where the format has rows


class Metadata(ExportPlan, frozen=True, kw_only=True):
    """`metadata.json` of an export: its plan, and what came of it."""

    splits: dict[str, SplitFacts]
    files: dict[str, Count]  # path -> bytes
    linked_bytes: Count
    written_bytes: Count
    made_with: str


class Target:
    """The directory of one export."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.work = out.with_name(out.name + PARTIAL)
        self.files = self.work / _FILES
        self._old = self.work / _OLD

    def check(self, plan: ExportPlan, *, overwrite: bool) -> Metadata | None:
        """Refuses to write where something else is. What is there, if it is this very export, finished."""
        if self.out.is_symlink() or (self.out.exists() and not self.out.is_dir()):
            raise UsageError(f"--out {self.out} is not a directory. Choose one that does not exist yet.")
        if not self.out.exists() or not any(self.out.iterdir()):
            return None
        found = _read(self.out / METADATA, Metadata)
        if found is None:
            raise UsageError(
                f"--out {self.out} is not empty and not an export. Choose a directory that does not exist yet."
            )
        if overwrite:
            return None
        _check_same(self.out, "a finished", found, plan)
        return found

    def begin(self, plan: ExportPlan, *, overwrite: bool) -> None:
        """An empty working directory with its plan, or the one that an earlier run of this very export left."""
        old = _read(self.work / PLAN, ExportPlan)
        if old is None and any((self.work / name).exists() for name in (_PARTS, _FILES, _OLD)):
            raise UsageError(f"{self.work} is in the way, and not of an export. Choose another --out, or move it.")
        if old is not None and not overwrite:
            _check_same(self.work, "an unfinished", old, plan)
        if old != plan:  # receipts go before what they speak for, and the plan is replaced in one step
            for name in (_PARTS, _FILES):
                remove_tree(self.work / name)
            sync_directory(self.work)
            write_file(self.work / PLAN, encode(plan))
        for name in (_PARTS, _FILES):
            make_directory(self.work / name)
        sync_directory(self.work)
        sync_directory(self.work.parent)

    def finished(self, part: str) -> Written | None:
        """The receipt of a part, if there is one and its files are there."""
        receipt = _read(self._receipt(part), Written)
        if receipt is None:
            return None
        for name, size in receipt.files.items():
            path = self.files / name
            if not path.is_file() or path.stat().st_size != size:
                return None
        return receipt

    def finish(self, part: str, written: Written) -> None:
        write_file(self._receipt(part), encode(written))

    def seal(self, metadata: Metadata, index: dict[str, bytes]) -> None:
        """From here on the export exists. What `--overwrite` replaces stays until then."""
        for name, data in index.items():
            write_file(self.files / name, data)
        write_file(self.files / METADATA, encode(metadata))
        if self.out.exists() and any(self.out.iterdir()):
            remove_tree(self._old)
            move_directory(self.out, self._old)
        move_directory(self.files, self.out)
        sync_directory(self.out.parent)
        sync_directory(self.work)

    def tidy(self, plan: ExportPlan) -> None:
        """Removes what the run of a finished export leaves; also if it died before it could. The plan, which says that all
        this may be removed, goes last."""
        if _read(self.work / PLAN, ExportPlan) == plan:
            for name in (_PARTS, _FILES, _OLD):
                remove_tree(self.work / name)
            sync_directory(self.work)
            remove(self.work / PLAN)

    def clean(self) -> None:
        """Removes the working directory when nothing is left in it."""
        with suppress(OSError):
            self.work.rmdir()

    def _receipt(self, part: str) -> Path:
        return self.work / _PARTS / f"{part}.json"


def _read(path: Path, kind: type[Record]) -> Record | None:
    try:
        return read_record(path, kind)
    except StoreError:
        return None


def _check_same(directory: Path, state: str, old: ExportPlan, plan: ExportPlan) -> None:
    fields = ExportPlan.__struct_fields__
    before, now = ({name: msgspec.to_builtins(getattr(record, name)) for name in fields} for record in (old, plan))
    if before == now:
        return
    shown = differences(before, now)
    raise UsageError(
        f"{directory} holds {state} export of something else:{shown}\n"
        "Choose another --out, or replace it with --overwrite."
    )
