"""A finished store -> the same store elsewhere: disk and buckets, in both directions, and from the Hub.

In: a store's place and another one. Out: a store there with the same bytes. Every file is compared with the manifest's
checksum as it is read and, read back, where it arrived; the manifest comes last, so that there is no store before all of it
is there. Stopped, the same call goes on: what is there already is compared, and not sent again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, wait

from tokpress.errors import StoreError, UsageError
from tokpress.records import MANIFEST, PLAN, REJECTS, SHARDS, TOKENIZER, FileEntry
from tokpress.storage import open_storage
from tokpress.storage.base import Storage, parent_of
from tokpress.storage.hub_store import HubStorage
from tokpress.storage.lock import LOCK
from tokpress.storage.once import create_or_read
from tokpress.store.contents import (
    Copied,
    Entries,
    Progress,
    damaged,
    file_sizes,
    other_store,
    read_whole_manifest,
    store_files,
)
from tokpress.store.publish import publish
from tokpress.threads import thread_pool

_CHUNK_BYTES = 8 * 1024**2
_FILES_AT_ONCE = 4

PathLike = str | os.PathLike[str]


def copy(
    store: PathLike | Storage, to: PathLike | Storage, *, read_back: bool = True, progress: Progress | None = None
) -> Copied:
    """Copies a finished store: `to` a directory, `s3://`, `gs://` or `az://`; from there, or from `hf://datasets/...`.

    Every file is compared with its checksum as it is read, and again as it stands where it was put; `read_back=False`
    compares only its size there. `progress(done, total)` is told of bytes. Called again it goes on where it was stopped. To
    `hf://datasets/ME/NAME` it is `tokpress.publish`.

        tokpress.copy("tokens", "s3://bucket/tokens")
        tokpress.copy("hf://datasets/me/tokens", "tokens")
    """
    source, target = open_storage(store), open_storage(to)
    if isinstance(target, HubStorage):
        return publish(source, target.url, progress=progress)
    manifest, data = read_whole_manifest(source)
    if source.url == target.url:
        raise UsageError(f"{source.url} cannot be copied to itself. Name another place.")
    entries = store_files(source, manifest)
    with target.lock():
        target.anchor()
        _check_target(target, entries, data, source)
        always = {SHARDS, REJECTS, TOKENIZER}
        prefixes = sorted(always.union(*map(_above, entries)))  # the outer ones first
        target.prepare(*prefixes)
        target.delete_abandoned("", *prefixes)
        job = _Copy(source, target, entries, read_back=read_back, progress=progress)
        job.run()
        target.barrier("", *prefixes)
        if create_or_read(target, MANIFEST, data) != data:
            raise other_store(target.url, source)
        target.barrier("")
    return Copied(
        store=source.url,
        to=target.url,
        files=len(entries) + 1,
        bytes=job.total + len(data),
        sent_files=job.sent_files,
        sent_bytes=job.sent_bytes,
        fingerprint=manifest.fingerprint,
    )


def _above(key: str) -> Iterator[str]:
    while key := parent_of(key):
        yield key


def _check_target(target: Storage, entries: Entries, manifest: bytes, source: Storage) -> None:
    """Nothing is there, or a part of this very store, or all of it."""
    if obstacle := target.obstacle():
        raise UsageError(f"{target.url} cannot be written: {obstacle}. Choose another place.")
    there = set(target.list()) if target.present() else set()
    if MANIFEST in there and target.read(MANIFEST) != manifest:
        raise other_store(target.url, source)
    stray = sorted(there - set(entries) - {MANIFEST, LOCK, "README.md"})
    if stray:
        raise UsageError(
            f"{target.url} holds something else: {stray[0]}, for example. Copy {source.url} to a place of its own."
        )
    if PLAN in there and target.read(PLAN) != source.read(PLAN):
        raise other_store(target.url, source)


class _Copy:
    def __init__(
        self,
        source: Storage,
        target: Storage,
        entries: Entries,
        *,
        read_back: bool,
        progress: Progress | None,
    ) -> None:
        self._source, self._target, self._entries = source, target, entries
        self._read_back, self._progress = read_back, progress
        self._sizes = file_sizes(source, entries)
        self.total = sum(self._sizes.values())
        self.sent_files = self.sent_bytes = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        self._one(PLAN)  # from here on it is known whose files these are
        with thread_pool(_FILES_AT_ONCE, "copy") as pool:
            pending = {pool.submit(self._one, key) for key in self._entries if key != PLAN}
            try:
                while pending:  # looked at now and then, so that Ctrl-C is heard
                    done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                    for future in done:
                        future.result()
            except BaseException:
                self._stop.set()
                for future in pending:
                    future.cancel()
                raise

    def _one(self, key: str) -> None:
        entry, size = self._entries[key], self._sizes[key]
        there = self._target.stat(key)
        if there is None or there.size != size or not self._is_right(key, entry):
            self._send(key, entry, size)
            with self._lock:
                self.sent_files += 1
                self.sent_bytes += size
        if self._progress is not None:
            with self._lock:
                self._progress(size, self.total)

    def _is_right(self, key: str, entry: FileEntry | None) -> bool:
        """Whether what is there is what should be; by its size alone where it is not to be read back."""
        if not self._read_back and entry is not None:
            return True
        return self._target.checksum(key) == (self._source.checksum(key) if entry is None else entry.xxh3)

    def _send(self, key: str, entry: FileEntry | None, size: int) -> None:
        with self._target.create(key) as upload:
            for part in self._parts(key):
                upload.write(part)
            if upload.bytes != size or (entry is not None and upload.checksum != entry.xxh3):
                raise damaged(self._source, key)
            sent = upload.checksum
        there = self._target.stat(key)
        if there is None or there.size != size or (self._read_back and self._target.checksum(key) != sent):
            raise StoreError(f"{self._target.location(key)} did not arrive as it was sent. Run the same command again.")

    def _parts(self, key: str) -> Iterator[bytes]:
        with self._source.open(key) as file:
            while part := file.read(_CHUNK_BYTES):
                if self._stop.is_set():
                    raise KeyboardInterrupt
                yield part
