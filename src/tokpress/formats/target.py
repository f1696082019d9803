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

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokpress.errors import UsageError
from tokpress.formats.base import ExportOptions, Loss, Written
from tokpress.records import PLAN, Count, TokenizerInfo
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import differences, encode, find_record

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
    pad_id: int | msgspec.UnsetType = msgspec.UNSET  # where rows may be padded: what with
    losses: list[Loss] | msgspec.UnsetType = msgspec.UNSET  # what its reader will not get; not there: nothing


class Target:
    """The directory of one export."""

    def __init__(self, out: Path) -> None:
        self._around = LocalStorage(out.parent)
        self._name, self._work = out.name, out.name + PARTIAL
        self._final = self._around.below(self._name)
        self.work = self._around.below(self._work)
        self.files = self.work.below(_FILES)

    def check(self, plan: ExportPlan, *, overwrite: bool) -> Metadata | None:
        """Refuses to write where something else is. What is there, if it is this very export, finished."""
        url = self._final.url
        if self._final.root.is_symlink() or self._final.obstacle() is not None:
            raise UsageError(f"--out {url} is not a directory. Choose one that does not exist yet.")
        if not self._final.children():
            return None
        found = find_record(self._final, METADATA, Metadata)
        if found is None:
            raise UsageError(f"--out {url} is not empty and not an export. Choose a directory that does not exist yet.")
        if overwrite:
            return None
        _check_same(url, "a finished", found, plan)
        return found

    def begin(self, plan: ExportPlan, directories: Sequence[str], *, overwrite: bool) -> None:
        """An empty working directory with its plan, or the one that an earlier run of this very export left."""
        old = find_record(self.work, PLAN, ExportPlan)
        if old is None and {_PARTS, _FILES, _OLD} & set(self.work.children()):
            raise UsageError(f"{self.work.url} is in the way, and not of an export. Choose another --out, or move it.")
        if old is not None and not overwrite:
            _check_same(self.work.url, "an unfinished", old, plan)
        if old != plan:  # receipts go before what they speak for, and the plan is replaced in one step
            for name in (_PARTS, _FILES):
                self.work.delete_prefix(name)
            self.work.barrier("")
            self.work.put(PLAN, encode(plan))
        self.work.prepare(_PARTS, _FILES)
        self.files.prepare(*directories)
        self.work.delete_abandoned("", _PARTS)
        self.files.delete_abandoned("", *directories)
        self.work.barrier("")
        self.files.barrier("")
        self.work.anchor()

    def finished(self, part: str) -> Written | None:
        """The receipt of a part, if there is one and its files are there."""
        receipt = find_record(self.work, _receipt(part), Written)
        if receipt is None:
            return None
        for name, size in receipt.files.items():
            found = self.files.stat(name)
            if found is None or found.size != size:
                return None
        return receipt

    def finish(self, part: str, written: Written) -> None:
        self.work.put(_receipt(part), encode(written))

    def seal(self, metadata: Metadata, index: dict[str, bytes]) -> None:
        """From here on the export exists. What `--overwrite` replaces stays until then."""
        for name, data in index.items():
            self.files.put(name, data)
        self.files.put(METADATA, encode(metadata))
        if self._final.children():
            self.work.delete_prefix(_OLD)
            self._around.rename(self._name, f"{self._work}/{_OLD}")
        self._around.rename(f"{self._work}/{_FILES}", self._name)
        self._around.barrier("")
        self.work.barrier("")

    def tidy(self, plan: ExportPlan) -> None:
        """Removes what the run of a finished export leaves; also if it died before it could. The plan, which says that all
        this may be removed, goes last."""
        if find_record(self.work, PLAN, ExportPlan) == plan:
            for name in (_PARTS, _FILES, _OLD):
                self.work.delete_prefix(name)
            self.work.delete_abandoned("")
            self.work.barrier("")
            self.work.delete(PLAN)

    def clean(self) -> None:
        """Removes the working directory when nothing is left in it."""
        self._around.remove_empty(self._work)


def _receipt(part: str) -> str:
    return f"{_PARTS}/{part}.json"


def _check_same(url: str, state: str, old: ExportPlan, plan: ExportPlan) -> None:
    fields = ExportPlan.__struct_fields__
    before, now = ({name: msgspec.to_builtins(getattr(record, name)) for name in fields} for record in (old, plan))
    if before == now:
        return
    shown = differences(before, now)
    raise UsageError(
        f"{url} holds {state} export of something else:{shown}\nChoose another --out, or replace it with --overwrite."
    )
