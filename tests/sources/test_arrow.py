"""Arrow files and streams: told apart by what is in them, and read up to the first damage."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import make_texts

from tokpress.errors import InputError
from tokpress.records import DAMAGED_INPUT

from .reading import TABLE_KINDS, joined, read, read_ranges, reader_of, write, write_table

TEXTS = make_texts(60)
KINDS = [kind for kind in TABLE_KINDS if kind != "parquet"]
ROWS = 20  # in a record batch


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_table(tmp_path / "a", pa.table({"id": range(60), "text": TEXTS}), request.param, ROWS)


@pytest.mark.parametrize("name", ["a.arrow", "a.feather", "a.ipc"])
def test_a_file_is_what_its_first_bytes_say(path: Path, name: str) -> None:
    assert read(path.rename(path.with_name(name))).texts == TEXTS


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers(tmp_path: Path, codec: str) -> None:
    table = pa.table({"text": TEXTS})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=7)
    assert read(path).texts == TEXTS


def test_a_stream_of_the_format_before_arrow_0_15(tmp_path: Path) -> None:
    table = pa.table({"text": TEXTS})
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
    result = read(tmp_path / "a.arrow")
    assert (result.texts, result.rejects) == (TEXTS, [])


def test_an_unfinished_dictionary_grows_from_batch_to_batch(tmp_path: Path) -> None:
    batches = [
        pa.record_batch({"text": pa.array(TEXTS[:end]).dictionary_encode()}) for end in (10, 20, 30)
    ]  # each with a dictionary of its own
    with pa.ipc.new_stream(tmp_path / "a.arrow", batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert read(tmp_path / "a.arrow").texts == TEXTS[:10] + TEXTS[:20] + TEXTS[:30]


def test_what_follows_a_stream_does_not_vanish_unseen(tmp_path: Path) -> None:
    """`cat a.arrow b.arrow` makes no longer stream; the second one cannot be read, but is told."""
    data = write_table(tmp_path / "a", pa.table({"text": TEXTS}), "arrow-stream", ROWS).read_bytes()
    result = read(write(tmp_path / "a.arrow", data + data))
    assert result.texts == TEXTS
    assert (result.reasons, result.rejects[0].position) == ([DAMAGED_INPUT], 60)
    assert read(write(tmp_path / "a.arrow", data + bytes(100))).reasons == []


class TestTruncated:
    def test_while_it_is_read_is_an_error_and_no_signal(self, path: Path) -> None:
        """The file is mapped: memory behind its end would end the process."""
        batches = reader_of(path, batch_bytes=64).read()
        next(batches)
        os.truncate(path, 8)
        with pytest.raises(InputError, match=f"{path} has become shorter while it was being read"):
            list(batches)

    def test_anywhere_keeps_the_record_batches_before_the_cut(self, path: Path) -> None:
        data = path.read_bytes()
        cut_path = path.with_name("cut.arrow")
        kept = set()
        for cut in [*range(0, len(data), 61), *range(len(data) - 40, len(data))]:
            result = read(write(cut_path, data[:cut]))
            if result.rejects:
                [reject] = result.rejects
                assert (reject.reason, reject.position, reject.line) == (DAMAGED_INPUT, len(result.texts), None)
            else:  # what is lost is padding behind the end mark
                assert data[cut:].strip(b"\0") == b""
                assert len(result.texts) == len(TEXTS)
            assert result.texts == TEXTS[: len(result.texts)]
            kept.add(len(result.texts))
        assert kept == {0, 20, 40, 60}

    def test_between_two_record_batches(self, tmp_path: Path) -> None:
        """A batch may well end with the zeros that also mark the end of a stream."""
        path = write_table(tmp_path / "a", pa.table({"text": ["abc"] * 40}), "arrow-stream", ROWS)
        with pa.memory_map(str(path)) as file:
            ends = [file.tell() for _ in pa.ipc.open_stream(file)]
        data = path.read_bytes()
        assert data[: ends[1]].endswith(bytes(4))
        for batches, end in enumerate(ends, start=1):
            result = read(write(path, data[:end]))
            assert result.texts == ["abc"] * 20 * batches
            assert (result.reasons, result.rejects[0].position) == ([DAMAGED_INPUT], 20 * batches)

    def test_ranges_report_the_damage_once(self, path: Path) -> None:
        write(path, path.read_bytes()[:-30] if path.suffix == ".arrow" else path.read_bytes()[:-300])
        whole = read(path)
        for cuts in ([5, 25], [40], [60], [59, 60, 61]):
            parts = joined(read_ranges(path, cuts))
            assert (parts.documents, parts.rejects) == (whole.documents, whole.rejects)

    def test_going_on_behind_the_damage_finds_nothing(self, path: Path) -> None:
        write(path, path.read_bytes()[:-300])
        whole = read(path)
        assert whole.reasons == [DAMAGED_INPUT]
        assert read(path, whole.batches[-1].next_position).records == 0
        assert read(path, whole.rejects[0].position).rejects == whole.rejects


class TestCorrupt:
    """Arrow maps a file as it is; offsets that point nowhere must not be followed."""

    @pytest.mark.parametrize("offset", [-1, 2**30, 7])
    def test_offsets_cost_the_rows_of_their_batch(self, tmp_path: Path, offset: int) -> None:
        texts = [f"text {i:03d}" for i in range(60)]
        path = write_table(tmp_path / "a", pa.table({"text": texts}), "arrow-file", ROWS)
        data = path.read_bytes()
        offsets = np.arange(ROWS + 1, dtype=np.int32) * 8
        bad = offsets.copy()
        bad[10] = offset
        place = data.index(offsets.tobytes(), data.index(offsets.tobytes()) + 1)  # in the second batch
        result = read(write(path, data[:place] + bad.tobytes() + data[place + bad.nbytes :]))
        assert result.texts == texts[:20] + texts[40:]
        [reject] = result.rejects
        assert (reject.reason, reject.position, reject.records) == (DAMAGED_INPUT, 20, 20)
        assert result.records == 60

    @pytest.mark.parametrize("length", [5, 2**40])
    def test_a_field_of_another_length_than_its_struct_costs_the_rows_of_its_batch(
        self, tmp_path: Path, length: int
    ) -> None:
        """Arrow compares the lengths of columns when it reads them, not of what is in them: a short one is just shorter."""
        texts = [f"text {i:03d}" for i in range(60)]
        table = pa.table({"doc": [{"text": text} for text in texts]})
        path = write_table(tmp_path / "a", table, "arrow-file", ROWS)
        data = path.read_bytes()
        nodes, wrong = (
            np.array([ROWS, 0, rows, 0], np.int64).tobytes() for rows in (ROWS, length)
        )  # lengths and nulls
        place = data.index(nodes, data.index(nodes) + 1)  # in the second batch
        result = read(write(path, data[:place] + wrong + data[place + len(wrong) :]), text_field="doc.text")
        assert result.texts == texts[:20] + texts[40:]
        [reject] = result.rejects
        assert (reject.reason, reject.position, reject.records) == (DAMAGED_INPUT, 20, 20)

    def test_indices_into_a_dictionary(self, tmp_path: Path) -> None:
        indices = pa.array([0, 1, 0, 1, 77], pa.int32())
        values = pa.DictionaryArray.from_arrays(indices, pa.array([str(i) for i in range(100)]))
        path = write_table(tmp_path / "a", pa.table({"text": values}), "arrow-file")
        data = path.read_bytes()
        place = data.index(indices.to_numpy().tobytes())
        result = read(write(path, data[: place + 16] + b"\xff\xff\xff\x7f" + data[place + 20 :]))
        assert (result.texts, result.reasons, result.records) == ([], [DAMAGED_INPUT], 5)

    def test_a_file_that_is_something_else(self, tmp_path: Path) -> None:
        for data in (b"", b"ARROW1", b"ARROW1\0\0", b"not an arrow file", bytes(100)):
            result = read(write(tmp_path / "a.arrow", data))
            assert (result.texts, result.reasons) == ([], [DAMAGED_INPUT])

    def test_a_file_that_is_gone_is_an_error(self, path: Path) -> None:
        reader = reader_of(path)
        path.unlink()
        with pytest.raises(InputError, match="cannot read"):
            list(reader.read())
