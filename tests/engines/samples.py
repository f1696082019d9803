"""Tokenizers of every kind, real ones where a package carries them, and the libraries that define what they mean.

Each is made once. The oracles call `tokenizers`, `sentencepiece` and `tiktoken` directly, a document at a time, so that
they share nothing with the engines but the tokenizer's bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokpress.engines.base import Engine
from tokpress.engines.fast import FastEngine
from tokpress.engines.load import fast_engine, reference_engine
from tokpress.engines.tiktoken import PATTERNS, as_tokenizer_json, parse_ranks, rank_files
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from .fuzz import fuzzed

END = "<|endoftext|>"
POLICIES: tuple[SpecialTokenPolicy, ...] = ("text", "parse")
CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"  # as OpenAI publishes it

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Sample:
    files: TokenizerFiles
    fast: bool = False  # gigatoken takes it
    lossless: Container[SpecialTokenPolicy] = ()  # with which policies
    whole_bytes: bool = False  # the bytes of the tokens are the bytes of the text
    lost: str = ""  # characters lost by an otherwise lossless tokenizer


@cache
def sample(name: str) -> Sample:
    return _MAKERS[name]()


def reference(name: str, policy: SpecialTokenPolicy = "text") -> Engine:
    return _reference(name, policy)


def fast(name: str, policy: SpecialTokenPolicy = "text") -> FastEngine:
    return _fast(name, policy)


def oracle(name: str, policy: SpecialTokenPolicy = "text") -> Encode:
    """What the library itself says."""
    return _oracle(name, policy)


@cache
def _reference(name: str, policy: SpecialTokenPolicy) -> Engine:
    return reference_engine(sample(name).files, policy)


@cache
def _fast(name: str, policy: SpecialTokenPolicy) -> FastEngine:
    return fast_engine("gigatoken", sample(name).files, policy, reference(name, policy))


@cache
def _oracle(name: str, policy: SpecialTokenPolicy) -> Encode:
    files = sample(name).files
    return _ORACLES[files.kind](files, policy)


# --- the libraries, called directly


def _huggingface_oracle(files: TokenizerFiles, policy: SpecialTokenPolicy) -> Encode:
    tokenizer = tokenizers.Tokenizer.from_str(files.files["tokenizer.json"].decode())
    tokenizer.encode_special_tokens = policy == "text"
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _sentencepiece_oracle(files: TokenizerFiles, policy: SpecialTokenPolicy) -> Encode:
    model: Any = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(files.files["tokenizer.model"])
    control = {model.IdToPiece(i): i for i in range(model.GetPieceSize()) if model.IsControl(i)}

    def parse(text: str) -> list[int]:
        """The first control symbol (of several that begin there, the longest) parts the text in two."""
        found = [(text.index(piece), -len(piece), piece) for piece in control if piece in text]
        if not found:
            return model.EncodeAsIds(text) if text else []
        start, _, piece = min(found)
        return [*parse(text[:start]), control[piece], *parse(text[start + len(piece) :])]

    return model.EncodeAsIds if policy == "text" else parse


def _tiktoken_oracle(files: TokenizerFiles, policy: SpecialTokenPolicy) -> Encode:
    details = json.loads(files.files["tiktoken.json"])
    lines = (line.split() for line in files.files["ranks.tiktoken"].splitlines())
    encoding = tiktoken.Encoding(
        "oracle",
        pat_str=details["pattern"],
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens=details["special_tokens"],
    )
    if policy == "parse":
        return lambda text: encoding.encode(text, allowed_special="all")
    return lambda text: encoding.encode(text, disallowed_special=())


def _bytes_oracle(files: TokenizerFiles, policy: SpecialTokenPolicy) -> Encode:
    if policy == "text":
        return lambda text: list(text.encode())
    return lambda text: [
        token for part in text.replace(END, f"\ud800{END}\ud800").split("\ud800") for token in _bytes_of_part(part)
    ]


def _bytes_of_part(part: str) -> list[int]:
    return [256] if part == END else list(part.encode())


_ORACLES: dict[str, Callable[[TokenizerFiles, SpecialTokenPolicy], Encode]] = {
    "huggingface": _huggingface_oracle,
    "sentencepiece": _sentencepiece_oracle,
    "tiktoken": _tiktoken_oracle,
    "bytes": _bytes_oracle,
}


# --- what to train small ones on


@cache
def corpus() -> list[str]:
    """English with code in it, and every oddity, so that there are merges across what should not be merged."""
    return [*list(topics.values())[:40], *fuzzed(11, 1500)]


# --- Hugging Face


def added_token(content: str, token: int, *, special: bool = True, **flags: bool) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token, "content": content, **plain, "special": special, **flags}


def huggingface_files(tokenizer: tokenizers.Tokenizer | dict[str, Any], **companions: Any) -> TokenizerFiles:
    """`tokenizer_config={"eos_token": ...}` and so on become the files beside it."""
    data = json.dumps(tokenizer) if isinstance(tokenizer, dict) else tokenizer.to_str()
    beside = {f"{name}.json": json.dumps(content).encode() for name, content in companions.items()}
    return TokenizerFiles("huggingface", {"tokenizer.json": data.encode(), **beside})


@cache
def byte_level_json(pattern: str) -> str:
    """A byte-level BPE of 1,200 tokens; "bytelevel" is the pattern of GPT-2 as its own tokenizer.json writes it."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "bytelevel")
    if pattern == "bytelevel":
        tokenizer.pre_tokenizer = byte_level
    else:
        split = pre_tokenizers.Split(tokenizers.Regex(PATTERNS[pattern]), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=[END, "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer.to_str()


def byte_level(pattern: str = "cl100k") -> dict[str, Any]:
    """As parsed JSON, to be changed."""
    parsed: dict[str, Any] = json.loads(byte_level_json(pattern))
    return parsed


def _byte_level_sample(pattern: str) -> Sample:
    files = huggingface_files(byte_level(pattern), tokenizer_config={"eos_token": END})
    return Sample(files, fast=True, lossless=POLICIES, whole_bytes=True)


def _qwen_like() -> Sample:
    """Qwen normalizes to NFC, so that not every text comes back."""
    return Sample(huggingface_files(byte_level("qwen2") | {"normalizer": {"type": "NFC"}}), fast=True)


def _with_added_tokens() -> Sample:
    """Tokens that are found in text though they are no special ones, or take the spaces beside them along."""
    tokenizer = byte_level()
    beyond = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"] += [
        added_token("<tool>", beyond, special=False),
        added_token("<call>", beyond + 1, special=False, normalized=True),
        added_token("<mask>", beyond + 2, lstrip=True),
        added_token("<sep>", beyond + 3, rstrip=True),
        added_token("fig.", beyond + 4, special=False),
    ]
    return Sample(huggingface_files(tokenizer), fast=True)


def _llama2_like() -> Sample:
    """SentencePiece's BPE as Hugging Face writes it: spaces are ▁, unknown characters fall back to bytes."""
    names = ["<unk>", "<s>", "</s>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=names + byte_tokens, show_progress=False)
    trained.train_from_iterator(corpus(), trainer)
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = json.loads(trained.to_str()) | {"pre_tokenizer": None}
    tokenizer["added_tokens"] = [added_token(name, i) for i, name in enumerate(names)]
    files = huggingface_files(tokenizer, tokenizer_config={"bos_token": "<s>", "eos_token": {"content": "</s>"}})
    return Sample(files, fast=True, lossless=["text"], lost="▁")  # after a parsed token it adds a space


def _wordpiece() -> Sample:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        corpus(), trainers.WordPieceTrainer(vocab_size=800, special_tokens=names, show_progress=False)
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return Sample(huggingface_files(tokenizer, tokenizer_config={"eos_token": "[SEP]", "bos_token": "[CLS]"}))


def _unigram_json() -> Sample:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=800, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(list(topics.values())[:10], trainer)
    return Sample(huggingface_files(tokenizer))


# --- tiktoken


def package_file(package: str, path: str) -> Path:
    """A data file of an installed package, which is not imported for it."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], path)


def llama3_ranks() -> Path:
    return package_file("llama_models", "llama3/tokenizer.model")


@cache
def cl100k_ranks() -> bytes:
    """The real cl100k_base: Llama 3's ranks begin with all of it."""
    ranks = b"".join(llama3_ranks().read_bytes().splitlines(keepends=True)[:100_256])
    assert hashlib.sha256(ranks).hexdigest() == CL100K_SHA256
    return ranks


LLAMA3_SPECIALS = {"<|begin_of_text|>": 128_000, "<|end_of_text|>": 128_001, "<|eot_id|>": 128_002}


def small_ranks() -> bytes:
    """A trained vocabulary as a rank file."""
    vocab = byte_level("bytelevel")["model"]["vocab"]
    bytes_of = {char: byte for byte, char in _stand_ins().items()}
    tokens = [bytes(map(bytes_of.__getitem__, token)) for token in vocab if not token.startswith("<|")]
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))


def _stand_ins() -> dict[int, str]:
    """Byte -> the character that byte-level vocabularies write it with, as OpenAI's GPT-2 code makes them."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    shifted = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(shifted)}


def _tiktoken_sample(ranks: bytes, pattern: str, special_tokens: dict[str, int]) -> Sample:
    files = rank_files(ranks, PATTERNS[pattern], special_tokens)
    return Sample(files, fast=True, lossless=POLICIES, whole_bytes=True)


def _small_ranks_sample(pattern: str) -> Sample:
    count = len(parse_ranks(small_ranks()))
    return _tiktoken_sample(small_ranks(), pattern, {END: count + 5, "<|fim|>": count + 3, "<|fim_end|>": count + 7})


def _llama3_json() -> Sample:
    """Llama 3's real vocabulary as the tokenizer.json that everybody has."""
    converted = as_tokenizer_json(rank_files(llama3_ranks().read_bytes(), PATTERNS["llama3"], LLAMA3_SPECIALS))
    files = TokenizerFiles("huggingface", {"tokenizer.json": converted})
    return Sample(files, fast=True, lossless=POLICIES, whole_bytes=True)


def _llama4_ranks() -> Sample:
    """A real vocabulary of 200,000 tokens with the pattern of o200k_base."""
    ranks = package_file("llama_models", "llama4/tokenizer.model").read_bytes()
    return _tiktoken_sample(ranks, "o200k", {"<|begin_of_text|>": 200_000, "<|end_of_text|>": 200_001})


# --- SentencePiece


def train_sentencepiece(**options: Any) -> bytes:
    lines = (line for text in corpus()[25:400] for line in text.split("\n") if 0 < len(line) < 200)
    written = io.BytesIO()
    defaults: dict[str, Any] = {
        "vocab_size": 700,
        "character_coverage": 0.98,
        "control_symbols": ["<ctrl>", "<ctrl>>"],
        "user_defined_symbols": ["<user>"],
        "hard_vocab_limit": False,
        "seed_sentencepiece_size": 10_000,
        "num_threads": 2,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=written, **(defaults | options))
    return written.getvalue()


def _trained_sentencepiece(model: str, fallback: bool, prefix: bool, rule: str) -> Sample:
    identity = rule == "identity"
    trained = train_sentencepiece(
        model_type=model,
        byte_fallback=fallback,
        add_dummy_prefix=prefix,
        normalization_rule_name=rule,
        remove_extra_whitespaces=not identity,
    )
    files = TokenizerFiles("sentencepiece", {"tokenizer.model": trained})
    lossless = identity and fallback
    return Sample(files, lossless=POLICIES if lossless else (), whole_bytes=lossless and not prefix, lost="▁")


def _real_sentencepiece(version: str) -> Sample:
    data = package_file("mistral_common", f"data/{version}").read_bytes()
    return Sample(TokenizerFiles("sentencepiece", {"tokenizer.model": data}), lossless=POLICIES, lost="▁")


# --- all of them

_HUGGINGFACE: dict[str, Callable[[], Sample]] = {
    "gpt2": lambda: _byte_level_sample("bytelevel"),
    "gpt2-split": lambda: _byte_level_sample("gpt2"),
    "cl100k": lambda: _byte_level_sample("cl100k"),
    "o200k": lambda: _byte_level_sample("o200k"),
    "qwen2": lambda: _byte_level_sample("qwen2"),
    "qwen2-nfc": _qwen_like,
    "added-tokens": _with_added_tokens,
    "llama2": _llama2_like,
    "llama3-real": _llama3_json,
    "wordpiece": _wordpiece,
    "unigram-json": _unigram_json,
}
_TIKTOKEN: dict[str, Callable[[], Sample]] = {
    "gpt2-ranks": lambda: _small_ranks_sample("gpt2"),
    "qwen2-ranks": lambda: _small_ranks_sample("qwen2"),
    "cl100k-real": lambda: _tiktoken_sample(cl100k_ranks(), "cl100k", {END: 100_257, "<|endofprompt|>": 100_276}),
    "llama4-real": _llama4_ranks,
}
_SENTENCEPIECE: dict[str, Callable[[], Sample]] = {
    "mistral-v1-real": lambda: _real_sentencepiece("tokenizer.model.v1"),
    "mistral-v7-real": lambda: _real_sentencepiece("mistral_instruct_tokenizer_241114.model.v7"),
}
for _options in product(("bpe", "unigram"), (True, False), (True, False), ("identity", "nmt_nfkc")):
    _model, _fallback, _prefix, _rule = _options
    _name = f"sp-{_model}-{'fallback' if _fallback else 'unk'}-{'prefix' if _prefix else 'bare'}-{_rule}"
    _SENTENCEPIECE[_name] = lambda options=_options: _trained_sentencepiece(*options)  # type: ignore[misc]

_MAKERS: dict[str, Callable[[], Sample]] = {
    **_HUGGINGFACE,
    **_TIKTOKEN,
    **_SENTENCEPIECE,
    "bytes": lambda: Sample(TokenizerFiles("bytes", {}), lossless=POLICIES, whole_bytes=True),
}
NAMES = list(_MAKERS)
HUGGINGFACE, TIKTOKEN, SENTENCEPIECE = list(_HUGGINGFACE), list(_TIKTOKEN), list(_SENTENCEPIECE)
SENTENCEPIECE_FEW = [  # every option once
    "mistral-v7-real",
    "sp-bpe-fallback-bare-identity",
    "sp-bpe-unk-prefix-nmt_nfkc",
    "sp-unigram-fallback-prefix-identity",
    "sp-unigram-unk-bare-nmt_nfkc",
]
UNSUPPORTED = ["wordpiece", "unigram-json"]  # by gigatoken
FAST_PIECES = [name for name in SENTENCEPIECE if name.startswith(("mistral", "sp-bpe-fallback"))]
FAST = [name for name in (*HUGGINGFACE, *TIKTOKEN, *FAST_PIECES) if name not in UNSUPPORTED]
