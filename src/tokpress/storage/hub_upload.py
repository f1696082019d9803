"""Files -> a dataset on the Hugging Face Hub, with the Hub's own client.

In: files of this machine, by their paths in the repository. Out: commits. What the Hub has already, by checksum, is not sent
again, so that a stopped upload goes on where it was; what it says of every file afterwards is compared with what was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from tokpress.errors import StoreError
from tokpress.storage.hub import HUB, HubDataset, api, ask, parse_address, resolve

_CHUNK_BYTES = 4 * 1024**2
COMMIT_FILES = 500  # more at once make a commit slow, and the Hub may refuse it


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to be sent, and what the Hub will call its bytes: sha-256 of large files, git's sha-1 of small ones."""

    path: Path | bytes
    size: int
    sha256: str
    blob: str
    xxh3: str

    @staticmethod
    def of(path: Path | bytes) -> LocalFile:
        size = len(path) if isinstance(path, bytes) else path.stat().st_size
        large, small = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        ours = xxhash.xxh3_64()
        for part in _parts(path):
            for digest in (large, small, ours):
                digest.update(part)
        return LocalFile(path, size, large.hexdigest(), small.hexdigest(), ours.hexdigest())


def _parts(path: Path | bytes) -> Iterable[bytes]:
    if isinstance(path, bytes):
        yield path
        return
    with path.open("rb", buffering=0) as file:
        while part := file.read(_CHUNK_BYTES):
            yield part


class HubUpload:
    def __init__(self, url: str, *, private: bool | None = None) -> None:
        """Makes the repository, if there is none."""
        self.address = parse_address(url)
        self.place = f"{HUB}datasets/{self.address.repo}"
        self._revision = self.address.revision or "main"
        ask(
            self.place,
            lambda: api().create_repo(self.address.repo, repo_type="dataset", private=private, exist_ok=True),
        )

    def path(self, key: str) -> str:
        return "/".join(part for part in (self.address.path, key) if part)

    def there(self) -> dict[str, tuple[int, str]]:
        """Size and checksum of each file that is there now, by key."""
        beginning = f"{self.address.path}/" if self.address.path else ""
        found = self._now().list_stats(self.address.path)
        return {key.removeprefix(beginning): (stat.size, stat.version) for key, stat in found}

    def _now(self) -> HubDataset:
        return resolve(self.address.repo, self.address.revision).dataset

    def read(self, key: str) -> bytes:
        dataset = self._now()
        stat = dataset.stat(self.path(key))
        return bytes(dataset.read_range(self.path(key), 0, stat.size)) if stat else b""

    def send(self, files: Mapping[str, LocalFile], message: str, told: Callable[[int], None]) -> None:
        """One commit. Bytes go first, a few files at a time, and are kept by the Hub even if nothing follows."""
        from huggingface_hub import CommitOperationAdd

        operations: list[Any] = []
        for key, file in files.items():
            content = file.path if isinstance(file.path, bytes) else str(file.path)
            operation = CommitOperationAdd(self.path(key), content)
            operation.upload_info.sha256 = bytes.fromhex(file.sha256)  # it need not be made twice
            operations.append(operation)
            ask(self.place, partial(self._upload, operation))
            told(file.size)
        ask(
            self.place,
            lambda: api().create_commit(
                self.address.repo, operations, commit_message=message, repo_type="dataset", revision=self._revision
            ),
        )

    def _upload(self, operation: Any) -> None:
        """Of a large file, the bytes; unless the Hub has them."""
        where: dict[str, Any] = {"repo_type": "dataset", "revision": self._revision}
        try:
            api().preupload_lfs_files(self.address.repo, [operation], free_memory=False, **where)
        except RuntimeError as error:  # around what went wrong
            raise (error.__cause__ or error) from None

    def check(self, files: Mapping[str, LocalFile]) -> None:
        """Raises StoreError unless the Hub says of every file what it should."""
        there = self.there()
        for key, file in files.items():
            if not is_there(there, key, file):
                raise StoreError(
                    f"{self.place}: {self.path(key)} is not what was sent: the Hub says {there.get(key, 'nothing')} of it. "
                    "Run the same command again."
                )


def is_there(there: Mapping[str, tuple[int, str]], key: str, file: LocalFile) -> bool:
    size, version = there.get(key, (-1, ""))
    return size == file.size and version in (file.sha256, file.blob)
