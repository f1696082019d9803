"""The inputs that the golden builds read, and the tokenizers they use: made once, and kept as files.

In: nothing. Out: `inputs/` and `tokenizers/` beside this file. Both are in the repository: bytes of a compressor or of a
trainer may change with its version, the recorded inputs must not. Run this to see how they came to be, or to add to them:

    python tests/golden/corpus.py DIRECTORY
"""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

import tokpress

END_OF_TEXT, START, END, BEGIN = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin|>"
AWKWARD = [
    "",
    " ",
    "\n\n",
    "CRLF\r\nline\r\n",
    "nul \0 inside",
    "é e\u0301 ﬁ ½ Ⅷ ｆｕｌｌ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪",
    "你好，世界。こんにちは 안녕하세요",
    "\u202eabc\u202c \u200b\u200d \u00a0 \u3000",
    f"{END_OF_TEXT} </s> <s> {START}user{END}",
    "def f(x):\n    return {'a': [1, 2, 3]}  # ok\n",
    '"quotes" \\backslash\\ \\n \\u0041',
    "a" * 300,
    "\U0010ffff \ufffe \ufeff",
    "1234567890 12,345.678 0x1F " * 6,
]
WORDS = [
    "the",
    "of",
    "and",
    "a",
    "token",
    "shard",
    "batch",
    "mask",
    "naïve",
    "Straße",
    "日本",
    "x1",
    "…",
    "def",
    "(",
    ")",
    "😀",
    "1234",
    "it's",
    "don't\n",
    "\t",
    ";",
    "==",
    "loader",
]
BAD_LINES = [
    b"not json",
    b'{"text": 5, "id": "n"}',
    b'{"id": "no text"}',
    b'{"text": null}',
    b'{"text": "\xff\xfe"}',
    b"[]",
    b'{"text": "cut',
    b'{"text": "\\ud800 alone"}',
]
GENERATION = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{- message.content + '<|im_end|>' }}{%- endgeneration %}
{%- else %}{{- message.content + '<|im_end|>' }}{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
WITHOUT_GENERATION = """\
{{- 'Today is ' + strftime_now('%d %B %Y') + '.\\n' }}
{%- for tool in tools or [] %}{{- (tool | tojson) + '\\n' }}{%- endfor %}
{%- for message in messages %}{{- '[' + message.role + '] ' + message.content + '<|im_end|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '[assistant] ' }}{%- endif %}
"""
PUZZLE = """\
Grid:
{% for row in grid %}{{ row | join(' ') }}
{% endfor %}
Answer: {% loss %}{{ answer }}{% endloss %}
"""


def main(directory: Path) -> None:
    make_inputs(directory / "inputs")
    make_tokenizers(directory / "inputs", directory / "tokenizers")


def make_inputs(inputs: Path) -> None:
    inputs.mkdir(parents=True)

    def write(name: str, data: bytes) -> None:
        (inputs / name).write_bytes(data)

    write("a.jsonl", b"\xef\xbb\xbf" + _jsonl("a", 90, seed=1, bad=True))  # a byte order mark, no newline at the end
    write("b.jsonl.gz", gzip.compress(_jsonl("b", 40, seed=2), mtime=0))
    frames = [_jsonl("c", 20, seed=3), b"\n", _jsonl("c", 20, seed=4, bad=True)]
    write("c.jsonl.zst", b"".join(map(zstandard.compress, frames)))
    write("d.jsonl.bz2", bz2.compress(_jsonl("d", 20, seed=5)))
    write("e.jsonl.xz", lzma.compress(_jsonl("e", 20, seed=6)))
    write("broken.jsonl.gz", gzip.compress(_jsonl("f", 30, seed=7), mtime=0)[:-900])
    write("val.jsonl", _jsonl("v", 12, seed=8))
    write("crlf.jsonl", _jsonl("g", 20, seed=9).replace(b"\n", b"\r\n"))
    table = _table(70, seed=10)
    pq.write_table(table, inputs / "table.parquet", row_group_size=16, compression="zstd")
    with pa.ipc.new_stream(inputs / "table.arrow", table.schema) as stream:
        stream.write_table(_table(40, seed=11), max_chunksize=9)
    write("notes.txt", "\n---\n".join(_texts(30, seed=12)).encode())
    write("lines.txt.zst", zstandard.compress("\n".join(_texts(30, seed=13)).encode() + b"\n\xff bad\nlast"))
    write("qa.jsonl", _questions(60, seed=14))
    chats = _chats(30, seed=15)
    write("chats.jsonl", b"".join(json.dumps(chat, ensure_ascii=False).encode() + b"\n" for chat in chats))
    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    columns = {"messages": pa.array([chat.get("messages") for chat in chats[:12]], messages)}
    pq.write_table(pa.table(columns), inputs / "chats.parquet", row_group_size=5)
    write("puzzles.jsonl", _puzzles(40, seed=16))
    for name, template in {"generation": GENERATION, "dated": WITHOUT_GENERATION, "puzzle": PUZZLE}.items():
        write(f"{name}.jinja", template.encode())


def make_tokenizers(inputs: Path, tokenizers: Path) -> None:
    texts = [inputs / "a.jsonl", inputs / "table.parquet"]
    for name in ("bpe", "chat"):
        path = tokpress.train_tokenizer(
            texts,
            out=tokenizers / name / "tokenizer.json",
            vocab_size=480,
            special_tokens=[END_OF_TEXT, START, END, BEGIN],
        )
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")), ensure_ascii=False, separators=(",", ":")))
    (tokenizers / "chat" / "chat_template.jinja").write_text(GENERATION)
    for model in ("unigram", "bpe"):
        tokpress.train_tokenizer(
            texts,
            out=tokenizers / f"sp-{model}.model",
            vocab_size=420,
            model=f"sp-{model}",  # type: ignore[arg-type]
            special_tokens=["</s>"],
        )
    pairs = ["th", "the", " t", " the", "in", "to", "ke", "ken", "token", "sh", "ha", "\n\n", "12", "34", "1234"]
    ranks = [*(bytes([byte]) for byte in range(256)), *(pair.encode() for pair in pairs), "é".encode(), "日".encode()]
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(ranks)]
    (tokenizers / "ranks.tiktoken").write_bytes(b"".join(lines))


def _texts(count: int, seed: int) -> list[str]:
    """Word soup of many lengths, with the awkward ones spread over it."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([1, 3, 8, 20, 60]))) for _ in range(count)]
    for i, text in enumerate(rng.sample(AWKWARD, min(len(AWKWARD), count // 2))):
        texts[i * count // len(AWKWARD)] = text
    return texts


def _jsonl(name: str, count: int, seed: int, *, bad: bool = False) -> bytes:
    lines = []
    for i, text in enumerate(_texts(count, seed)):
        record: dict[str, Any] = {"id": f"{name}{i}", "text": text, "meta": {"url": f"https://x/{i % 7}", "n": i}}
        if i % 5 == 0:
            record["lang"] = ["de", "en", None][i % 3]
        record["set"] = ["train", "train", "val", "test"][i % 4]
        record["inner"] = {"body": text[::-1]}
        lines.append(json.dumps(record, ensure_ascii=i % 2 == 0).encode())
    for i, line in enumerate(BAD_LINES if bad else []):
        lines.insert((i + 1) * len(lines) // (len(BAD_LINES) + 1), line)
    return b"\n".join(lines) + (b"" if bad else b"\n\n")


def _table(rows: int, seed: int) -> pa.Table:
    texts: list[str | None] = [*_texts(rows, seed)]
    texts[rows // 3] = None
    return pa.table(
        {
            "id": pa.array([f"t{i}" for i in range(rows)]),
            "text": pa.array(texts, pa.string()),
            "meta": pa.array([{"url": f"https://x/{i % 7}", "n": i} for i in range(rows)]),
            "lang": pa.array([["de", "en", None][i % 3] for i in range(rows)]).dictionary_encode(),
            "set": pa.array([["train", "val"][i % 2] for i in range(rows)]),
        }
    )


def _questions(count: int, seed: int) -> bytes:
    rng = random.Random(seed)
    records: list[dict[str, Any]] = []
    for i, text in enumerate(_texts(count, seed)):
        x, y = rng.randrange(1000), rng.randrange(1000)
        records.append({"user": f"u{i % 9}", "question": f"{text}\n{x}+{y}=", "answer": f"{x + y}" if i % 3 else text})
    records[7] = {"question": "no answer"}
    records[21] = {"question": "a list", "answer": ["no", "text"]}
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _chats(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    texts = _texts(count * 6, seed)
    chats: list[dict[str, Any]] = []
    for i in range(count):
        turns = texts[i * 6 : i * 6 + rng.randrange(1, 4) * 2]
        messages = [{"role": ["user", "assistant"][k % 2], "content": turn} for k, turn in enumerate(turns)]
        if i % 4 == 0:
            messages.insert(0, {"role": "system", "content": "Be brief."})
        chat: dict[str, Any] = {"messages": messages, "id": str(i)}
        if i % 5 == 0:
            chat["tools"] = [{"type": "function", "function": {"name": f"f{i}", "parameters": {"x": "Straße"}}}]
        chats.append(chat)
    chats[13] = {"messages": [{"role": "user", "content": "nobody answers"}]}
    chats[17] = {"messages": "no list"}
    chats[19] = {"id": "none"}
    return chats


def _puzzles(count: int, seed: int) -> bytes:
    rng = random.Random(seed)
    records = [
        {
            "grid": [[rng.randrange(10) for _ in range(3)] for _ in range(rng.randrange(1, 5))],
            "answer": rng.randrange(99),
        }
        for _ in range(count)
    ]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records) + b'{"grid": 5}\n'


if __name__ == "__main__":
    main(Path(sys.argv[1]))
