"""What it costs that inputs lie in a bucket: the same build from a local S3 server and from the disk, in turns.

    python bench/remote.py            on 1 GB; takes about 10 minutes, prints Markdown
    python bench/remote.py --quick    the same on 50 MB, to see that it works

The server is moto's, in a process of its own on this machine, so that its time is taken from the build's: what is
measured is what the client costs, not a network. Every build is a process of its own, start-up included; ratios are medians
over pairs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import corpus
import measure

from tokpress.storage.object_store import ObjectStorage

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
OUT = corpus.DATA / "out"


@contextmanager
def s3() -> Iterator[str]:
    """An S3 server with a bucket; its address."""
    command = [sys.executable, "-m", "moto.server", "-p", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    try:
        endpoint = next(found[1] for line in server.stdout if (found := re.search(r"Running on (http://\S+)", line)))
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bench", method="PUT")).close()
        yield endpoint
    finally:
        server.kill()
        server.stdout.close()
        server.wait()


def build(source: str, workers: int) -> measure.Measured:
    shutil.rmtree(OUT, ignore_errors=True)
    command = [sys.executable, "-m", "tokpress", "build", source, "--tokenizer", str(corpus.llama3())]
    return measure.run([*command, "--out", str(OUT), "--workers", str(workers), "--quiet"])


def compare(source: Path, rounds: int, workers: int) -> str:
    """A line of the table."""
    storage = ObjectStorage("s3://bench")
    with storage.create(source.name) as upload, source.open("rb") as file:
        while part := file.read(8 * 1024**2):
            upload.write(part)
    disk, bucket = [], []
    for _ in range(rounds):
        disk.append(build(str(source), workers))
        bucket.append(build(f"s3://bench/{source.name}", workers))
    size = source.stat().st_size / 1e6
    rates = [size / measure.median(runs).seconds for runs in (disk, bucket)]
    ratio = measure.median_ratio(bucket, disk)
    return f"| {source.name} | {workers} | {rates[0]:.1f} | {rates[1]:.1f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    source = corpus.jsonl_of(50 * 10**6 if arguments.quick else 10**9)
    packed = source.with_suffix(".jsonl.zst")
    subprocess.run(["zstd", "--quiet", "--force", str(source), "-o", str(packed)], check=True)
    print(
        f"{measure.machine()}\n\n| input | workers | from disk, MB/s | from S3, MB/s | S3 / disk |\n|---|---|---|---|---|"
    )
    with s3() as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        for path in (source, packed):
            for workers in (1, 2):
                print(compare(path, 1 if arguments.quick else arguments.rounds, workers), flush=True)


if __name__ == "__main__":
    main()
