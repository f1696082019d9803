"""How soon `tokpress view` shows a store of 10^10 tokens and 10^8 documents, and what its server holds.

    python bench/view.py              a minute, prints Markdown; needs Chromium (apt-get install chromium)
    python bench/view.py --shards N   fewer

The store is sparse: its shards share three files, whose tokens are a hole but for their beginning. The server is a process
of its own; a fresh browser opens each view, and its own clock says when the first paint was and when what was asked for is
there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

ROUNDS = 5
VIEWS = {  # what -> address, and what is there when it is shown
    "store, totals": ("/store", ".stats"),
    "store, lengths": ("/store", "#lengths svg"),
    "store, frequent tokens": ("/store", "#frequent .rows"),
    "document, first of the store": ("/document?doc=0", ".tokens .t"),
    "document, last of the store": ("/document?doc=99999999", ".tokens .t"),
    "sequence": ("/sequence?seq=1000000", ".tokens .t"),
    "step": ("/step?step=1000&batch_size=64", ".row .t"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=100)
    options = parser.parse_args()
    from web import sparse
    from web.browsing import browser

    with tempfile.TemporaryDirectory() as temporary:
        store = sparse.make(Path(temporary) / "store", options.shards)
        command = [sys.executable, "-m", "tokpress", "view", str(store), "--no-open"]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent / "src")}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            process = psutil.Process(server.pid)
            try:
                with browser() as opened:
                    found = {
                        what: [_open(opened, address, *view) for _ in range(ROUNDS)] for what, view in VIEWS.items()
                    }
                    asked = [_ask(opened, address, doc) for doc in (5, 10**7 + 3, 5 * 10**7, 99_999_998, 77)]
                memory = process.memory_info()
            finally:
                server.terminate()
    print(f"| {options.shards} shards, median of {ROUNDS} | first paint, ms | shown, ms |\n|---|---|---|")
    for what, times in found.items():
        paint, shown = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"| {what} | {paint:.0f} | {shown:.0f} |")
    print(f"| a document, asked for by the page | | {statistics.median(asked):.0f} (at most {max(asked):.0f}) |")
    print(f"\nmemory of the server: {memory.rss / 1e6:.0f} MB")


def _open(opened: Any, address: str, path: str, ready: str) -> tuple[float, float]:
    """First paint, and when what was asked for is there; milliseconds since the address was opened."""
    context = opened.new_context()
    try:
        page = context.new_page()
        page.goto(address)
        page.goto("about:blank")
        page.goto(address.partition("/?")[0] + path, wait_until="commit")
        page.locator(ready).first.wait_for(state="attached", timeout=60_000)
        shown = page.evaluate("performance.now()")
        paint = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.now()"
        )
        return paint, shown
    finally:
        context.close()


def _ask(opened: Any, address: str, doc: int) -> float:
    """How long the page waits for a document's tokens, in milliseconds."""
    context = opened.new_context()
    try:
        page = context.new_page()
        page.goto(address)
        took: float = page.evaluate(
            f"async () => {{ const began = performance.now(); await (await fetch('/api/document?doc={doc}')).json(); "
            "return performance.now() - began; }"
        )
        return took
    finally:
        context.close()


if __name__ == "__main__":
    main()
