"""What a server shows.

In: places of stores, files of events and meters, tokenizers. Out: each by its number, opened once; requests name numbers,
never paths, so that nothing can be asked for that was not named when the server was started.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest

import msgspec
import psutil

from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.load import load_files, reference_engine
from tokpress.errors import TokpressError, UsageError
from tokpress.store.reader import Store, open_store
from tokpress.view.following import RunFollower

_MOST_HELD = 200 * 10**6  # bytes


class StoreEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A store that the page can choose."""

    number: int
    name: str  # the last part of its path
    path: str
    splits: dict[str, int]  # documents of each
    fields: bool  # whether documents have kept fields
    tokenizer: str
    vocab_size: int


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page can choose from; of the lists without numbers the place is the number."""

    version: str
    stores: list[StoreEntry]
    tokenizers: list[str]  # those of the stores first
    runs: list[str]
    meters: list[str]


class Session:
    """Any number of threads may use it."""

    def __init__(
        self,
        stores: Sequence[str] = (),
        *,
        runs: Sequence[str] = (),
        events: Sequence[str] = (),
        meters: Sequence[str] = (),
        tokenizers: Sequence[str] = (),
    ) -> None:
        """`runs`: stores that are being written; `events`: files of `--events`, the first of the first run and so on."""
        self._stores = [_first_split(place) for place in stores]
        self._followers = [
            RunFollower(store=store, events=path)
            for store, path in zip_longest(runs, events)  # either may be missing
        ]
        self.meters = list(meters)
        self._specs = list(tokenizers)
        self._loaded: dict[int, Engine] = {}
        self._splits: dict[tuple[int, str], Store] = {
            (number, store.split_name): store for number, store in enumerate(self._stores)
        }
        self._lock = threading.Lock()
        self._loading = threading.Lock()  # of tokenizers, which may take seconds: nothing else waits for that

    def store(self, number: int, split: str | None = None) -> Store:
        """The store of this number; one of its splits, or the first that it has."""
        if not 0 <= number < len(self._stores):
            has = f"stores 0 to {len(self._stores) - 1}" if self._stores else "no stores"
            raise UsageError(f"there is no store {number}: this server shows {has}.")
        first = self._stores[number]
        name = split or first.split_name
        with self._lock:
            if (number, name) not in self._splits:
                self._splits[number, name] = first.split(name)  # raises for a split that there is not
            return self._splits[number, name]

    def engine_ready(self, store: Store) -> Store:
        """The same store, its tokenizer loaded by one thread and not by each that comes at once."""
        if "engine" not in store.__dict__:
            with self._loading:
                first = next(each for each in self._stores if each.storage is store.storage)
                store.__dict__["engine"] = first.engine  # one for all splits
        return store

    @property
    def tokenizers(self) -> list[str]:
        """Names: the stores', then those that were given by themselves."""
        return [_name(store) for store in self._stores] + self._specs

    def engine(self, number: int) -> Engine:
        """A tokenizer, loaded when it is first asked for."""
        if not 0 <= number < len(self.tokenizers):
            raise UsageError(f"there is no tokenizer {number}: this server has 0 to {len(self.tokenizers) - 1}.")
        if number < len(self._stores):
            return self.engine_ready(self._stores[number]).engine
        spec = number - len(self._stores)
        with self._loading:
            if spec not in self._loaded:
                self._loaded[spec] = reference_engine(load_files(TokenizerConfig(spec=self._specs[spec])), "text")
            return self._loaded[spec]

    def follower(self, number: int) -> RunFollower:
        if not 0 <= number < len(self._followers):
            raise UsageError(f"there is no run {number}: this server follows {len(self._followers)}.")
        return self._followers[number]

    def warm(self) -> None:
        """Loads what the first requests would wait for. What cannot be loaded is said to who asks for it."""
        for number, store in enumerate(self._stores):
            with suppress(TokpressError, OSError):
                _ = self.engine(number), store.plan

    def let_go(self) -> None:
        """Closes the files of all shards, if this process holds much: pages of mapped files are counted as its memory."""
        if psutil.Process().memory_info().rss < _MOST_HELD:
            return
        with self._lock:
            for key, store in self._splits.items():
                self._splits[key] = fresh = store.split(store.split_name)
                fresh.__dict__.update(
                    {name: store.__dict__[name] for name in ("engine", "plan") if name in store.__dict__}
                )
                if self._stores[key[0]] is store:
                    self._stores[key[0]] = fresh

    def contents(self) -> Contents:
        from tokpress import __version__

        return Contents(
            version=__version__,
            stores=[_entry(number, store) for number, store in enumerate(self._stores)],
            tokenizers=self.tokenizers,
            runs=[follower.name for follower in self._followers],
            meters=self.meters,
        )


def _first_split(place: str) -> Store:
    """A store without a split `train` is shown, too."""
    from tokpress.storage import open_storage
    from tokpress.store.manifest import read_manifest

    manifest = read_manifest(open_storage(place))
    return open_store(place, "train" if "train" in manifest.splits else next(iter(manifest.splits)))


def _entry(number: int, store: Store) -> StoreEntry:
    from tokpress.records import KEPT

    splits = store.manifest.splits
    return StoreEntry(
        number=number,
        name=_name(store),
        path=store.url,
        splits={name: split.docs for name, split in splits.items()},
        fields=any(KEPT in shard.files for split in splits.values() for shard in split.shards[:1]),
        tokenizer=store.manifest.tokenizer.kind,
        vocab_size=store.manifest.tokenizer.vocab_size,
    )


def _name(store: Store) -> str:
    return store.url.rstrip("/").rpartition("/")[2] or store.url
