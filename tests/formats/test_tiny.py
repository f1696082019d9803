"""An export has no file that its reader could not start from, however small a split is; what is left out is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokpress

from .conftest import MakeStore

FORMATS: dict[str, list[dict[str, Any]]] = {
    "megatron": [{}, {"merge": True}],
    "datatrove": [{}],
    "dolma": [{}, {"seq_len": 16}],
    "nanogpt": [{}],
    "llmc": [{}],
    "litdata": [{}, {"seq_len": 16}],
    "mds": [{}, {"seq_len": 16}],
    "npy": [{"max_length": 16}, {"seq_len": 16, "method": "concat"}],
    "pt": [{"seq_len": 16}],
    "parquet": [{}, {"seq_len": 16}],
    "arrow": [{}, {"seq_len": 16}],
    "bridge": [{"max_length": 16}],
}
SPLITS = {"no document": [[]], "no token": [[0, 0]], "one token": [[1]], "many shards": [[0], [2], [0], [0, 3]]}
TOKENS = {
    "megatron": "*.bin",
    "datatrove": "*.ds",
    "dolma": "*.npy",
    "nanogpt": "*.bin",
    "litdata": "*.bin",
    "pt": "*.pt",
}


def readable(to: str, folder: Path) -> None:
    """What the reader of each format does first with every file that it finds."""
    for file in folder.rglob(TOKENS.get(to, "nothing")):
        np.memmap(file, np.uint8, "r")  # not of a file without bytes
    match to:
        case "llmc":
            assert all(int(np.fromfile(file, "<i4", 3)[2]) > 0 for file in folder.glob("*.bin"))
        case "litdata" | "mds":
            shards = list(folder.glob("val/chunk-*.bin" if to == "litdata" else "val/shard.*.mds"))
            assert (folder / "val" / "index.json").exists() == bool(shards)
        case "npy":
            for file in folder.glob("val/*.npy"):
                np.load(file, mmap_mode="r")
        case "megatron":
            listed = (folder / "val.txt").read_text().split()[1::2] if (folder / "val.txt").exists() else []
            assert len(listed) == len(list(folder.glob("val*.bin"))) == len(list(folder.glob("val*.idx")))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("to", "options"), [(to, options) for to in FORMATS for options in FORMATS[to]])
def test_every_file_can_be_opened(
    make_store: MakeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    to: str,
    options: dict[str, Any],
    split: str,
) -> None:
    monkeypatch.setattr("tokpress.formats.raw.LEAST_TOKENS", 2**20)  # as it is
    store = make_store({"train": [[40], [300]], "val": SPLITS[split]})
    made = tokpress.export(store, to=to, out=tmp_path / "out", **options)
    readable(to, tmp_path / "out")
    names = [name for name in made.files if name.startswith("val") and not name.endswith((".json", ".txt"))]
    if to in ("megatron", "datatrove", "dolma", "nanogpt"):
        few = store.split("val").num_tokens < (options.get("seq_len") or 1)
        assert bool(names) != few
    if split in ("one token", "many shards") and (options.get("seq_len") == 16 or not names):
        assert "too-small" in {loss.kind for loss in made.losses or [] if loss.split == "val"}
