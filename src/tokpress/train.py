"""New tokenizers from text.

In: documents, sampled from the inputs within a memory bound. Out: a `tokenizer.json` (byte-level BPE, Hugging Face's
trainer) or a SentencePiece `.model` (unigram or BPE, Google's trainer). The same inputs give the same file.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tokpress.config import ReadConfig
from tokpress.errors import UsageError
from tokpress.sizes import parse_size
from tokpress.sources.files import discover
from tokpress.sources.sample import sample_texts
from tokpress.storage.local import LocalStorage

TokenizerModel = Literal["bpe", "sp-bpe", "sp-unigram"]
END_OF_TEXT = "<|endoftext|>"
_COMPANION = "tokenizer_config.json"


def train_tokenizer(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str],
    vocab_size: int,
    model: TokenizerModel = "bpe",
    pattern: str = "cl100k",
    special_tokens: Sequence[str] = (END_OF_TEXT,),
    sample_size: int | str = 100 * 10**6,
    format: str | None = None,  # noqa: A002 - the option's name everywhere
    text_field: str = "text",
    separator: str | None = None,
    max_doc_bytes: int | str = ReadConfig().max_doc_bytes,
    overwrite: bool = False,
) -> Path:
    """Trains on about `sample_size` bytes drawn from all over the inputs; returns the path of the file written. A file that
    is there is not replaced unless `overwrite` says so: stores may have been made with it.

    `model`: bpe (a tokenizer.json), or what `tokpress train-tokenizer --help` lists. `pattern`: how text is split
    into words. `special_tokens`: the first one ends documents. `format`, `text_field`, `separator` and
    `max_doc_bytes`: how inputs are read, as for a build.

        path = tokpress.train_tokenizer("data/*.jsonl", out="new-tokenizer.json", vocab_size=8192)
    """
    path = Path(out)
    expected = ".json" if model == "bpe" else ".model"
    if path.suffix != expected:
        raise UsageError(f"--out {path}: a {model} tokenizer is a {expected} file. Name it like tokenizer{expected}.")
    if path.exists() and not overwrite:
        raise UsageError(
            f"--out {path} is there already, and other ids would come of the same name. "
            "Give the new tokenizer another name, or replace this one: --overwrite"
        )
    # A tokenizer.json has no place to say which token ends a document.
    companion = json.dumps({"eos_token": special_tokens[0]}).encode() if model == "bpe" and special_tokens else None
    if companion is not None:
        _refuse_to_share(path, companion)
    config = ReadConfig(
        format=format, text_field=text_field, separator=separator, max_doc_bytes=parse_size(max_doc_bytes)
    )
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    texts = sample_texts(discover(paths, config), config, total_bytes=parse_size(sample_size))
    if model == "bpe":
        data = _train_byte_level(texts, vocab_size, pattern, special_tokens)
    else:
        data = _train_sentencepiece(texts, vocab_size, model.removeprefix("sp-"), special_tokens)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = LocalStorage(path.parent)
    beside.put(path.name, data)
    if companion is not None:
        beside.put(_COMPANION, companion)
    return path


def tokens_in(path: Path) -> int:
    """How many tokens a tokenizer has: fewer than were asked for, if the text did not have more to give."""
    if path.suffix == ".json":
        import tokenizers

        return int(tokenizers.Tokenizer.from_file(str(path)).get_vocab_size())
    import sentencepiece

    return int(sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes()).get_piece_size())


def _refuse_to_share(path: Path, companion: bytes) -> None:
    """A new tokenizer must not change what the tokenizer_config.json of another one says."""
    other = path.with_name(_COMPANION)
    if other.is_file() and not path.exists() and other.read_bytes() != companion:
        raise UsageError(
            f"{other} belongs to another tokenizer. Give this one a directory of its own: --out NEW/{path.name}"
        )


def _train_byte_level(
    texts: Iterator[pa.LargeStringArray], vocab_size: int, pattern: str, special_tokens: Sequence[str]
) -> bytes:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    from tokpress.engines.tiktoken import PATTERNS

    fewest = 256 + len(special_tokens)
    if vocab_size < fewest:
        raise UsageError(f"--vocab-size {vocab_size} is too small: bytes and special tokens alone are {fewest}.")
    try:
        regex = tokenizers.Regex(PATTERNS.get(pattern, pattern))
    except Exception as error:
        raise UsageError(
            f"--pattern {pattern!r} is neither one of {', '.join(PATTERNS)} nor a regular expression: {error}"
        ) from error
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(regex, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.to_pylist() for text in texts), trainer)
    return tokenizer.to_str(pretty=True).encode()


def _train_sentencepiece(
    texts: Iterator[pa.LargeStringArray], vocab_size: int, model_type: str, special_tokens: Sequence[str]
) -> bytes:
    import sentencepiece

    lines = (line for text in texts for doc in text.to_pylist() for line in doc.split("\n") if line)
    written = io.BytesIO()
    options: dict[str, Any] = {
        "model_type": model_type,
        "vocab_size": vocab_size,
        "byte_fallback": True,
        "normalization_rule_name": "identity",  # a corpus is stored as it is
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
        "split_digits": True,
        "hard_vocab_limit": False,
        "max_sentence_length": 16384,
        "num_threads": 16,  # whatever the machine: a unigram model depends on it
        "minloglevel": 2,
        "control_symbols": [token for token in special_tokens if token not in ("<s>", "</s>", "<unk>")],
    }
    try:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=written, **options)
    except (RuntimeError, OSError) as error:
        raise UsageError(f"SentencePiece cannot train {vocab_size:,} tokens on this text: {error}") from error
    return written.getvalue()
