"""tiktoken rank files and named encodings, encoded by OpenAI's library.

A rank file holds tokens and their ranks only; the pattern that splits text and the special tokens come from elsewhere.
All three are kept together as `ranks.tiktoken` and `tiktoken.json`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

import msgspec
import tiktoken

from tokpress.batches import Ids, TokenBatch
from tokpress.engines.base import MAX_ID, StringEngine, from_lists, known_ids, no_panic
from tokpress.engines.huggingface import CHAR_OF_BYTE
from tokpress.errors import CannotEncode, TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles, TokenizerInfo

RANKS = "ranks.tiktoken"
DETAILS = "tiktoken.json"
END_OF_TEXT = "<|endoftext|>"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CL100K = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": _CL100K,
    "llama3": _CL100K,
    "qwen2": _CL100K.replace(r"\p{N}{1,3}", r"\p{N}"),
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

# What the rank files that OpenAI publishes leave out, by name of the file.
PUBLISHED: dict[str, tuple[str, dict[str, int]]] = {
    "r50k_base": ("gpt2", {END_OF_TEXT: 50256}),
    "p50k_base": ("gpt2", {END_OF_TEXT: 50256}),
    "cl100k_base": (
        "cl100k",
        {
            END_OF_TEXT: 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": ("o200k", {END_OF_TEXT: 199999, "<|endofprompt|>": 200018}),
}
# The same patterns as they are written elsewhere (by OpenAI for GPT-2, by tiktoken to run faster); gigatoken knows the forms
# above only.
_PLAIN_FORM = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": PATTERNS["gpt2"],
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": PATTERNS["gpt2"],
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s": PATTERNS["cl100k"],
}


class Details(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rank file leaves out."""

    pattern: str
    special_tokens: dict[str, int]
    bos_token: str | None = None
    eos_token: str | None = None  # else <|endoftext|>, if there is one


def rank_files(
    ranks: bytes,
    pattern: str,
    special_tokens: Mapping[str, int],
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
) -> TokenizerFiles:
    details = Details(pattern=pattern, special_tokens=dict(special_tokens), bos_token=bos_token, eos_token=eos_token)
    return TokenizerFiles("tiktoken", {RANKS: ranks, DETAILS: msgspec.json.encode(details)})


def encoding_names() -> list[str]:
    return tiktoken.list_encoding_names()


def named_encoding(name: str) -> TokenizerFiles:
    """One of tiktoken's own, which it downloads once and keeps in `TIKTOKEN_CACHE_DIR`."""
    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise TokenizerError(
            f"tiktoken could not download {name!r}: {error}. Where there is a network, run "
            f"TIKTOKEN_CACHE_DIR=tiktoken-cache python -c \"import tiktoken; tiktoken.get_encoding('{name}')\", "
            "copy tiktoken-cache here and set TIKTOKEN_CACHE_DIR to it."
        ) from error
    ranks = b"".join(b"%s %d\n" % (base64.b64encode(token), i) for token, i in encoding._mergeable_ranks.items())
    return rank_files(ranks, encoding._pat_str, encoding._special_tokens)


def parse_ranks(data: bytes) -> dict[bytes, int]:
    try:
        pairs = (line.split() for line in data.splitlines() if line)
        return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except (ValueError, binascii.Error) as error:
        raise TokenizerError(f"not a tiktoken rank file (each line: base64 token, space, rank): {error}") from error


class TiktokenEngine(StringEngine):
    name = "tiktoken"
    memory_per_byte = 20

    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        details = msgspec.json.decode(files.files[DETAILS], type=Details)
        ranks = parse_ranks(files.files[RANKS])
        _check_ids(ranks, details.special_tokens)
        self._parse = policy == "parse"
        try:
            self._encoding = tiktoken.Encoding(
                "tokpress", pat_str=details.pattern, mergeable_ranks=ranks, special_tokens=details.special_tokens
            )
        except ValueError as error:
            raise TokenizerError(f"tiktoken cannot use the pattern {details.pattern!r}: {error}") from error
        self.info = TokenizerInfo(
            kind=files.kind,
            fingerprint=files.fingerprint,
            vocab_size=self._encoding.max_token_value + 1,
            special_tokens=details.special_tokens,
            bos_token=details.bos_token,
            eos_token=details.eos_token or (END_OF_TEXT if END_OF_TEXT in details.special_tokens else None),
        )

    def encode_strings(self, documents: list[str], *, threads: int = 1) -> TokenBatch:
        refusal = "tiktoken cannot encode a document (a million spaces in a row, say); build with --engine auto"
        with no_panic(refusal, CannotEncode):
            if self._parse:
                return from_lists(self._encoding.encode_batch(documents, num_threads=threads, allowed_special="all"))
            return from_lists(self._encoding.encode_ordinary_batch(documents, num_threads=threads))

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, known_ids(ids, self.info.vocab_size))).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        try:
            return self._encoding.decode_single_token_bytes(token)
        except KeyError:  # ids between the ranks and the special tokens may stand for nothing
            return b""


def _check_ids(ranks: Mapping[bytes, int], special_tokens: Mapping[str, int]) -> None:
    """What tiktoken does not check, and then panics, loops for ever or gives two tokens one id."""
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(f"the rank file has no token for byte 0x{missing[0]:02X}: it is incomplete. Get it again.")
    owners: dict[int, object] = {}
    for token, i in (*ranks.items(), *special_tokens.items()):
        if not token or not 0 <= i <= MAX_ID:
            raise TokenizerError(
                f"{token!r} with id {i} cannot be a token: it is empty, or its id is above {MAX_ID:,}."
            )
        if i in owners:
            raise TokenizerError(
                f"{token!r} and {owners[i]!r} have the same id {i}. Give special tokens ids above the ranks, like "
                f"{max(ranks.values()) + 1}."
            )
        owners[i] = token


def as_tokenizer_json(files: TokenizerFiles) -> bytes:
    """The same tokenizer in Hugging Face's form, for the fast engine.

    tiktoken merges the pair whose union has the lowest rank; a merge list does the same if every token is listed, in the
    order of ranks, with all its splits into two tokens. Whether the result is equal is for the parity check to say.
    """
    details = msgspec.json.decode(files.files[DETAILS], type=Details)
    tokens = parse_ranks(files.files[RANKS]).items()
    ranks = {token.decode("latin-1").translate(CHAR_OF_BYTE): rank for token, rank in tokens}
    merges: list[tuple[str, str]] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        splits = ((token[:i], token[i:]) for i in range(1, len(token)))
        pairs = [(left, right) for left, right in splits if left in ranks and right in ranks]
        merges += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return msgspec.json.encode(
        {
            "version": "1.0",
            "added_tokens": [{"id": i, "content": name, **plain} for name, i in details.special_tokens.items()],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split",
                        "pattern": {"Regex": _PLAIN_FORM.get(details.pattern, details.pattern)},
                        "behavior": "Isolated",
                        "invert": False,
                    },
                    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
                ],
            },
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": True,
                "vocab": ranks,
                "merges": merges,
            },
        }
    )
