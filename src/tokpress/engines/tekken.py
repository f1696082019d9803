"""Mistral's `tekken.json`: ranks of tiktoken, a pattern and special tokens in one file.

In: the file. Out: the same tokenizer as a rank file, which tiktoken encodes and gigatoken can be proved for. Special tokens
take the first ids, and the ranks follow them: shifted by as many, in the same order, they merge as they did.
"""

from __future__ import annotations

import base64

import msgspec

from tokpress.engines.tiktoken import rank_files
from tokpress.errors import TokenizerError
from tokpress.records import TokenizerFiles

# What files before version 11 do not list.
_SPECIAL_TOKENS = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)
_BOS, _EOS = "<s>", "</s>"


class _Config(msgspec.Struct, frozen=True):
    pattern: str
    default_vocab_size: int  # special tokens included; the file may list more
    default_num_special_tokens: int


class _Token(msgspec.Struct, frozen=True):
    rank: int
    token_bytes: str


class _SpecialToken(msgspec.Struct, frozen=True):
    rank: int
    token_str: str


class _Tekken(msgspec.Struct, frozen=True):
    config: _Config
    vocab: list[_Token]
    special_tokens: list[_SpecialToken] | None = None


def is_tekken(data: bytes) -> bool:
    """Whether a JSON file is one, as opposed to a `tokenizer.json`."""
    try:
        sections = msgspec.json.decode(data, type=dict[str, msgspec.Raw])  # the vocabulary is left unparsed
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return {"config", "vocab"} <= sections.keys() and "model" not in sections


def tekken_files(data: bytes) -> TokenizerFiles:
    try:
        tekken = msgspec.json.decode(data, type=_Tekken)
        tokens = {base64.b64decode(token.token_bytes, validate=True): token.rank for token in tekken.vocab}
    except (msgspec.DecodeError, ValueError) as error:
        raise TokenizerError(f"not a tekken.json that can be read: {error}. Get it again.") from error
    reserved = tekken.config.default_num_special_tokens
    listed = [token.token_str for token in sorted(tekken.special_tokens or [], key=lambda token: token.rank)]
    names = [*(listed or _SPECIAL_TOKENS)]
    names += [f"<SPECIAL_{i}>" for i in range(len(names), reserved)]
    kept = tekken.config.default_vocab_size - reserved
    ranks = sorted((rank, token) for token, rank in tokens.items() if rank < kept)
    if len(names) != reserved or [rank for rank, _ in ranks] != list(range(kept)):
        raise TokenizerError(
            f"the tekken.json is damaged: it announces {reserved} special tokens and {kept} ranks, and has "
            f"{len(names)} and {len(ranks)}. Get it again."
        )
    lines = b"".join(b"%s %d\n" % (base64.b64encode(token), reserved + rank) for rank, token in ranks)
    special_tokens = {name: i for i, name in enumerate(names)}
    return rank_files(lines, tekken.config.pattern, special_tokens, bos_token=_BOS, eos_token=_EOS)
