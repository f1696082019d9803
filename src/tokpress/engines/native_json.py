"""Unigram models in a `tokenizer.json` (T5, XLM-R and their kind), encoded natively where that is proved equal.

In: a `tokenizer.json` whose normaliser and pre-tokenizer are of the kinds below. Out: a `FastEncoder` with the ids of
`tokenizers`, which adds scores in doubles, from 0 in each word: so a word's ids depend on nothing before it.

    normalizer      none, or in this order, each of them or not: Precompiled, Strip, Replace of two and more spaces
    pre_tokenizer   Metaspace that splits, with or without WhitespaceSplit before it

Whatever else there is, is refused with the reason. Documents with clusters of characters whose end depends on more of
Unicode's rules than the encoder knows, and with added tokens that take spaces along, are left to the reference.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import Int64s, TokenBatch, string_buffers
from tokpress.engines.fast import FastEncoder
from tokpress.engines.huggingface import TOKENIZER_JSON
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

UNSUPPORTED = "the native encoder does not take this tokenizer"
META = "\u2581"
_MOST_BYTES = 2**30  # in a document
_NO_METASPACE = f"its pre-tokenizer is not Metaspace with {META}, alone or after WhitespaceSplit"


class _Model(msgspec.Struct):
    type: str | None = None
    unk_id: int | None = None
    vocab: Any = None
    byte_fallback: bool = False


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False

    @property
    def plain(self) -> bool:
        """Found wherever it stands, and alone."""
        return not (self.single_word or self.lstrip or self.rstrip)


class _Kind(msgspec.Struct):
    type: str | None = None


class _Json(msgspec.Struct):
    model: msgspec.Raw
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    added_tokens: list[_AddedToken] | None = None


class NativeJson(FastEncoder):
    memory_per_byte = 60  # a document that is one word

    def __init__(self, tokenizer: Any, doubtful_literals: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._doubtful = list(doubtful_literals)

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        offsets, data = string_buffers(text)
        ids, ends = self._tokenizer.encode_buffers(offsets, data, threads=threads)
        return TokenBatch(ids, ends)

    def doubtful(self, text: pa.LargeStringArray) -> Int64s:
        offsets, data = string_buffers(text)
        doubted = np.diff(offsets) > _MOST_BYTES
        doubted[self._tokenizer.unsettled(offsets, data)] = True
        for literal in self._doubtful:
            doubted |= pc.match_substring(text, literal).to_numpy(zero_copy_only=False)
        return np.flatnonzero(doubted)


def load(files: TokenizerFiles, policy: SpecialTokenPolicy) -> NativeJson:
    """Raises TokenizerError, with the reason, for a tokenizer that it does not take."""
    try:
        parsed = msgspec.json.decode(files.files[TOKENIZER_JSON], type=_Json)
        if msgspec.json.decode(parsed.model, type=_Kind).type != "Unigram":
            raise _refused("its model is not unigram")
        model = msgspec.json.decode(parsed.model, type=_Model)
        pieces = msgspec.convert(model.vocab, type=list[tuple[str, float]])
    except msgspec.DecodeError as error:  # a ValidationError is one
        raise _refused(str(error)) from error
    if model.unk_id is None:
        raise _refused("it has no unknown token")
    settings = _normalizer(parsed.normalizer) | _pre_tokenizer(parsed.pre_tokenizer)
    if settings["words"] and not settings["prefix"]:
        raise _refused("Metaspace puts nothing before words that WhitespaceSplit has split")
    literals, doubtful = _added_tokens(parsed.added_tokens or [], policy)
    if model.byte_fallback and 0 <= model.unk_id < len(pieces):  # beside unknown characters it falls to bytes, too
        doubtful.append(pieces[model.unk_id][0])
    if find_spec("tokpress_native") is None:
        raise TokenizerError("tokpress_native is not installed. Run: pip install 'tokpress[native]'")
    from tokpress_native import Tokenizer

    try:
        tokenizer = Tokenizer.from_pieces(
            pieces, unknown=model.unk_id, byte_fallback=model.byte_fallback, literals=literals, **settings
        )
    except (ValueError, TypeError) as error:
        raise _refused(str(error)) from error
    return NativeJson(tokenizer, doubtful)


def _refused(reason: str) -> TokenizerError:
    return TokenizerError(f"{UNSUPPORTED}: {reason}")


def _normalizer(section: dict[str, Any] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    steps = _steps(section, "normalizers")
    if steps and steps[0].get("type") == "Precompiled":
        try:
            settings["charsmap"] = base64.b64decode(steps.pop(0).get("precompiled_charsmap") or "", validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise _refused("its character map cannot be read") from error
        if not settings["charsmap"]:
            raise _refused("its character map is empty")
    if steps and steps[0].get("type") == "Strip":
        strip = steps.pop(0)
        settings |= {"strip_left": bool(strip.get("strip_left")), "strip_right": bool(strip.get("strip_right"))}
    if steps and steps[0].get("type") == "Replace" and steps[0].get("pattern") == {"Regex": " {2,}"}:
        content = steps.pop(0).get("content")
        if content not in (" ", META):
            raise _refused(f"two spaces become {content!r}")
        settings["joined_spaces"] = content
    if steps:
        raise _refused(f"its normaliser has a step {steps[0].get('type')!r} that is not known in this place")
    return settings


def _pre_tokenizer(section: dict[str, Any] | None) -> dict[str, Any]:
    steps = _steps(section, "pretokenizers")
    words = bool(steps) and steps[0].get("type") == "WhitespaceSplit"
    if len(steps) != 1 + words or steps[-1].get("type") != "Metaspace" or steps[-1].get("replacement") != META:
        raise _refused(_NO_METASPACE)
    scheme = steps[-1].get("prepend_scheme", "always")
    if scheme not in ("always", "never") or steps[-1].get("add_prefix_space", True) is not True:
        raise _refused(f"Metaspace puts {META} before the first word only")
    if steps[-1].get("split", True) is not True:
        raise _refused("Metaspace does not split")
    return {"words": words, "prefix": scheme == "always"}


def _steps(section: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    if section is None:
        return []
    steps = section.get(name) if section.get("type") == "Sequence" else [section]
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise _refused(f"its {name} cannot be read")
    return [*steps]


def _added_tokens(tokens: list[_AddedToken], policy: SpecialTokenPolicy) -> tuple[list[tuple[str, int]], list[str]]:
    """Those that are found in text and stand alone; and what makes a document one for the reference."""
    found = [token for token in tokens if token.content and (policy == "parse" or not token.special)]
    for token in found:
        if token.normalized:
            raise _refused(f"the added token {token.content!r} is looked for in normalised text")
    doubtful = [token.content for token in found if not token.plain]
    if found and policy != "parse":  # a special one is passed over, and hides what overlaps it
        doubtful += [token.content for token in tokens if token.special and token.content]
    return [(token.content, token.id) for token in found if token.plain], doubtful
