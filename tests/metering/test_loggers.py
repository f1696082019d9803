"""A meter's figures and the data's digest, as a tracker gets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokpress
from tokpress.errors import UsageError
from tokpress.metering.loggers import StepLogger, Values


@pytest.fixture
def loader(tmp_path: Path) -> tokpress.Loader:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"document {i} " * 9}) + "\n" for i in range(30)))
    store = tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store")
    return tokpress.Loader(tokpress.PretokenizedDataset(store, seq_len=16, output="numpy"), batch_size=2, steps=9)


def test_every_so_many_steps_are_written(loader: tokpress.Loader) -> None:
    meter = tokpress.StepMeter(tokens_per_step=32, warmup=0, device="cpu")
    written: list[tuple[int, Values]] = []
    logger = StepLogger(meter, lambda step, values: written.append((step, values)), loader=loader, every=4)
    for step, _ in enumerate(meter.wrap(loader), 1):
        logger.step(step)
    assert [step for step, _ in written] == [4, 8]
    assert [values["samples"] for _, values in written] == [8, 16]
    assert written[0][1]["data_digest"] != written[1][1]["data_digest"]
    assert {"step_ms", "step_p99_ms", "tokens_per_s", "share_data"} <= set(written[0][1])


def test_a_logger_that_never_writes_is_refused(loader: tokpress.Loader) -> None:
    with pytest.raises(UsageError, match="at least one step"):
        StepLogger(tokpress.StepMeter(device="cpu"), lambda _, __: None, every=0)
