"""What it costs that inputs, or the store that is trained from, lie in a bucket: from a local S3 server and from the disk.

    python bench/remote.py            on 400 MB; takes about 5 minutes, prints Markdown
    python bench/remote.py --quick    the same on 50 MB, to see that it works

The server is that of the tests, in a process of its own on this machine, so that its time is taken from the build's: what is
measured is what the client costs and what the server takes, not a network. (moto takes 54 ms of a core for a megabyte, as
much as a build does.) Beside each build stand the processor's seconds of the server during it, and above all how fast the
server gives the same file to a client that does nothing with it. Every build is a process of its own, start-up included;
disk and bucket take turns, ratios are medians over pairs. The loader reads a store through its page cache when all pages are
there, and the same store from the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import corpus
import measure
import psutil

import tokpress
from tokpress.storage.object_store import ObjectStorage
from tokpress.storage.ranged import RANGE_BYTES

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
OUT = corpus.DATA / "out"


@contextmanager
def s3() -> Iterator[tuple[str, psutil.Process]]:
    """An S3 server with a bucket; its address and its process."""
    code = "import time, s3_server\nwith s3_server.serve() as s: print(s.endpoint, flush=True); time.sleep(10**6)"
    environment = os.environ | {"PYTHONPATH": str(corpus.ROOT / "tests")}
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        endpoint = server.stdout.readline().strip()
        yield endpoint, psutil.Process(server.pid)
    finally:
        server.kill()
        server.stdout.close()
        server.wait()


def build(source: str, workers: int) -> measure.Measured:
    shutil.rmtree(OUT, ignore_errors=True)
    command = [sys.executable, "-m", "tokpress", "build", source, "--tokenizer", str(corpus.llama3())]
    return measure.run([*command, "--out", str(OUT), "--workers", str(workers), "--quiet"])


def compare(source: Path, rounds: int, workers: int, server: psutil.Process) -> str:
    """A line of the table."""
    disk, bucket, taken = [], [], []
    for _ in range(rounds):
        disk.append(build(str(source), workers))
        before = _seconds(server)
        bucket.append(build(f"s3://bench/{source.name}", workers))
        taken.append(_seconds(server) - before)
    size = source.stat().st_size / 1e6
    rates = [size / measure.median(runs).seconds for runs in (disk, bucket)]
    ratio = measure.median_ratio(bucket, disk)
    cpu = [measure.median(runs).cpu_seconds for runs in (disk, bucket)]
    served = statistics.median(taken)
    seconds = f"{cpu[0]:.1f} | {cpu[1]:.1f} | {served:.1f}"
    return f"| {source.name} | {workers} | {rates[0]:.1f} | {rates[1]:.1f} | {ratio:.2f} | {seconds} |"


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def served_alone(source: Path) -> float:
    """MB/s of the server, to a client that reads and does nothing else."""
    began = perf_counter()
    with ObjectStorage("s3://bench").open(source.name) as file:
        while file.read(RANGE_BYTES):
            pass
    return source.stat().st_size / 1e6 / (perf_counter() - began)


def load(place: str, seconds: float, cache: str) -> float:
    """Tokens a second of a Loader; from a bucket when its cache is warm."""
    options = {"cache_dir": cache, "cache_bytes": 10**11} if place.startswith("s3://") else {}
    data = tokpress.PretokenizedDataset(place, seq_len=2048, output="numpy", **options)  # type: ignore[arg-type]
    loader = tokpress.Loader(data, batch_size=16, seed=0, max_epochs=10**6)
    batches = iter(loader)
    for _ in range(len(data) // 16 + 1):  # all pages are there, and compared
        next(batches)
    made, began = 0, perf_counter()
    while perf_counter() - began < seconds:
        made += next(batches)["input_ids"].size
    return made / (perf_counter() - began)


def compare_loaders(rounds: int, seconds: float) -> str:
    rates: dict[str, list[float]] = {str(OUT): [], "s3://bench/store": []}
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(rounds):
            for place, found in rates.items():
                command = [sys.executable, __file__, "--load", place, "--seconds", str(seconds), "--cache", cache]
                found.append(float(subprocess.check_output(command, text=True)))
    disk, bucket = rates.values()
    ratio = statistics.median(there / here for here, there in zip(disk, bucket, strict=True))
    return f"| {statistics.median(disk) / 1e6:.0f} | {statistics.median(bucket) / 1e6:.0f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--cache", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        print(load(arguments.load, arguments.seconds, arguments.cache))
        return
    os.environ.update(ENVIRONMENT)
    rounds = 1 if arguments.quick else arguments.rounds
    source = corpus.jsonl_of(50 * 10**6 if arguments.quick else 400 * 10**6)
    packed = source.with_suffix(".jsonl.zst")
    subprocess.run(["zstd", "--quiet", "--force", str(source), "-o", str(packed)], check=True)
    print(f"{measure.machine()}\n")
    with s3() as (endpoint, server):
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        for path in (source, packed):
            with ObjectStorage("s3://bench").create(path.name) as upload, path.open("rb") as file:
                while part := file.read(8 * 1024**2):
                    upload.write(part)
        print(f"The server alone: {served_alone(source):.0f} MB/s\n")
        print(
            "| input | workers | from disk, MB/s | from S3, MB/s | S3 / disk | CPU s, disk | CPU s, S3 | of the server |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for path in (source, packed):
            for workers in (1, 2):
                print(compare(path, rounds, workers, server), flush=True)
        build(str(source), 2)
        tokpress.copy(OUT, "s3://bench/store", read_back=False)
        print("\n| loader from disk, M tokens/s | from S3, cache warm | S3 / disk |\n|---|---|---|")
        print(compare_loaders(rounds, arguments.seconds))


if __name__ == "__main__":
    main()
