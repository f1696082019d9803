"""The peers' own loaders on our tokens, in the environment of bench/loader_peers.txt.

    loader_peers.py write NAME TOKENS DTYPE SEQ_LEN OUT    their files from a file of raw ids
    loader_peers.py read NAME OUT SEQ_LEN SECONDS          shuffled batches of 16, one process; prints tokens/s

litdata: optimize with TokensLoader; StreamingDataset(item_loader=TokensLoader) in a StreamingDataLoader.
mosaicml: MDSWriter with a column of ids; StreamingDataset in a torch DataLoader.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import standins

BATCH = 16


def litdata_inputs(source: tuple[str, str]) -> Iterator[Any]:
    import torch

    ids = np.memmap(source[0], source[1], "r")
    narrowest = np.uint16 if ids.itemsize == 2 else np.int32  # that it has a code for
    for start in range(0, len(ids), 1_000_000):
        yield torch.from_numpy(ids[start : start + 1_000_000].astype(narrowest))


def write_litdata(tokens: str, dtype: str, seq_len: int, out: str) -> None:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    chunk = max(2**24 // seq_len, 1) * seq_len
    litdata.optimize(
        fn=litdata_inputs,
        inputs=[(tokens, dtype)],
        output_dir=out,
        chunk_size=chunk,
        item_loader=TokensLoader(block_size=seq_len),
        num_workers=1,
    )


def read_litdata(out: str, seq_len: int) -> Any:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    data = litdata.StreamingDataset(out, item_loader=TokensLoader(block_size=seq_len), shuffle=True, drop_last=True)
    return litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=0)


def write_mosaicml(tokens: str, dtype: str, seq_len: int, out: str) -> None:
    from streaming import MDSWriter

    ids = np.memmap(tokens, dtype, "r")
    with MDSWriter(out=out, columns={"tokens": f"ndarray:{dtype}:{seq_len}"}) as writer:
        for start in range(0, len(ids) - seq_len + 1, seq_len):
            writer.write({"tokens": np.asarray(ids[start : start + seq_len])})


def read_mosaicml(out: str, seq_len: int) -> Any:  # noqa: ARG001 - the samples have their length
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    return DataLoader(
        StreamingDataset(local=out, shuffle=True, batch_size=BATCH),
        batch_size=BATCH,
        drop_last=True,
        collate_fn=stacked,
    )


def stacked(samples: list[dict[str, Any]]) -> Any:
    import torch

    return torch.from_numpy(np.stack([sample["tokens"] for sample in samples]))  # as stored


def measure(loader: Any, seq_len: int, seconds: float) -> float:
    """Tokens a second, over as many epochs as it takes; the first batches do not count."""
    batches, began = 0, 0.0
    while True:
        for batch in loader:
            assert batch.shape == (BATCH, seq_len), batch.shape
            batches += 1
            if batches == 10:
                batches, began = (0, perf_counter()) if not began else (batches, began)
            if began and perf_counter() - began > seconds:
                return batches * BATCH * seq_len / (perf_counter() - began)


def main() -> None:
    action, name, *arguments = sys.argv[1:]
    if action == "write":
        tokens, dtype, length, out = arguments
        shutil.rmtree(Path(out), ignore_errors=True)
        {"litdata": write_litdata, "mosaicml": write_mosaicml}[name](tokens, dtype, int(length), out)
    else:
        out, length, seconds = arguments
        loader = {"litdata": read_litdata, "mosaicml": read_mosaicml}[name](out, int(length))
        print(json.dumps({"tokens_per_s": measure(loader, int(length), float(seconds))}))


if __name__ == "__main__":
    with standins.stand_in():
        main()
