"""TensorBoard reads what a StepLogger wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.metering.loggers import StepLogger, to_tensorboard

from .training import SEQ_LEN, small_store

pytestmark = pytest.mark.filterwarnings("ignore")


def test_tensorboard_shows_figures_and_the_data_s_digest(peer: Any, tmp_path: Path) -> None:
    peer("tensorboard")
    tracker = peer("torch.utils.tensorboard").SummaryWriter(str(tmp_path / "runs"))
    data = tokpress.PretokenizedDataset(small_store(tmp_path), seq_len=SEQ_LEN)
    loader = tokpress.Loader(data, batch_size=4, steps=6)
    meter = tokpress.StepMeter(warmup=0, device="cpu")
    logger = StepLogger(meter, to_tensorboard(tracker), loader=loader, every=3)
    for step, _ in enumerate(meter.wrap(loader), 1):
        logger.step(step)
    tracker.close()
    found = peer("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(str(tmp_path / "runs"))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("tokpress/samples")] == [(3, 12.0), (6, 24.0)]
    digests = [
        event.tensor_proto.string_val[0].decode() for event in found.Tensors("tokpress/data_digest/text_summary")
    ]
    assert digests[1] == loader.state_dict()["digest"]
