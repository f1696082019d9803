"""Readers of every format, written from its layout, slow and obvious: what a trainer would get."""

from __future__ import annotations

import csv
import gzip
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Docs = list[list[int]]


def take(data: bytes, at: int, kind: str) -> tuple[Any, int]:
    """One little-endian number, and where the next one stands."""
    return struct.unpack_from(f"<{kind}", data, at)[0], at + struct.calcsize(f"<{kind}")


def ids_of(data: bytes, width: int) -> list[int]:
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]


def cut(values: list[int], ends: list[int]) -> Docs:
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def megatron(prefix: Path) -> Docs:
    index, raw = (
        prefix.with_name(prefix.name + ".idx").read_bytes(),
        prefix.with_name(prefix.name + ".bin").read_bytes(),
    )
    assert index[:9] == b"MMIDIDX\0\0"
    version, at = take(index, 9, "Q")
    code, at = take(index, at, "B")
    sequences, at = take(index, at, "Q")
    documents, at = take(index, at, "Q")
    assert version == 1
    assert at == 34
    width = {8: 2, 4: 4}[code]
    lengths = [take(index, at + 4 * i, "i")[0] for i in range(sequences)]
    at += 4 * sequences
    pointers = [take(index, at + 8 * i, "q")[0] for i in range(sequences)]
    at += 8 * sequences
    bounds = [take(index, at + 8 * i, "q")[0] for i in range(documents)]
    assert at + 8 * documents == len(index)
    assert bounds == list(range(sequences + 1))
    assert sum(lengths) * width == len(raw)
    return [
        ids_of(raw[pointer : pointer + length * width], width)
        for pointer, length in zip(pointers, lengths, strict=True)
    ]


def megatron_split(out: Path, split: str) -> Docs:
    """The documents of all pairs that are listed, each with its number of tokens as its weight; none if nothing is."""
    listed = out / f"{split}.txt"
    words = listed.read_text().split() if listed.exists() else []
    docs: Docs = []
    for weight, prefix in zip(words[::2], words[1::2], strict=True):
        found = megatron(Path(prefix))
        assert int(weight) == sum(map(len, found)) > 0
        docs += found
    return docs


def datatrove(folder: Path) -> tuple[Docs, Docs | None]:
    docs: Docs = []
    masks: Docs = []
    for path in sorted(folder.glob("*.ds")):
        words = path.with_name(path.name + ".metadata").read_text().split("\n")
        width = int(words[0].rpartition("|")[2])
        ids = ids_of(path.read_bytes(), width)
        assert int(words[1]) == len(ids)
        ends = ids_of(path.with_name(path.name + ".index").read_bytes(), 8)
        docs += cut(ids, ends)
        loss = path.with_name(path.name + ".loss")
        masks += cut(list(loss.read_bytes()), ends) if loss.exists() else []
    return docs, masks or None


def dolma(folder: Path, width: int) -> tuple[Docs, Docs | None]:
    docs: Docs = []
    masks: Docs = []
    for path in sorted(folder.glob("part-*.npy")):
        ids = ids_of(path.read_bytes(), width)
        mask = path.with_name("labels_mask_" + path.name)
        with gzip.open(path.with_suffix(".csv.gz"), "rt", newline="") as table:
            for start, end, number, source, _ in csv.reader(table):
                assert int(number) == len(docs)
                assert source.endswith("a.jsonl")
                docs.append(ids[int(start) : int(end)])
                if mask.exists():
                    masks.append(list(mask.read_bytes())[int(start) : int(end)])
    return docs, masks or None


def nanogpt(path: Path) -> list[int]:
    return ids_of(path.read_bytes(), 2)


def llmc(out: Path, split: str) -> list[int]:
    found = []
    for path in sorted(out.glob(f"{split}_*.bin")):
        data = path.read_bytes()
        magic, version, tokens = struct.unpack_from("<3i", data)
        width = {(20240520, 1): 2, (20240801, 7): 4}[magic, version]
        assert data[12:1024] == bytes(1012)
        assert len(data) == 1024 + tokens * width
        found += ids_of(data[1024:], width)
    return found


def mds(folder: Path) -> list[dict[str, list[int]]]:
    samples: list[dict[str, list[int]]] = []
    if not list(folder.iterdir()):  # a split without a sample is not there
        return samples
    index = json.loads((folder / "index.json").read_text())
    assert index["version"] == 2
    for shard in index["shards"]:
        data = (folder / shard["raw_data"]["basename"]).read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        count = take(data, 0, "I")[0]
        assert count == shard["samples"]
        places = [take(data, 4 + 4 * i, "I")[0] for i in range(count + 1)]
        assert places[-1] == len(data)
        config = json.loads(data[4 + 4 * (count + 1) : places[0]])
        assert all(shard[key] == value for key, value in config.items())
        assert config["column_names"] == sorted(config["column_names"])
        samples += [mds_sample(data[start:end], config) for start, end in pairwise(places)]
    return samples


def mds_sample(data: bytes, config: dict[str, Any]) -> dict[str, list[int]]:
    at, sizes, sample = 0, [], {}
    for size in config["column_sizes"]:
        if size is None:
            size, at = take(data, at, "I")
        sizes.append(size)
    for name, encoding, size in zip(config["column_names"], config["column_encodings"], sizes, strict=True):
        _, dtype, *shape = encoding.split(":")
        value, at = data[at : at + size], at + size
        if not shape:
            assert value[0] >> 2 == 1
            width = 1 << (value[0] & 3)
            shape = [int.from_bytes(value[1 : 1 + width], "little")]
            value = value[1 + width :]
        sample[name] = ids_of(value, np.dtype(dtype).itemsize)
        assert len(sample[name]) == int(shape[0])
    assert at == len(data)
    return sample


def litdata(folder: Path) -> tuple[list[int], list[int]]:
    """All ids, and how many stand in each chunk; a split without a block is not there."""
    if not folder.exists() or not list(folder.iterdir()):
        return [], []
    index = json.loads((folder / "index.json").read_text())
    assert index["config"]["item_loader"] == "TokensLoader"
    width = {"no_header_tensor:20": 2, "no_header_tensor:16": 4}[index["config"]["data_format"][0]]
    found, counts = [], []
    for chunk in index["chunks"]:
        data = (folder / chunk["filename"]).read_bytes()
        items, start, end = struct.unpack_from("<3I", data)
        assert (items, start, end) == (chunk["chunk_size"], 4 * (items + 2), len(data))
        assert chunk["chunk_bytes"] == len(data)
        ids = ids_of(data[start:end], width)
        assert chunk["dim"] == len(ids)
        found += ids
        counts.append(len(ids))
    return found, counts


def parquet(folder: Path) -> list[dict[str, list[int]]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def arrow(folder: Path) -> list[dict[str, list[int]]]:
    rows: list[dict[str, list[int]]] = []
    for entry in json.loads((folder / "state.json").read_text())["_data_files"]:
        with pa.OSFile(str(folder / entry["filename"])) as file:
            rows += pa.ipc.open_stream(file).read_all().to_pylist()
    return rows


def pt(folder: Path, kind: str = "chunk") -> list[list[int]]:
    import torch

    found: list[list[int]] = []
    for path in sorted(folder.glob(f"{kind}_*.pt")):
        found += torch.load(path, weights_only=True).tolist()
    return found


def npy(folder: Path) -> dict[str, list[list[int]]]:
    return {
        name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False).tolist()
        for name in ("input", "target", "mask")
    }
