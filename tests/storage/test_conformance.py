"""Every storage keeps the promises; one that breaks a promise is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crash.power import Disk

from tokpress.storage.base import Storage, Upload
from tokpress.storage.conformance import PROMISES, ConformanceError, conform
from tokpress.storage.local import LocalStorage
from tokpress.storage.memory import MemoryStorage

KINDS: dict[str, Callable[[Path], Storage]] = {
    "local": LocalStorage,
    "memory": lambda path: MemoryStorage(),
    "a disk that loses what was not synced": lambda path: LocalStorage(path, Disk()),
}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_keeps(kind: str, promise: Callable[[Storage], None], tmp_path: Path) -> None:
    promise(KINDS[kind](tmp_path))


class TestFound:
    """Each of these breaks one promise."""

    def test_an_upload_that_is_seen_too_early(self) -> None:
        class Early(MemoryStorage):
            def create(self, key: str) -> Upload:
                self.put(key, b"")
                return super().create(key)

        with pytest.raises(ConformanceError, match="before it is committed"):
            conform(Early)

    def test_a_condition_that_is_not_asked(self) -> None:
        class Liar(MemoryStorage):
            def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
                super().put(key, data)

        with pytest.raises(ConformanceError, match="theirs was the first"):
            conform(Liar)

    def test_a_removal_that_does_nothing(self) -> None:
        class Keeper(MemoryStorage):
            def delete_prefix(self, prefix: str) -> None: ...

        with pytest.raises(ConformanceError, match="still there"):
            conform(Keeper)

    def test_one_temporary_name_for_all(self) -> None:
        class Shared(MemoryStorage):
            def create(self, key: str) -> Upload:
                upload = self.__dict__.setdefault("upload", super().create(key))
                assert isinstance(upload, Upload)
                return upload

        with pytest.raises((ConformanceError, ValueError)):
            conform(Shared)
