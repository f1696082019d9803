"""Files that shrink while they are mapped, between two looks at their size: an error in whoever reads, not a signal.

Each in a process of its own, which would be ended by the signal.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tokpress

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are only the looks")

OPENED = """
import os, sys
from pathlib import Path
import tokpress
from tokpress.store import shard
shard.LOOK_SECONDS = 3600.0
store = tokpress.open(sys.argv[1])
def shrink(*extensions, size=5000):
    for receipt in store.manifest.splits["train"].shards:
        for extension in extensions or ("bin", "ends", "pos"):
            os.truncate(store.path / receipt.path(extension), size)
def shrink_when_mapped():
    map_array = shard.map_array
    def then_shrink(storage, key, *rest):
        array = map_array(storage, key, *rest)
        os.truncate(storage.local(key), 5000 if key.endswith(".bin") else len(array) * array.itemsize)
        return array
    shard.map_array = then_shrink
def error_of(use):
    try:
        used = use()
    except tokpress.errors.TokpressError as error:
        print(f"{type(error).__mro__[1].__name__}: {error}")
    else:
        print("no error", used)
"""
READS = {
    "a loader": """
batches = iter(tokpress.Loader(tokpress.PretokenizedDataset(store, seq_len=64), batch_size=8, threads=0))
shrink_when_mapped()
error_of(lambda: list(batches))
""",
    "a loader's thread": """
batches = iter(tokpress.Loader(tokpress.PretokenizedDataset(store, seq_len=64), batch_size=8, threads=1))
shrink_when_mapped()
error_of(lambda: list(batches))
""",
    "an array that the caller holds": """
ids = store.shard(0).ids
shrink()
error_of(lambda: int(ids.sum()))
""",
    "documents one by one": """
len(store.doc(0)); shrink()
error_of(lambda: [store.doc(i).tolist() for i in range(len(store))])
""",
    "ends alone": """
data = tokpress.PretokenizedDataset(store, seq_len=64, fields=["input_ids", "doc_ids"])
data.batch([0]); shrink("ends", size=8)
error_of(lambda: [data.batch([i]) for i in range(len(data))])
""",
    "an export": """
shrink_when_mapped()
error_of(lambda: tokpress.export(store, to="npy", seq_len=64, out=sys.argv[1] + "-exported"))
assert not os.path.exists(sys.argv[1] + "-exported")
""",
    "a table that is exported": """
shrink_when_mapped()
error_of(lambda: tokpress.export(store, to="parquet", out=sys.argv[1] + "-exported"))
assert not os.path.exists(sys.argv[1] + "-exported")
""",
    "a worker of torch's": """
data = tokpress.PretokenizedDataset(store, seq_len=64)
data.batch(range(len(data)))  # mapped before the workers are made
shrink()
error_of(lambda: list(tokpress.make_dataloader(data, batch_size=8, num_workers=1)))
""",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lost")
    (directory / "a.txt").write_text("\n\n".join(f"paragraph {i} of some words" for i in range(20_000)))
    return tokpress.build(
        directory / "a.txt", tokenizer="bytes", out=directory / "store", separator="\n\n", shard_size=300_000
    ).path


@pytest.fixture
def store_copy(store: Path, tmp_path: Path) -> Path:
    for path in store.rglob("*"):
        if path.is_file():
            there = tmp_path / "store" / path.relative_to(store)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(path.read_bytes())
    return tmp_path / "store"


def run(script: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("reader", READS)
def test_is_an_error_that_names_the_file(store_copy: Path, reader: str) -> None:
    done = run(OPENED + READS[reader], store_copy)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "StoreError: " in done.stdout, done
    assert f"{store_copy}/shards/train-" in done.stdout
    assert "has become shorter while it is read" in done.stdout
    assert f"tokpress verify {store_copy}" in done.stdout
    assert "Exception ignored" not in done.stderr


def test_what_is_left_can_be_read_and_the_rest_stays_an_error(store_copy: Path) -> None:
    """Nobody gets the zeros that stand there: not a second loader, not the same one asked again."""
    script = """
data = tokpress.PretokenizedDataset(store, seq_len=64, output="numpy")
data.batch([len(data) - 1]); data.batch([0]); shrink("bin")
for i in (len(data) - 1, 0, len(data) - 1):
    error_of(lambda: data.batch([i]))
error_of(lambda: tokpress.open(sys.argv[1]).doc(0))
"""
    lines = run(OPENED + script, store_copy).stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(("StoreError", "TokpressError")) for line in lines), lines


def test_an_arrow_input(tmp_path: Path) -> None:
    script = """
import os, sys
import pyarrow as pa
import tokpress
from tokpress.config import ReadConfig
from tokpress.sources.base import open_reader
from tokpress.sources.files import discover
path = sys.argv[1]
with pa.ipc.new_file(path, pa.schema([("text", pa.string())])) as writer:
    writer.write_table(pa.table({"text": [f"document {i} " * 20 for i in range(5000)]}))
config = ReadConfig()
[source] = discover([path], config)
text = next(open_reader(source, 0, config, 10**7).read()).text
os.truncate(path, 100)
try:
    print("no error", len("".join(text.to_pylist())))
except tokpress.errors.InputError as error:
    print("InputError:", error)
"""
    path = tmp_path / "a.arrow"
    done = run(script, path)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert f"InputError: {path} has become shorter while it is read: 100 bytes" in done.stdout
    assert "--overwrite" in done.stdout


STRANGE = """
import ctypes
strlen = ctypes.CDLL(None).strlen
strlen.argtypes, strlen.restype = (ctypes.c_void_p,), ctypes.c_size_t
"""


def test_in_a_thread_that_is_not_python_s_it_is_named_before_the_end(store_copy: Path) -> None:
    script = """
ids = store.shard(0).ids
shrink(size=0)
libc = ctypes.CDLL(None)
thread = ctypes.c_ulong()
libc.pthread_create.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(strlen, ctypes.c_void_p), ids.ctypes.data)
libc.pthread_join(thread, None)
print("still there")
"""
    done = run(STRANGE + OPENED + script, store_copy)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "")
    assert f"{store_copy}/shards/train-00000-000.bin has become shorter" in done.stderr


@pytest.mark.parametrize("handled", [False, True])
def test_memory_of_others_is_left_to_them(store_copy: Path, tmp_path: Path, handled: bool) -> None:
    script = """
import faulthandler, mmap
if sys.argv[3] == "True":
    faulthandler.enable()
len(store.shard(0).ids)
with open(sys.argv[2], "w+b") as file:
    file.truncate(8192)
    theirs = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ)
    file.truncate(0)
theirs[5000]
"""
    done = run(OPENED + script, store_copy, tmp_path / "theirs", handled)
    assert done.returncode == -signal.SIGBUS
    assert ("Fatal Python error: Bus error" in done.stderr) == handled
    assert "shorter" not in done.stderr
