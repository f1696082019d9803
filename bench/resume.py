"""How long a run takes to find out what is left to do, with 100,000 receipts in its store.

    python bench/resume.py

The receipts are those of a real store, under the names and numbers of as many units; the last unit is left to do.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import measure
import msgspec

import tokpress
from tokpress.documents.frame import frame_for
from tokpress.engines.load import load_files
from tokpress.options import build_config
from tokpress.records import SHARDS, Plan
from tokpress.run.events import Event, Resuming
from tokpress.run.plan import make_plan
from tokpress.run.tasks import remaining_tasks
from tokpress.sources.files import discover
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import encode
from tokpress.store.receipts import read_receipts
from tokpress.store.unfinished import begin

RECEIPTS = 100_000
LINE = '{"text": "a document"}\n'
UNIT_BYTES = len(LINE)


class Clock:
    """Notes when the run knows what is left, and stops it there."""

    def __init__(self) -> None:
        self.began = perf_counter()

    def on(self, event: Event) -> None:
        if not isinstance(event, Resuming):
            return
        print(f"| whole start, tokenizer and processes included | {perf_counter() - self.began:.2f} |")
        print(
            f"\n{event.units - event.units_left:,} of {event.units:,} units and {event.docs:,} documents were done already"
        )
        raise KeyboardInterrupt


def unfinished(source: Path, out: Path) -> Plan:
    """A store with a plan of one unit a line and receipts for all but the last of them."""
    small = tokpress.build(source, tokenizer="bytes", out=out.with_name("small"), unit_size="1GB")
    model = small.manifest.splits["train"].shards[-1]
    config = build_config("bytes", {"unit_size": UNIT_BYTES})
    frame = frame_for(config.tokenizer, small.manifest.tokenizer)
    plan = make_plan(discover([source], config.read), config, small.manifest.tokenizer, frame)
    out.mkdir()
    begin(LocalStorage(out), plan, load_files(config.tokenizer))
    for unit in range(len(plan.units) - 1):
        receipt = msgspec.structs.replace(model, unit=unit, number=0, docs=1)
        (out / SHARDS / f"{receipt.name}.json").write_bytes(encode(receipt))
    return plan


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="tokpress-resume-"))
    source, out = directory / "a.jsonl", directory / "store"
    source.write_text(LINE * (RECEIPTS + 1))
    try:
        plan = unfinished(source, out)
        print(f"{measure.machine()}; {RECEIPTS:,} receipts of {len(plan.units):,} units\n\n| | seconds |\n|---|---|")
        began = perf_counter()
        left = remaining_tasks(plan, read_receipts(LocalStorage(out)))
        print(f"| scan of the receipts | {perf_counter() - began:.2f} |", flush=True)
        assert len(left) == 1
        with suppress(KeyboardInterrupt):
            tokpress.build(source, tokenizer="bytes", out=out, unit_size=UNIT_BYTES, reporter=Clock())
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
