"""A finished store -> a dataset on the Hub, with a card that says what it is and how to load it.

In: a store and `hf://datasets/ME/NAME`. Out: commits, of which the last one brings the manifest, so that there is no store
before all of it is there. Files are compared with the manifest as they are read, and with what the Hub says of them by
sha-256 afterwards. Stopped, the same call goes on: what the Hub has is not sent again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from tokpress.records import MANIFEST
from tokpress.storage import open_storage
from tokpress.storage.base import Storage
from tokpress.storage.hub_upload import COMMIT_FILES, HubUpload, LocalFile, is_there
from tokpress.store.card import card_of, is_ours
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

_CARD = "README.md"


def publish(
    store: str | os.PathLike[str] | Storage,
    to: str,
    *,
    private: bool | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Puts a finished store on the Hugging Face Hub: `to` is `hf://datasets/ME/NAME`, a repository that is made if there is
    none.

    `private`: of a new one; None is the Hub's own default. `progress(done, total)` is told of bytes.
    A card (README.md) is written, unless there is one of yours. The token is found as the Hub's own tools find it:
    HF_TOKEN, `hf auth login`. Called again it goes on where it was stopped.

        tokpress.publish("tokens", "hf://datasets/me/tokens")
        tokpress.open("hf://datasets/me/tokens")
    """
    source = open_storage(store)
    manifest, data = read_whole_manifest(source)
    entries = store_files(source, manifest)
    sizes = file_sizes(source, entries)
    upload = HubUpload(to, private=private)
    there = upload.there()
    last = {MANIFEST: LocalFile.of(data)}
    if MANIFEST in there and not is_there(there, MANIFEST, last[MANIFEST]):
        raise other_store(upload.place, source)
    sending = _Sending(source, upload, there, sum(sizes.values()), progress)
    keys = list(entries)
    for first in range(0, len(keys), COMMIT_FILES):
        some = {key: sending.read(key, entries) for key in keys[first : first + COMMIT_FILES]}
        sending.send(some, f"Tokens of {manifest.fingerprint[:12]}")
    if _CARD not in there or is_ours(upload.read(_CARD)):
        last[_CARD] = LocalFile.of(card_of(manifest, to.rstrip("/")))
    sending.send(last, f"Store {manifest.fingerprint[:12]}")
    upload.check(sending.seen)
    return Copied(
        store=source.url,
        to=to,
        files=len(entries) + 1,
        bytes=sum(sizes.values()) + len(data),
        sent_files=sending.files,
        sent_bytes=sending.bytes,
        fingerprint=manifest.fingerprint,
    )


class _Sending:
    def __init__(
        self,
        source: Storage,
        upload: HubUpload,
        there: Mapping[str, tuple[int, str]],
        total: int,
        progress: Progress | None,
    ) -> None:
        self._source, self._upload, self._there = source, upload, there
        self._total, self._progress = total, progress
        self.seen: dict[str, LocalFile] = {}
        self.files = self.bytes = 0

    def read(self, key: str, entries: Entries) -> LocalFile:
        """With its checksums; an error if it is not what the manifest says."""
        file = LocalFile.of(self._source.local(key))
        entry = entries[key]
        if entry is not None and (file.size, file.xxh3) != (entry.bytes, entry.xxh3):
            raise damaged(self._source, key)
        return file

    def send(self, files: Mapping[str, LocalFile], message: str) -> None:
        self.seen |= files
        new = dict(self._new(files))
        if new:
            self._upload.send(new, message, self._told)
        self.files += len(new)
        self.bytes += sum(file.size for file in new.values())

    def _new(self, files: Mapping[str, LocalFile]) -> Iterator[tuple[str, LocalFile]]:
        for key, file in files.items():
            if is_there(self._there, key, file):
                self._told(file.size)
            else:
                yield key, file

    def _told(self, count: int) -> None:
        if self._progress is not None:
            self._progress(count, self._total)
