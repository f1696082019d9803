"""Two real processes with torch.distributed: each sample once an epoch, no hang, one state."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tokpress

from .conftest import SEQ_LEN

RANK = """
import json, sys
import torch
import torch.distributed as dist
import tokpress

store, port, rank, world_size, epochs, out = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=int(world_size))
data = tokpress.PretokenizedDataset(store, seq_len=16)
loader = tokpress.Loader(data, batch_size=3, rank=dist.get_rank(), world_size=dist.get_world_size(),
                         max_epochs=int(epochs), drop_last=False, threads=2)
rows, steps = [], 0
for batch in loader:
    rows += batch["input_ids"].tolist()
    steps += 1
    total = torch.tensor([batch["input_ids"].sum()])
    if steps <= len(loader) - 1:
        dist.all_reduce(total)  # as a training step would: hangs if a rank had fewer steps
states = [None] * dist.get_world_size()
dist.all_gather_object(states, loader.state_dict())
with open(out, "w") as file:
    json.dump({"rows": rows, "steps": steps, "states": states}, file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("epochs", [1, 2])
def test_each_sample_is_seen_once_per_epoch(store: tokpress.Store, tmp_path: Path, epochs: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outs = [tmp_path / f"{rank}.json" for rank in range(2)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(store.path), str(port), str(rank), "2", str(epochs), str(out)]
        )
        for rank, out in enumerate(outs)
    ]
    assert [rank.wait(timeout=200) for rank in ranks] == [0, 0]
    told = [json.loads(out.read_text()) for out in outs]
    data = tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN, output="numpy")
    once = Counter(tuple(data[i]["input_ids"].tolist()) for i in range(len(data)))
    seen = Counter(tuple(row) for rank in told for row in rank["rows"])
    assert seen == Counter({row: count * epochs for row, count in once.items()})
    states = [state for rank in told for state in rank["states"]]
    assert all(state == states[0] for state in states)
    assert states[0]["samples"] == epochs * len(data)
