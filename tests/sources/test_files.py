"""What a user names and which files that means, in which order, as what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

import tokpress
from tokpress.config import ReadConfig
from tokpress.errors import InputError, UsageError
from tokpress.records import STDIN, Input
from tokpress.sources.extensions import FORMAT_OF_EXTENSION
from tokpress.sources.files import check_unchanged, discover

from .reading import COMPRESSORS, compress, joined, jsonl, read, write


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in its own directory, so that paths can be typed as a user would."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_progress_bars() -> None:
    datasets.disable_progress_bars()


def touch(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")


def found(*arguments: str | Path, **options: Any) -> list[str]:
    return [source.path for source in discover(arguments, ReadConfig(**options))]


def described(argument: str, **options: Any) -> tuple[str, str | None]:
    [source] = discover([argument], ReadConfig(**options))
    return source.format, source.compression


class TestArguments:
    def test_a_file_is_described_with_its_size_and_time(self) -> None:
        touch("a.jsonl")
        info = Path("a.jsonl").stat()
        assert discover(["a.jsonl"], ReadConfig()) == [
            Input(path="a.jsonl", format="jsonl", compression=None, size=3, mtime_ns=info.st_mtime_ns)
        ]

    def test_a_directory_is_every_file_in_it_that_has_a_format(self) -> None:
        touch("d/b.jsonl", "d/a.txt", "d/c/x.parquet", "d/c/a.jsonl.zst", "d/README", "d/data.bin", "d/notes.jsonl.bak")
        assert found("d") == ["d/a.txt", "d/b.jsonl", "d/c/a.jsonl.zst", "d/c/x.parquet"]
        assert found(Path("d")) == found("d")

    def test_hidden_files_and_directories_are_skipped(self) -> None:
        touch("d/a.jsonl", "d/.b.jsonl", "d/.git/c.jsonl")
        assert found("d") == ["d/a.jsonl"]
        assert found("d/.b.jsonl") == ["d/.b.jsonl"]  # unless named

    def test_with_a_format_every_file_of_a_directory_is_taken(self) -> None:
        touch("d/a", "d/b.bin", "d/.c")
        assert found("d", format="jsonl") == ["d/a", "d/b.bin"]

    def test_a_glob_is_expanded_in_order(self) -> None:
        touch("b1.jsonl", "a2.jsonl", "a1.jsonl", "a/a3.jsonl", "a/b/a4.jsonl")
        assert found("a*.jsonl") == ["a1.jsonl", "a2.jsonl"]
        assert found("**/a*.jsonl") == ["a/a3.jsonl", "a/b/a4.jsonl", "a1.jsonl", "a2.jsonl"]
        assert found("[ab]") == ["a/a3.jsonl", "a/b/a4.jsonl"]  # a directory among the matches

    def test_a_name_that_looks_like_a_glob_is_that_file(self) -> None:
        touch("a[1].jsonl", "a1.jsonl")
        assert found("a[1].jsonl") == ["a[1].jsonl"]

    def test_arguments_keep_their_order(self) -> None:
        touch("b.jsonl", "a.jsonl", "d/c.jsonl")
        assert found("b.jsonl", "d", "a.jsonl") == ["b.jsonl", "d/c.jsonl", "a.jsonl"]

    def test_a_file_named_twice_is_read_once(self) -> None:
        touch("a.jsonl", "d/b.jsonl")
        Path("link.jsonl").symlink_to("a.jsonl")
        assert found("a.jsonl", "./a.jsonl", "*.jsonl", "link.jsonl", "d", "d/b.jsonl") == ["a.jsonl", "d/b.jsonl"]

    def test_a_link_to_a_directory_around_it_is_no_trap(self) -> None:
        touch("d/a.jsonl", "elsewhere/b.jsonl")
        Path("d/loop").symlink_to(".")
        Path("d/up").symlink_to("..")
        Path("d/linked").symlink_to("../elsewhere")
        for i in range(5):
            Path(f"elsewhere/back{i}").symlink_to("../d")
        assert found("d") == ["d/a.jsonl", "d/linked/b.jsonl"]

    def test_a_dash_is_standard_input(self) -> None:
        assert discover([STDIN], ReadConfig()) == [Input(path="-", format="jsonl", size=0, mtime_ns=0)]
        assert described("-", format="text.gz") == ("text", "gz")


class TestFormats:
    @pytest.mark.parametrize(("extension", "format"), FORMAT_OF_EXTENSION.items())
    def test_by_extension(self, extension: str, format: str) -> None:  # noqa: A002
        touch(f"a{extension}", f"B{extension.upper()}")
        assert described(f"a{extension}") == described(f"B{extension.upper()}") == (format, None)

    @pytest.mark.parametrize("extension", [*COMPRESSORS, ".zstd"])
    @pytest.mark.parametrize("name", ["a.jsonl", "a.b.ndjson", "a.txt"])
    def test_with_a_compression(self, name: str, extension: str) -> None:
        touch(name + extension)
        expected = None if not extension else "zst" if extension == ".zstd" else extension[1:]
        assert described(name + extension) == (FORMAT_OF_EXTENSION[Path(name).suffix], expected)

    @pytest.mark.parametrize(
        ("name", "format", "expected"),
        [
            ("data", "jsonl", ("jsonl", None)),
            ("data.gz", "jsonl", ("jsonl", "gz")),
            ("data", "jsonl.zst", ("jsonl", "zst")),
            ("a.jsonl", "lines", ("lines", None)),
            ("a.jsonl.gz", "text", ("text", "gz")),
            ("a.jsonl.gz", "jsonl.bz2", ("jsonl", "bz2")),
            ("data", "parquet", ("parquet", None)),
        ],
    )
    def test_the_option_wins_over_the_name(self, name: str, format: str, expected: tuple[str, str]) -> None:  # noqa: A002
        touch(name)
        assert described(name, format=format) == expected

    def test_a_separator_makes_lines_and_text_the_same(self) -> None:
        touch("a.txt")
        assert described("a.txt", separator="\n\n") == ("text", None)
        assert described("a.txt", separator="\n\n", format="lines") == ("text", None)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "options", "words"),
        [
            ([], {}, "no input"),
            (["gone.jsonl"], {}, "no such file or directory: gone.jsonl"),
            (["gone/*.jsonl"], {}, "nothing matches gone/"),
            (["empty"], {}, "empty is an empty directory. Check the path"),
            (["only-other"], {}, "--format"),
            (["empty"], {"format": "jsonl"}, "empty is an empty directory"),
            (["data.bin"], {}, r"cannot tell the format of data\.bin.*--format jsonl\|csv"),
            (["data.gz"], {}, "--format"),
            (["a.jsonl"], {"format": "xml"}, "--format 'xml' is not one of jsonl, csv"),
            (["a.jsonl"], {"format": "jsonl.rar"}, "'rar' is not one of"),
            (["a.jsonl"], {"separator": "\n"}, "--separator is for plain text, but a.jsonl is jsonl"),
            (["-"], {"separator": "\n"}, "--separator is for plain text"),
            (["a.parquet.gz"], {}, "parquet files are compressed inside"),
            (["a.jsonl"], {"format": "arrow.zst"}, "arrow files are compressed inside"),
            (["-"], {"format": "parquet"}, "parquet cannot be read from standard input"),
            (["CC-MAIN.warc.gz"], {}, r"CC-MAIN\.warc\.gz is a web archive, which is not read.*Extract the text"),
            (["crawl"], {}, "no file in crawl can be read: b.warc is a web archive.*Extract the text"),
            (["book.PDF"], {}, r"book\.PDF is an office or book format.*Convert it to text"),
            (["all.tar.gz"], {}, r"all\.tar\.gz is an archive.*Unpack it"),
            (["table.orc"], {}, "a table format that is not read. Write it as Parquet"),
            (["page.html"], {}, "--format text to take each file as it stands"),
            (["a.csv"], {"separator": "\n"}, "--separator is for plain text, but a.csv is csv"),
            (["pipe.jsonl"], {}, "pipe.jsonl is not a regular file.*standard input"),
        ],
    )
    def test_are_told_with_what_to_do(self, arguments: list[str], options: dict[str, Any], words: str) -> None:
        touch("a.jsonl", "data.bin", "data.gz", "a.parquet.gz", "only-other/image.png", "a.csv")
        touch("CC-MAIN.warc.gz", "crawl/a.png", "crawl/b.warc", "book.PDF", "all.tar.gz", "table.orc", "page.html")
        Path("empty").mkdir()
        os.mkfifo("pipe.jsonl")
        with pytest.raises(UsageError, match=words):
            discover(arguments, ReadConfig(**options))

    def test_a_broken_link_in_a_directory_is_not_passed_over(self) -> None:
        touch("d/a.jsonl")
        Path("d/b.jsonl").symlink_to("gone")
        with pytest.raises(InputError, match=r"cannot read d/b\.jsonl"):
            discover(["d"], ReadConfig())


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.jsonl")
    Path(path).write_text("{}")
    with pytest.raises(UsageError, match=r"not UTF-8.*Rename it"):
        discover([tmp_path], ReadConfig())


class TestChanges:
    """While a build reads, an input must stay what was planned with."""

    @pytest.fixture
    def source(self) -> Input:
        touch("a.jsonl")
        [source] = discover(["a.jsonl"], ReadConfig())
        return source

    def test_none(self, source: Input) -> None:
        check_unchanged(source)

    def test_to_the_same_size_are_seen_by_the_time(self, source: Input) -> None:
        Path(source.path).write_bytes(b"[]\n")
        os.utime(source.path, ns=(source.mtime_ns, source.mtime_ns + 1))
        with pytest.raises(InputError, match=r"a\.jsonl was changed while it was being read.*--overwrite"):
            check_unchanged(source)

    def test_that_keep_the_time_are_seen_by_the_size(self, source: Input) -> None:
        Path(source.path).write_bytes(b"{}\n{}\n")
        os.utime(source.path, ns=(source.mtime_ns, source.mtime_ns))
        with pytest.raises(InputError, match="was changed while it was being read"):
            check_unchanged(source)

    def test_that_take_it_away_are_told(self, source: Input) -> None:
        Path(source.path).unlink()
        with pytest.raises(InputError, match=r"cannot read a\.jsonl: No such file.*Put it back"):
            check_unchanged(source)


class TestSaveToDisk:
    TEXTS = tuple(f"text {i}" for i in range(25))

    def dataset(self) -> datasets.Dataset:
        return datasets.Dataset.from_dict({"text": self.TEXTS, "id": range(25)})

    def test_a_dataset_is_its_data_files_in_its_own_order(self) -> None:
        self.dataset().save_to_disk("saved", num_shards=3)
        touch("saved/cache-0123.arrow")  # `datasets` leaves such files of other steps there
        paths = found("saved")
        assert paths == [f"saved/data-0000{i}-of-00003.arrow" for i in range(3)]
        assert joined(read(Path(path)) for path in paths).texts == list(self.TEXTS)

    def test_a_dataset_dict_is_all_its_splits(self) -> None:
        half = self.dataset().train_test_split(test_size=5, shuffle=False)
        half.save_to_disk("saved")
        assert found("saved") == [f"saved/{split}/data-00000-of-00001.arrow" for split in ("test", "train")]
        assert found("saved/train") == ["saved/train/data-00000-of-00001.arrow"]
        store = tokpress.build("saved", tokenizer="bytes", out="store")
        assert sorted(store.text(i) for i in range(25)) == sorted(self.TEXTS)

    @pytest.mark.parametrize(
        "state", [b"", b"{}", b'{"_data_files": 5}', b'{"_data_files": [{"filename": "../../etc/passwd"}]}']
    )
    def test_a_damaged_description_is_an_error(self, state: bytes) -> None:
        self.dataset().save_to_disk("saved")
        write(Path("saved/state.json"), state)
        with pytest.raises(InputError, match=r"saved/state\.json is damaged"):
            discover(["saved"], ReadConfig())

    def test_a_state_that_is_somebody_else_s_makes_no_dataset(self) -> None:
        touch("mine/a.jsonl")
        write(Path("mine/state.json"), b'{"step": 5}')
        assert "mine/a.jsonl" in found("mine")

    def test_a_missing_data_file_is_an_error(self) -> None:
        self.dataset().save_to_disk("saved")
        Path("saved/data-00000-of-00001.arrow").unlink()
        with pytest.raises(InputError, match="cannot read saved/data-00000"):
            discover(["saved"], ReadConfig())


class TestStandardInput:
    """A pipe can be read only once, though a build looks at the head of its inputs first."""

    def build(self, data: bytes, *options: str) -> tokpress.Store:
        command = [sys.executable, "-m", "tokpress", "build", "-", "--tokenizer", "bytes", "--out", "store", "--quiet"]
        done = subprocess.run([*command, *options], input=data, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return tokpress.open("store")

    def test_every_record_of_a_pipe_larger_than_the_sample(self) -> None:
        texts = [f"{i} " * 100 for i in range(6000)]
        data = jsonl(texts)
        assert len(data) > 2 * 1024**2
        store = self.build(data)
        assert [store.text(i) for i in range(len(store))] == texts
        assert store.where(0) == ("-", 0)
        assert store.where(1) == ("-", data.index(b"\n") + 1)

    @pytest.mark.parametrize("extension", [extension for extension in COMPRESSORS if extension])
    def test_compressed(self, extension: str) -> None:
        texts = ["one", "two", "", "naïve"]
        store = self.build(compress(jsonl(texts), extension, 2), "--format", f"jsonl{extension}")
        assert [store.text(i) for i in range(len(store))] == texts

    @pytest.mark.parametrize(
        ("options", "texts"),
        [
            (["--format", "text"], ["a\n\nb\n\nc"]),
            (["--format", "lines"], ["a", "", "b", "", "c"]),
            (["--format", "text", "--separator", r"\n\n"], ["a", "b", "c"]),
        ],
    )
    def test_plain_text(self, options: list[str], texts: list[str]) -> None:
        store = self.build(b"\xef\xbb\xbfa\n\nb\n\nc", *options)
        assert [store.text(i) for i in range(len(store))] == texts

    def test_bad_lines_are_rejected_with_their_numbers(self) -> None:
        self.build(b'\xef\xbb\xbf{"text": "a"}\nbad\n{"text": "b"}\n{"no": 1}\n')
        [rejects] = Path("store/rejects").iterdir()
        told = [json.loads(line) for line in rejects.read_text().splitlines()]
        assert [(reject["source"], reject["line"], reject["position"]) for reject in told] == [
            ("-", 2, 17),
            ("-", 4, 35),
        ]
