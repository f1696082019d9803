"""Two tokenizers on one text, or two stores on one record: where they cut alike and where they do not.

In: engines and a text, or two stores and a document of one. Out: `CompareView`: the tokens of both sides with their place in
the bytes of the text, and of each whether the other side has it, too.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from tokpress.batches import Flags, Ids, Int64s, large_strings
from tokpress.documents.starts import TokenStarts
from tokpress.engines.base import Engine
from tokpress.errors import ParityError, TokenizerError, UsageError
from tokpress.store.reader import Store
from tokpress.view.find import find_position
from tokpress.view.vocabulary import vocabulary_of

MOST_CHARS = 16_384


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One tokenizer's tokens. Of the lists entry k is about token k."""

    name: str
    num_tokens: int
    ids: list[int]
    texts: list[str]  # what each token covers; a character that several share stands with the last of them
    starts: list[int]  # in the bytes of the text
    stops: list[int]
    special: list[bool]
    differs: list[bool]  # the other side cuts otherwise here


class CompareView(msgspec.Struct, frozen=True, kw_only=True):
    text_bytes: int
    text_chars: int
    cut: bool  # the text was longer: this is its beginning
    same_text: bool  # both sides spell the same bytes
    common_cuts: int  # places where both sides have a boundary
    regions: int  # stretches that are cut differently
    sides: list[Side]


class AlignedView(msgspec.Struct, frozen=True, kw_only=True):
    """The record that a document comes from, in two stores."""

    source: str
    position: int
    docs: list[int | None]  # of each store; None: it has no document of that record
    compared: CompareView | None


def compare_text(text: str, engines: dict[str, Engine]) -> CompareView:
    """Two engines, by name, on the beginning of a text."""
    shown = text[:MOST_CHARS]
    sides = [_encoded(name, engine, shown) for name, engine in engines.items()]
    return _compared(sides, shown.encode(), cut=len(shown) < len(text), same_text=True)


def align_stores(first: Store, doc: int, second: Store) -> AlignedView:
    """Document `doc` of the first store beside the one of the second that comes from the same record."""
    source, position = first.where(doc)
    there = _same_input(source, second)
    found = None if there is None else find_position(second, there, position)
    if found is not None and second.where(found)[1] != position:
        found = None
    compared = None
    if found is not None:
        sides = [_stored("0", first, doc), _stored("1", second, found)]
        texts = [document_text(store, i) for store, i in ((first, doc), (second, found))]
        compared = _compared(sides, texts[0].encode(), cut=False, same_text=texts[0] == texts[1])
    return AlignedView(source=source, position=position, docs=[doc % first.num_docs, found], compared=compared)


def _same_input(path: str, store: Store) -> str | None:
    """The input of that path, or the only one of that name: a copy elsewhere."""
    paths = [entry.path for entry in store.plan.inputs]
    if path in paths:
        return path
    named = [entry for entry in paths if entry.rpartition("/")[2] == path.rpartition("/")[2]]
    return named[0] if len(named) == 1 else None


class _Tokens(msgspec.Struct, kw_only=True):
    name: str
    ids: Ids
    starts: Int64s
    stops: Int64s
    special: set[int]


_starts_of: WeakKeyDictionary[Engine, TokenStarts] = WeakKeyDictionary()


def _encoded(name: str, engine: Engine, text: str) -> _Tokens:
    strings = large_strings([text])
    tokens = engine.encode(strings)
    if engine not in _starts_of:
        _starts_of[engine] = TokenStarts(engine)
    try:
        starts = np.asarray(_starts_of[engine].find(strings, tokens))
        stops = np.append(starts[1:], len(text.encode()))[: len(starts)]
    except (TokenizerError, ParityError):  # one that cannot say where its tokens start
        starts, stops = _own_spans(engine, tokens.ids)
    special = set(engine.info.special_tokens.values())
    return _Tokens(name=name, ids=tokens.ids, starts=starts, stops=stops, special=special)


def _own_spans(engine: Engine, ids: Ids) -> tuple[Int64s, Int64s]:
    _, bounds = vocabulary_of(engine).spell(ids)
    return bounds[:-1], bounds[1:]


def _stored(name: str, store: Store, doc: int) -> _Tokens:
    """As the store has them. Special tokens that stand around a document cover nothing of it."""
    ids = store.doc(doc)[:MOST_CHARS]
    special = set(store.manifest.tokenizer.special_tokens.values())
    _, bounds = vocabulary_of(store.engine).spell(ids)
    lengths = np.where(np.isin(ids, list(special)), 0, np.diff(bounds))
    stops = np.cumsum(lengths)
    return _Tokens(name=name, ids=ids, starts=stops - lengths, stops=stops, special=special)


def document_text(store: Store, doc: int) -> str:
    """What the plain tokens of a document spell, as far as it is compared."""
    ids = store.doc(doc)[:MOST_CHARS]
    plain = ids[~np.isin(ids, list(store.manifest.tokenizer.special_tokens.values()))]
    return vocabulary_of(store.engine).spell(plain)[0].tobytes().decode("utf-8", "replace")


def _compared(sides: list[_Tokens], data: bytes, *, cut: bool, same_text: bool) -> CompareView:
    if len(sides) != 2:
        raise UsageError(f"{len(sides)} sides: two are compared.")
    bounds = [np.unique(np.concatenate((side.starts, side.stops))) for side in sides]
    common: Int64s = np.intersect1d(bounds[0], bounds[1])
    places = [np.searchsorted(common, side.starts, "right") for side in sides]
    covering = [side.stops > side.starts for side in sides]
    counts = [np.bincount(at[held], minlength=len(common) + 1) for at, held in zip(places, covering, strict=True)]
    uncommon = (counts[0] != counts[1]) | (counts[0] > 1)  # between two common cuts, of each side one token is the same
    differing: list[Flags] = [uncommon[at] & held for at, held in zip(places, covering, strict=True)]
    return CompareView(
        text_bytes=len(data),
        text_chars=len(data.decode("utf-8", "replace")),
        cut=cut,
        same_text=same_text,
        common_cuts=len(common),
        regions=int(np.count_nonzero(uncommon)),
        sides=[_side(side, flags, data) for side, flags in zip(sides, differing, strict=True)],
    )


def _side(side: _Tokens, differs: Flags, data: bytes) -> Side:
    decoder = getincrementaldecoder("utf-8")("replace")
    spans = list(zip(side.starts.tolist(), side.stops.tolist(), strict=True))
    return Side(
        name=side.name,
        num_tokens=len(side.ids),
        ids=side.ids.tolist(),
        texts=[decoder.decode(data[start:stop], final=k == len(spans) - 1) for k, (start, stop) in enumerate(spans)],
        starts=[start for start, _ in spans],
        stops=[stop for _, stop in spans],
        special=[token in side.special for token in side.ids.tolist()],
        differs=differs.tolist(),
    )
