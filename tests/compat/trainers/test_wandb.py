"""W&B, offline: its run has what a StepLogger wrote."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokpress
from compat.training import SEQ_LEN, small_store
from tokpress.metering.loggers import StepLogger, to_wandb

pytestmark = pytest.mark.filterwarnings("ignore")


def records(log: bytes) -> Iterator[bytes]:
    """Of an offline run: a log in LevelDB's format behind seven bytes, blocks of 32 KiB at whose ends records are cut."""
    place, held = 7, b""
    while place < len(log):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<4xHB", log, place)
        held += log[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield held
            held = b""


def test_it_has_figures_and_the_data_s_digest(peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = peer("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    run = wandb.init(project="tokpress", dir=str(tmp_path), mode="offline")
    data = tokpress.PretokenizedDataset(small_store(tmp_path), seq_len=SEQ_LEN)
    loader = tokpress.Loader(data, batch_size=4, steps=6)
    meter = tokpress.StepMeter(warmup=0, device="cpu")
    logger = StepLogger(meter, to_wandb(run), loader=loader, every=3)
    for step, _ in enumerate(meter.wrap(loader), 1):
        logger.step(step)
    digest = loader.state_dict()["digest"]
    run.finish()
    wandb.teardown()
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    made = peer("wandb.proto.wandb_internal_pb2").Record
    history = []
    for record in map(made.FromString, records(file.read_bytes())):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            history.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
    assert [(row["_step"], row["tokpress/samples"]) for row in history] == [(3, 12), (6, 24)]
    assert history[-1]["tokpress/data_digest"] == digest
