"""`ParallelTokenizer` and `parallel_tokenize`: a batch of texts -> ids, inside a training loop as it stands.

In: texts. Out: an array of ids for each, in order, or (input_ids, target_ids) pairs; cut and padded on request. The ids are
the reference's. The pool is made once, when it first pays, and lives until the tokenizer is closed or forgotten or the
interpreter exits; small batches do without it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypedDict, Unpack, overload

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokpress.batches import TokenBatch, large_strings
from tokpress.config import TokenizerConfig
from tokpress.documents.frame import frame_for
from tokpress.engines.base import Engine
from tokpress.engines.load import load_files
from tokpress.errors import TokenizerError, UsageError
from tokpress.live.encoder import Encoder
from tokpress.live.pool import Documents, encode_documents
from tokpress.live.proof import load_engine
from tokpress.live.rows import Array, cut_rows, pad_rows
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

Texts: TypeAlias = Iterable[str] | pa.Array | pa.ChunkedArray
Pair = tuple[Array, Array]

_log = logging.getLogger(__name__)
_KEPT_POOLS = 4  # of `parallel_tokenize`


class TokenizerOptions(TypedDict, total=False):
    """How a tokenizer treats a text, as for `tokpress build`; but nothing is put around it unless it is asked for."""

    engine: str
    special_tokens: SpecialTokenPolicy
    pattern: str | None
    added_tokens: dict[str, int]
    bos: bool
    eos: bool
    bos_token: str | None
    eos_token: str | None


class ParallelTokenizer:
    """Call it with texts: `ids = tokenizer(texts)`, `pairs = tokenizer.pairs(texts)`.

    `spec`: as for `tokpress build`: a SentencePiece `.model`, a `tokenizer.json`, a directory, a rank file, a hub id.
    `workers`: how many encode at the same time; by default one a core, and one inside a worker of a torch `DataLoader`.
    `verbose`: log at INFO what each call took.
    It may be called from several threads, after a fork, and be pickled into another process.

    `options`: how the tokenizer is used, as for a build: `bos`, `eos`, `eos_token`, `special_tokens`, `engine`, ...

        tokenizer = tokpress.ParallelTokenizer("spm.model", workers=2)
        ids = tokenizer(["a text", "another text"])
        pairs = tokenizer.pairs(["a text", "another text"], max_length=2048)
    """

    def __init__(
        self,
        spec: str | os.PathLike[str],
        *,
        workers: int | None = None,
        verbose: bool = False,
        **options: Unpack[TokenizerOptions],
    ) -> None:
        config = TokenizerConfig(**{"spec": os.fspath(spec), "eos": False, **options})  # type: ignore[arg-type]
        self._open(config, load_files(config), workers, verbose)

    def _open(self, config: TokenizerConfig, files: TokenizerFiles, workers: int | None, verbose: bool) -> None:
        self._config, self._files, self._asked = config, files, (workers, verbose)
        self.verbose = verbose
        self._encoder = Encoder(load_engine(files, config), workers=workers)
        self._frame = frame_for(config, self.engine.info)

    def __getstate__(self) -> tuple[object, ...]:
        """The tokenizer's own bytes: the other process loads it from them, and makes its own pool."""
        return (self._config, self._files, *self._asked)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._open(*state)

    def __repr__(self) -> str:
        info = self.engine.info
        return (
            f"ParallelTokenizer({self._config.spec!r}, engine={self.engine.name!r}, vocab_size={info.vocab_size:,}, "
            f"workers={self.workers})"
        )

    @property
    def engine(self) -> Engine:
        return self._encoder.engine

    @property
    def workers(self) -> int:
        return self._encoder.workers

    @property
    def crossover_bytes(self) -> int:
        """A batch of less text than this is encoded by a plain call: measured here, for this tokenizer."""
        return self._encoder.costs.crossover_bytes

    def __call__(
        self, texts: Texts, *, max_length: int | None = None, pad_id: int | None = None, dtype: npt.DTypeLike = np.int64
    ) -> list[Array]:
        """The ids of each text. `max_length`: cut to it. `pad_id`: filled up with it, to `max_length` or to the longest."""
        rows = self._rows(texts, max_length, dtype)
        return rows if pad_id is None else pad_rows(rows, max_length, pad_id, dtype)

    def pairs(
        self,
        texts: Texts,
        *,
        max_length: int | None = None,
        pad_id: int | None = None,
        ignore_index: int = -100,
        dtype: npt.DTypeLike = np.int64,
    ) -> list[Pair]:
        """For each text its ids without the last one, and those to predict: its ids without the first one.

        Both have at most `max_length` ids, those of the text's first `max_length + 1`. Where inputs are filled up with
        `pad_id`, targets are `ignore_index`.
        """
        rows = self._rows(texts, None if max_length is None else max_length + 1, dtype)
        inputs, targets = [row[:-1] for row in rows], [row[1:] for row in rows]
        if pad_id is not None:
            inputs = pad_rows(inputs, max_length, pad_id, dtype)
            targets = pad_rows(targets, max_length, ignore_index, dtype)
        return list(zip(inputs, targets, strict=True))

    def _rows(self, texts: Texts, max_length: int | None, dtype: npt.DTypeLike) -> list[Array]:
        began = perf_counter()
        documents = _checked(texts)

        def rows_of(tokens: TokenBatch) -> list[Array]:
            return cut_rows(self._frame.surround(tokens), max_length, dtype)

        try:
            rows = list(chain.from_iterable(self._encoder.each_part(documents, rows_of)))
        except UnicodeEncodeError:
            raise _no_unicode(documents) from None
        except Exception as error:
            if (blamed := self._blamed(documents)) is None:
                raise
            raise blamed from error
        if self.verbose:
            ms = (perf_counter() - began) * 1e3
            each = ms / max(len(rows), 1)
            _log.info("Parallel tokenized %d samples in %.1f ms (%.1f ms per sample)", len(rows), ms, each)
        return rows

    def _blamed(self, documents: Documents) -> TokenizerError | None:
        """The error with the number of the text that it is about: the first that raises one by itself."""
        for i in range(len(documents)):
            try:
                encode_documents(self.engine, documents[i : i + 1])
            except Exception as alone:  # noqa: BLE001 - whatever it is, this text is its cause
                return TokenizerError(f"text {i} cannot be encoded: {alone}. Leave it out and call again.")
        return None

    def close(self) -> None:
        """Ends the pool. Called by itself at the end of a `with`, or when nobody has the tokenizer any more."""
        self._encoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@overload
def parallel_tokenize(
    texts: Texts,
    *,
    tokenizer: str | os.PathLike[str],
    pairs: Literal[False] = False,
    max_length: int | None = None,
    pad_id: int | None = None,
    workers: int | None = None,
    verbose: bool = False,
    **options: Unpack[TokenizerOptions],
) -> list[Array]: ...


@overload
def parallel_tokenize(
    texts: Texts,
    *,
    tokenizer: str | os.PathLike[str],
    pairs: Literal[True],
    max_length: int | None = None,
    pad_id: int | None = None,
    workers: int | None = None,
    verbose: bool = False,
    **options: Unpack[TokenizerOptions],
) -> list[Pair]: ...


def parallel_tokenize(
    texts: Texts,
    *,
    tokenizer: str | os.PathLike[str],
    pairs: bool = False,
    max_length: int | None = None,
    pad_id: int | None = None,
    workers: int | None = None,
    verbose: bool = False,
    **options: Unpack[TokenizerOptions],
) -> list[Array] | list[Pair]:
    """`ParallelTokenizer` for those who want a function: tokenizer and pool are kept from call to call.

    A file that has changed is loaded anew. For more than a few tokenizers in turn make a `ParallelTokenizer` of each.

    `texts`: a list of strings. `pairs`: (input_ids, target_ids) for each. `max_length` cuts, `pad_id` fills up.
    `workers`, `verbose` and `options` are those of `ParallelTokenizer`.

        pairs = tokpress.parallel_tokenize(["a text", "another text"], tokenizer="spm.model", pairs=True)
    """
    spec = os.fspath(tokenizer)
    pool = _kept(spec, _stamp(spec), workers, msgspec.json.encode(options, order="sorted"))
    pool.verbose = verbose
    call = pool.pairs if pairs else pool
    return call(texts, max_length=max_length, pad_id=pad_id)


@lru_cache(maxsize=_KEPT_POOLS)
def _kept(spec: str, stamp: object, workers: int | None, options: bytes) -> ParallelTokenizer:  # noqa: ARG001 - to differ
    return ParallelTokenizer(spec, workers=workers, **msgspec.json.decode(options))


def _stamp(spec: str) -> object:
    """Differs when a tokenizer's files do."""
    path = Path(spec).expanduser()
    files = [path, *path.iterdir()] if path.is_dir() else [path] if path.is_file() else []
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(files))


def _checked(texts: Texts) -> Documents:
    """Strings or Arrow text, or an error that names the first that is no text."""
    if isinstance(texts, str):
        raise UsageError("parallel tokenizing takes a list of texts, not one text. Give [text].")
    if isinstance(texts, pa.Array | pa.ChunkedArray):
        text = large_strings(texts)
        if text.null_count:
            raise UsageError(f"text {text.is_null().to_pylist().index(True)} is null. Leave it out and call again.")
        return text
    documents = list(texts)
    for i, document in enumerate(documents):
        if not isinstance(document, str):
            raise UsageError(f"text {i} is no str but {type(document).__name__}. Leave it out, or decode it first.")
    return documents


def _no_unicode(documents: Documents) -> UsageError:
    wrong = next(i for i, document in enumerate(documents) if not _is_unicode(document))
    return UsageError(
        f"text {wrong} holds half a surrogate pair, which is no character. Read its source with errors='replace'."
    )


def _is_unicode(document: str) -> bool:
    try:
        document.encode()
    except UnicodeEncodeError:
        return False
    return True
