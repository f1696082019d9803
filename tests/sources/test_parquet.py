"""Parquet: what a damaged file still gives, and that memory and time follow the text column alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_texts

from tokpress.errors import InputError
from tokpress.records import DAMAGED_INPUT, INVALID_UTF8

from .reading import joined, measure, read, read_ranges, reader_of, same, write

TEXTS = make_texts(90)
CODECS = ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]


def save(path: Path, texts: list[str] = TEXTS, rows: int = 30, **options: object) -> Path:
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path, row_group_size=rows, **options)
    return path


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
def test_every_codec_and_page_version(tmp_path: Path, codec: str, pages: str) -> None:
    path = save(tmp_path / "a.parquet", compression=codec, data_page_version=pages, data_page_size=500)
    assert read(path).texts == TEXTS


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_every_encoding_of_strings(tmp_path: Path, encoding: str) -> None:
    path = save(tmp_path / "a.parquet", use_dictionary=False, column_encoding={"text": encoding, "id": "PLAIN"})
    assert read(path).texts == TEXTS


def corrupt(path: Path, group: int) -> Path:
    """Overwrites the pages of the text column in one row group."""
    column = pq.read_metadata(path).row_group(group).column(1)
    first = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[first : first + column.total_compressed_size] = b"\xa5" * column.total_compressed_size
    return write(path, bytes(data))


class TestDamage:
    @pytest.mark.parametrize("codec", CODECS)
    def test_a_corrupt_row_group_costs_its_own_rows_alone(self, tmp_path: Path, codec: str) -> None:
        path = corrupt(save(tmp_path / "a.parquet", compression=codec), group=1)
        result = read(path)
        assert result.texts == TEXTS[:30] + TEXTS[60:]
        assert result.positions == [*range(30), *range(60, 90)]
        [reject] = result.rejects
        assert (reject.reason, reject.position, reject.records, reject.line) == (DAMAGED_INPUT, 30, 30, None)
        assert "row group 1 cannot be read" in reject.detail
        assert result.records == len(TEXTS)

    def test_a_corrupt_page_keeps_the_pages_before_it(self, tmp_path: Path) -> None:
        texts = [f"<{i:04d}>" * 1000 for i in range(2000)]
        path = save(
            tmp_path / "a.parquet", texts, rows=2000, use_dictionary=False, write_page_checksum=True, compression="none"
        )
        data = bytearray(path.read_bytes())
        data[data.index(b"<1500>")] ^= 1
        result = read(write(path, bytes(data)))
        kept = len(result.texts)
        assert 500 < kept <= 1500
        assert result.texts == texts[:kept]
        [reject] = result.rejects
        assert (reject.reason, reject.position, reject.records) == (DAMAGED_INPUT, kept, 2000 - kept)

    def test_ranges_over_a_corrupt_row_group_close_the_books(self, tmp_path: Path) -> None:
        path = corrupt(save(tmp_path / "a.parquet"), group=1)
        parts = read_ranges(path, [10, 35, 36, 60, 61])
        assert joined(parts).texts == read(path).texts
        assert [part.records for part in parts] == [10, 25, 1, 24, 1, 29]

    def test_reading_goes_on_behind_the_corrupt_row_group(self, tmp_path: Path) -> None:
        path = corrupt(save(tmp_path / "a.parquet"), group=1)
        whole = read(path)
        [lost] = [batch for batch in whole.batches if batch.rejects]
        assert lost.next_position == 60
        assert read(path, 60).texts == TEXTS[60:]
        assert same(read(path, 60), joined([read(path, 60, 90)]))

    def test_rows_that_only_the_footer_knows_of_are_lost_ones(self, tmp_path: Path) -> None:
        """The pages are sound, and end before the last row that the footer counts."""
        path = tmp_path / "a.parquet"
        texts = [f"text {i}" for i in range(100)]
        pq.write_table(pa.table({"text": texts}), path, use_dictionary=False, write_statistics=False)
        data = path.read_bytes()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        hundred, more = b"\xc8\x01", b"\xf0\x01"  # 100 and 120, as a footer writes numbers
        assert hundred in data[footer:]
        write(path, data[:footer] + data[footer:].replace(hundred, more))
        assert pq.read_metadata(path).num_rows == 120
        result = read(path)
        assert result.texts == texts
        [reject] = result.rejects
        assert (reject.reason, reject.position, reject.records) == (DAMAGED_INPUT, 100, 20)
        assert "it ends at row 100" in reject.detail

    @pytest.mark.parametrize("keep", [0, 3, 4, 0.5, -1, -8])
    def test_without_its_footer_a_file_is_one_reject(self, tmp_path: Path, keep: float) -> None:
        data = save(tmp_path / "a.parquet").read_bytes()
        size = int(len(data) * keep) if isinstance(keep, float) else keep
        path = write(tmp_path / "a.parquet", data[:size])
        result = read(path)
        [reject] = result.rejects
        assert (result.texts, reject.reason, reject.position) == ([], DAMAGED_INPUT, 0)
        assert "not a readable Parquet file" in reject.detail
        assert joined([read(path, 0, 10), read(path, 10)]).records == 1
        assert read(path, result.batches[-1].next_position).records == 0

    def test_bytes_that_are_not_utf8_in_a_dictionary_of_large_strings(self, tmp_path: Path) -> None:
        """Arrow converts this one type on reading, and refuses the row group."""
        bad = pa.array([b"good", b"\xff"], pa.large_binary()).view(pa.large_string())
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), bad)
        pq.write_table(pa.table({"text": values}), tmp_path / "a.parquet")
        result = read(tmp_path / "a.parquet")
        assert (result.texts, result.reasons, result.records) == ([], [DAMAGED_INPUT], 3)

    def test_a_text_that_is_not_utf8_though_the_schema_says_so(self, tmp_path: Path) -> None:
        bad = pa.array([b"good", b"caf\xe9"], pa.binary()).view(pa.string())
        pq.write_table(pa.table({"text": bad}), tmp_path / "a.parquet")
        result = read(tmp_path / "a.parquet")
        assert (result.texts, result.reasons) == (["good"], [INVALID_UTF8])

    def test_a_file_that_cannot_be_opened_is_an_error(self, tmp_path: Path) -> None:
        path = save(tmp_path / "a.parquet")
        reader = reader_of(path)
        path.unlink()
        with pytest.raises(InputError, match=r"cannot read .*a\.parquet"):
            list(reader.read())


def test_probes_are_the_first_rows_of_row_groups(tmp_path: Path) -> None:
    """Anywhere else, the rows before it in its group would be decoded to get there."""
    reader = reader_of(save(tmp_path / "a.parquet", rows=20))
    assert [reader.probe(fraction) for fraction in (0, 0.1, 2 / 9, 0.3, 0.5, 0.99)] == [0, 0, 20, 20, 40, 80]
    assert reader_of(write(tmp_path / "b.parquet", b"PAR1")).probe(0.5) == 0


def test_memory_does_not_grow_with_the_row_group(tmp_path: Path) -> None:
    """Pages are decoded one after the other, and other columns not at all."""
    texts = [str(i) * 2500 for i in range(20_000)]
    table = pa.table({"vector": [b"v" * 2500] * len(texts), "text": texts})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=len(texts), use_dictionary=False, compression="none")
    assert pq.read_metadata(path).num_row_groups == 1
    assert path.stat().st_size > 250_000_000
    result = measure(path, save(tmp_path / "small.parquet"))
    assert result["documents"] == len(texts)
    assert result["growth"] < 130_000_000
