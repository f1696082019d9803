"""What pyarrow writes late goes nowhere: neither into a closed upload, nor into what has its descriptor's number now."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokpress.storage.arrow_file import arrow_file
from tokpress.storage.local import LocalStorage
from tokpress.storage.memory import MemoryStorage
from tokpress.store.kept import KeptWriter

ROWS = pa.record_batch({"id": pa.array(["a", "b"], pa.large_string())})


@pytest.fixture
def given_up(tmp_path: Path) -> tuple[KeptWriter, Path]:
    """A writer whose upload was given up in the middle; another file has its descriptor's number."""
    upload = LocalStorage(tmp_path).create("kept.parquet")
    writer = KeptWriter(upload, ["id"])
    writer.append(ROWS)
    number = upload._descriptor
    upload.abort()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    if other != number:
        os.dup2(other, number)
    return writer, tmp_path / "other"


def test_a_writer_that_is_collected_later_writes_to_no_other_file(
    given_up: tuple[KeptWriter, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    writer, other = given_up
    parquet = writer._parquet
    writer.finish()
    del writer
    del parquet
    gc.collect()
    assert other.read_bytes() == b""
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("kind", [LocalStorage, MemoryStorage])
def test_nothing_is_written_to_an_upload_that_is_over(tmp_path: Path, kind: type, end: str) -> None:
    storage = kind(tmp_path) if kind is LocalStorage else kind()
    upload = storage.create("a")
    upload.write(b"1")
    getattr(upload, end)()
    with pytest.raises(ValueError, match="a is closed"):
        upload.write(b"2")


def test_what_is_written_in_time_is_there(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with storage.create("a.parquet") as upload:
        writer = pq.ParquetWriter(arrow_file(upload), ROWS.schema)
        writer.write_batch(ROWS)
        writer.close()
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"id": ["a", "b"]}
