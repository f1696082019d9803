"""Files that are no tokenizer, by their own names.

In: a path that was given as a tokenizer, and its bytes. Out: nothing, or an error that says what the file seems to be. Only
what is certain is refused here; anything else is for the library that loads it.
"""

from __future__ import annotations

import re
from pathlib import Path

from tokpress.errors import TokenizerError

_HAS_MODEL = re.compile(rb'"(model|config|vocab)"\s*:')  # of a tokenizer.json, a tekken.json
_BEGINNINGS = {
    b"PAR1": "a Parquet table",
    b"\x1f\x8b": "a gzip file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"PK\x03\x04": "a zip archive, or a checkpoint of PyTorch",
    b"GGUF": "a GGUF model",
    b"\x89PNG": "a picture",
    b"%PDF": "a PDF",
    b"\x7fELF": "a program",
    b"ARROW1": "an Arrow file",
}
_KEYS = {  # of JSON objects that lie beside a tokenizer
    b"architectures": "a model's config.json",
    b"model_type": "a model's config.json",
    b"tokenizer_class": "a tokenizer_config.json: the tokenizer.json beside it is meant",
    b"chat_template": "a tokenizer_config.json: the tokenizer.json beside it is meant",
    b"merges": "a part of a tokenizer",
    b"text": "a record of a corpus",
    b"messages": "a record of a corpus",
}


def refuse_what_is_none(path: Path, data: bytes) -> None:
    if (found := _seems(data)) is None:
        return
    raise TokenizerError(
        f"{path} is no tokenizer: it seems to be {found}. Give a tokenizer.json, a SentencePiece .model, a tiktoken rank "
        "file or a directory with one of them; or make one: tokpress train-tokenizer --help"
    )


def _seems(data: bytes) -> str | None:
    if not data.strip():
        return "empty"
    for beginning, what in _BEGINNINGS.items():
        if data.startswith(beginning):
            return what
    start = data[:65536].lstrip()
    if start[:1] == b"{":
        return None if _HAS_MODEL.search(data) else _seems_json(data, start)
    if start[:1] == b"[":
        return "a list in JSON"
    return "text" if _is_prose(start) else None


def _seems_json(data: bytes, start: bytes) -> str:
    lines = [line for line in start.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}" for line in lines[:2]):
        return "JSON lines: a corpus"
    for key, what in _KEYS.items():
        if re.search(rb'"' + key + rb'"\s*:', data):
            return what
    return 'JSON without the "model" that a tokenizer.json has'


def _is_prose(start: bytes) -> bool:
    """Text with spaces between its words, and without what only binary files have: a model is full of it."""
    try:
        text = start[:4096].decode()
    except UnicodeDecodeError as error:
        if error.start < len(start[:4096]) - 4:
            return False
        text = start[: error.start].decode()
    return " " in text and not re.search(r"[\x00-\x08\x0e-\x1f]", text)
