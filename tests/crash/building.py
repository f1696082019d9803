"""Builds in processes of their own, which can be killed, and what must be true of what they leave."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import psutil
from conftest import file_checksum, make_texts

from tokpress.records import MANIFEST, SHARDS
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import encode, read_record
from tokpress.store.receipts import StoredReceipt
from tokpress.store.verify import verify_store

OPTIONS = ["--tokenizer", "bytes", "--unit-size", "20kB", "--shard-size", "6kB", "--max-rejects", "100%"]


SUPERVISED = [  # masks, split records and two splits
    *("--prompt-field", "text", "--completion-field", "answer", "--prompt-separator", "="),
    *("--val-fraction", "0.3", "--max-length", "150", "--overlong", "split"),
]


def write_corpus(directory: Path, seed: int, *, texts: int = 600) -> list[Path]:
    """Files of several formats, with bad records in them."""
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    rng = random.Random(seed)
    made = make_texts(texts, seed)
    lines = [json.dumps({"text": text, "answer": f"{len(text)}!"}).encode() for text in made]
    for _ in range(20):
        lines.insert(rng.randrange(len(lines)), rng.choice([b"not json", b'{"text": 1}', b"{}", b'{"text": "\xff"}']))
    (directory / "a.jsonl").write_bytes(b"\n".join(lines))
    (directory / "b.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines[: texts // 3]), mtime=0))
    table = pa.table({"text": made[: texts // 3], "answer": [f"{len(text)}!" for text in made[: texts // 3]]})
    pq.write_table(table, directory / "c.parquet", row_group_size=30)
    return sorted(directory.iterdir())


def command(inputs: list[Path], out: Path | str, *options: str) -> list[str]:
    return [sys.executable, "-m", "tokpress", "build", *map(str, inputs), "--out", str(out), *OPTIONS, *options]


def start(inputs: list[Path], out: Path | str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(inputs, out, *options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that the whole group can be killed
        env=os.environ | environment,
    )


class Process(Protocol):
    @property
    def returncode(self) -> int | None: ...

    def communicate(self, *, timeout: float) -> tuple[bytes, bytes]: ...


def finish(process: Process | subprocess.Popen[bytes], timeout: float = 120) -> tuple[int, str]:
    _, errors = process.communicate(timeout=timeout)
    assert process.returncode is not None
    return process.returncode, errors.decode(errors="replace")


def contents(store: Path) -> dict[str, bytes]:
    """Every byte of a store but how its run went."""
    files = {path.relative_to(store).as_posix(): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    manifest = json.loads(files[MANIFEST])
    del manifest["run"], manifest["checksum"]
    return files | {MANIFEST: json.dumps(manifest).encode()}


def check_honest(store: Path) -> None:
    """Whatever happened: no receipt and no manifest names bytes that are not there."""
    if (store / MANIFEST).exists():
        assert verify_store(store).ok
        return
    for path in (store / SHARDS).glob("*.json") if (store / SHARDS).is_dir() else []:
        receipt = read_record(LocalStorage(path.parent), path.name, StoredReceipt)
        assert path.read_bytes() == encode(receipt)
        for extension, entry in receipt.files.items():
            file = store / receipt.path(extension)
            assert file.stat().st_size == entry.bytes, file
            assert file_checksum(file) == entry.xxh3, file


def kill_someone(process: subprocess.Popen[bytes], rng: random.Random) -> bool:
    """`kill -9` of a worker, of the coordinator, or of all at once; whether there was one to kill."""
    whom = rng.choice(["worker", "coordinator", "group"])
    try:
        if whom == "group":
            os.killpg(process.pid, signal.SIGKILL)
        elif whom == "coordinator":
            os.kill(process.pid, signal.SIGKILL)
        else:
            children = [
                child
                for child in psutil.Process(process.pid).children()
                if "tokpress.run.clusters.serve" in " ".join(child.cmdline())
            ]
            if not children:
                return False
            rng.choice(children).kill()
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
    return True
