"""The code blocks of the documentation, and the place in which they run.

In: README.md and docs/. Out: every `bash` and `python` block with its page and line; a directory with the files that they
name. What cannot run here stands in `NOT_RUN` with the reason. Its commands are still parsed by the real command line,
and its Python is still compiled.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)

NOT_RUN = {  # what a line holds -> why it is not run
    r"pip install": "changes the environment; tools/fresh_user.py runs it",
    r"^(make|cd|git) ": "is the project's own",
    r"\b(s3|gs|az|https)://": "there is no such server; tests/storage and tests/sources have some",
    r"hf://": "there is no network",
    r"(meta-llama|Qwen|mistralai)/": "there is no network",
    r"--tokenizer gpt2": "there is no network",
    r"torchrun|examples/train\.py": "tests/examples/test_train.py trains",
    r"--dataset ": "there is no network; tests/sources has a hub",
    r"--indices-for": "needs the files of a run of Megatron's; tests/compat makes them",
    r"tokpress (copy|publish)": "needs a bucket or the Hub; tests/cli has some",
    r"--executor ray": "needs a cluster; tests/crash/test_ray.py has one",
    r"check-resume": "tests/resuming runs it on trainers",
    r"diagnose (--json )?-- ": "tests/diagnose runs it on scripts",
    r"diagnose --tokenizer": "takes a quarter of a minute; tests/cli/test_diagnose.py runs it",
    r"pretrain_gpt\.py|train_gpt2cu": "another trainer's program",
    r"^tokpress demo": "tests/cli/test_demo.py runs it",
    r"bench ": "tests/cli/test_bench.py runs it",
    r"--print-config|--config |--share|--template": "needs a file or machines of its own; tests/cli and tests/run have them",
    r"tail -f": "never ends",
    r"--plot": "tests/cli/test_pack.py draws it",
    r"--from (datatrove|dolma|nanogpt|llmc)": "token files of other programs; tests/formats imports them",
    r"tokpress view|tokpress serve": "a server; tests/view has it",
}
NOT_RUN_PYTHON = {
    r"DatatroveFolderDataset|polars|duckdb|wandb|lightning|accelerator|SummaryWriter|assert_resumes": "another library's",
    r"s3://|hf://|dataset=": "there is no such server, and no network",
    r"\.to\(\"cuda\"": "there is no GPU",
    r"corpus_text_document": "token files of another program; tests/formats imports them",
    r"sp\.encode": "shows a loop before and after",
}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def all_blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(str(page.relative_to(ROOT)), line, match[1], match[2]))
    return found


def reason(text: str, table: dict[str, str]) -> str | None:
    return next((why for pattern, why in table.items() if re.search(pattern, text)), None)


def make_scene(directory: Path, bpe: Path, model: bytes) -> None:
    """All files that the blocks name, each with a few hundred records."""
    records = [
        {"id": f"n{i}", "url": f"http://x/{i}", "text": f"Record {i}. " + "some words of text " * 30}
        for i in range(300)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    (directory / "tokenizer.json").write_bytes(bpe.read_bytes())
    config = bpe.parent / "tokenizer_config.json"
    if config.exists():
        (directory / "tokenizer_config.json").write_bytes(config.read_bytes())
    (directory / "spm.model").write_bytes(model)
    for name in (
        "corpus.jsonl",
        "a.jsonl",
        "more.jsonl",
        "train.jsonl",
        "val.jsonl",
        "data/part-1.jsonl",
        "data/part-2.jsonl",
    ):
        _put(directory / name, lines)
    _put(directory / "data/part-0001.jsonl.zst", zstandard.compress(lines))
    _put(directory / "web/part.jsonl.zst", zstandard.compress(lines))
    nested = [{"content": {"body": record["text"]}} for record in records]
    _put(directory / "huge.jsonl.zst", zstandard.compress("".join(json.dumps(r) + "\n" for r in nested).encode()))
    _put(directory / "old.jsonl.gz", gzip.compress(lines))
    pq.write_table(pa.Table.from_pylist(records), _parent(directory / "web/a.parquet"))
    pq.write_table(pa.Table.from_pylist(records), directory / "more.parquet")
    for number in range(3):
        _put(directory / f"books/{number}.txt", f"A book, number {number}. ".encode() * 500)
    _put(directory / "all.txt", b"<|endoftext|>".join(record["text"].encode() for record in records))
    qa: list[dict[str, Any]] = [{"question": f"What is {i} and {i}?", "answer": f"It is {2 * i}."} for i in range(300)]
    _put(directory / "qa.jsonl", "".join(json.dumps(record) + "\n" for record in qa).encode())


def _parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _put(path: Path, data: bytes) -> None:
    _parent(path).write_bytes(data)
