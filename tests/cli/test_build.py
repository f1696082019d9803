"""`tokpress build`: text in, store out; results on standard output, everything else beside it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import tokpress
from tokpress.cli import show
from tokpress.cli.show import ByteProgress, ConsoleReporter, number, parity_line, plural, safe, size
from tokpress.records import Difference, Parity, TokenizerInfo
from tokpress.run.events import Advanced, Began, Event, Finished, Proved, TokenizerLoaded

from .conftest import TEXTS, Cli


class TestBuild:
    def test_makes_a_store(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store")
        assert result.code == 0
        assert result.out == ""
        store = tokpress.open(tmp_path / "store")
        assert [store.text(i) for i in range(len(TEXTS))] == TEXTS

    @pytest.mark.parametrize("keep", ["", "id,", ",id", "id, ,url"])
    def test_a_field_to_keep_has_a_name(self, cli: Cli, source: Path, tmp_path: Path, keep: str) -> None:
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--keep", keep)
        assert result.code == 2
        assert "is not like 'id,url'" in result.err

    def test_says_what_it_does_and_what_comes_next(self, cli: Cli, source: Path, tmp_path: Path, bpe: Path) -> None:
        err = cli("build", source, "--tokenizer", bpe, "--out", tmp_path / "store", "--audit-rate", "1").err
        for said in (
            "inputs  1 file, ",
            "tokenizer  huggingface, ",
            "EOS <|endoftext|>",
            "engine  gigatoken, proved equal to huggingface on ",
            "first doc  Hello, world.<|endoftext|>",
            "documents  5 written + 0 rejected = 5 read",
            "audit  5 documents encoded twice during the run, all equal",
            f"Look into it: tokpress inspect {tmp_path / 'store'}",
        ):
            assert said in err
        assert not any(line != line.rstrip() for line in err.splitlines())

    def test_names_the_rejects_and_where_they_are(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        source.write_text(source.read_text() + 'not json\n{"text": 5}\n')
        err = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store").err
        assert "documents  5 written + 2 rejected = 7 read" in err
        assert "1 bad-json" in err
        assert "1 wrong-type" in err
        assert f"Look at the rejected records: {tmp_path / 'store'}/rejects/" in err

    def test_with_json_prints_the_manifest_and_nothing_else(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--json")
        assert result.out.encode() == (tmp_path / "store" / "manifest.json").read_bytes()
        assert json.loads(result.out)["totals"] == {"read": 5, "written": 5, "rejected": 0}

    def test_events_go_to_a_file_and_change_nothing_else(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        arguments = ("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--quiet")
        result = cli(*arguments, "--events", tmp_path / "events.jsonl")
        assert (result.code, result.out, result.err) == (0, "", "")
        told = list(tokpress.read_events(tmp_path / "events.jsonl"))
        assert (type(told[0]), type(told[-1])) == (Began, Finished)
        assert [event.docs for event in told if isinstance(event, Finished)] == [len(TEXTS)]

    def test_events_that_cannot_be_written_are_said_to_be_missing(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--events", "/dev/full")
        assert result.code == 0
        assert "/dev/full is not complete: No space left on device" in result.err

    def test_a_file_for_events_that_cannot_be_opened_is_an_error(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        result = cli(
            "build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--events", tmp_path / "no" / "file"
        )
        assert result.code == 1
        assert "no/file: No such file or directory" in result.err
        assert not (tmp_path / "store").exists()

    def test_quiet_is_silent(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--quiet")
        assert (result.code, result.out, result.err) == (0, "", "")

    def test_quiet_still_says_what_is_wrong(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        result = cli("build", source, "--tokenizer", "no.json", "--out", tmp_path / "store", "--quiet")
        assert result.code == 2
        assert result.err.startswith("error: no tokenizer at no.json")

    def test_reads_standard_input(self, source: Path, tmp_path: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "tokpress",
            "build",
            "-",
            "--tokenizer",
            "bytes",
            "--out",
            str(tmp_path / "store"),
        ]
        result = subprocess.run(command, input=source.read_bytes(), check=True, capture_output=True)
        assert b"inputs  standard input of jsonl\n" in result.stderr
        store = tokpress.open(tmp_path / "store")
        assert [store.text(i) for i in range(len(TEXTS))] == TEXTS
        assert store.where(1)[0] == "-"

    def test_standard_input_again_is_not_taken_for_the_same(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "tokpress", "build", "-", "--tokenizer", "bytes", "--out", str(tmp_path / "s")]
        for overwrite, text, code in ([], b"one", 0), ([], b"two", 2), (["--overwrite"], b"two", 0):
            line = b'{"text": "%s"}\n' % text
            result = subprocess.run([*command, *overwrite], input=line, capture_output=True, timeout=60)
            assert result.returncode == code, result.stderr.decode()
        assert tokpress.open(tmp_path / "s").text(0) == "two"

    def test_too_many_rejects_is_exit_code_3(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        source.write_text(source.read_text() + "not json\n" * 3)
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--max-rejects", "2")
        assert result.code == 3
        first, *rejects, last = result.err.splitlines()[-5:]
        assert first == ("error: 3 of 8 records were rejected, more than --max-rejects 2 allows. The first of them:")
        assert [line.split(",")[0] for line in rejects] == [
            f"  {source} at line {line}: bad-json" for line in (6, 7, 8)
        ]
        assert last == "Mend the inputs or raise the limit, and run the command again."
        assert not (tmp_path / "store" / "manifest.json").exists()

    def test_the_same_command_again_finds_the_store_finished(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        arguments = ["build", source, "--tokenizer", "bytes", "--out", tmp_path / "store"]
        assert cli(*arguments).code == 0
        manifest = (tmp_path / "store" / "manifest.json").read_bytes()
        assert cli(*arguments).code == 0
        assert (tmp_path / "store" / "manifest.json").read_bytes() == manifest

    def test_a_store_of_something_else_needs_overwrite(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        arguments = ["build", source, "--tokenizer", "bytes", "--out", tmp_path / "store"]
        assert cli(*arguments).code == 0
        refused = cli(*arguments, "--no-eos")
        assert refused.code == 2
        assert "options.eos_id: was 256, is nothing" in refused.err
        assert "--overwrite" in refused.err
        assert cli(*arguments, "--no-eos", "--overwrite").code == 0
        assert tokpress.open(tmp_path / "store").manifest.eos_id is None

    def test_an_unfinished_store_is_continued(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        arguments = ["build", source, "--tokenizer", "bytes", "--out", tmp_path / "store", "--shard-size", "100"]
        assert cli(*arguments).code == 0
        first = tmp_path / "store" / "shards" / "train-00000-000.bin"
        untouched = first.stat().st_mtime_ns
        (tmp_path / "store" / "manifest.json").unlink()
        assert cli(*arguments).code == 0
        assert first.stat().st_mtime_ns == untouched
        store = tokpress.open(tmp_path / "store")
        assert [store.text(i) for i in range(len(TEXTS))] == TEXTS

    def test_a_lost_eos_is_seen_before_it_is_too_late(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        err = cli("build", source, "--tokenizer", "bytes", "--no-eos", "--out", tmp_path / "store").err
        assert "no BOS, no EOS" in err
        assert "first doc  Hello, world.\n" in err

    def test_a_tokenizer_without_eos_says_which_flag_to_use(
        self, cli: Cli, source: Path, tmp_path: Path, bpe: Path
    ) -> None:
        (tmp_path / "tokenizer.json").write_bytes(bpe.read_bytes())  # without the file that names it
        result = cli("build", source, "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "store")
        assert result.code == 2
        assert "--eos-token '<|endoftext|>'" in result.err
        assert "--no-eos" in result.err

    def test_rank_files_take_their_special_tokens(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        import base64

        ranks = tmp_path / "ranks.tiktoken"
        ranks.write_bytes(b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256)))
        tokens = [
            "--special-token",
            "<end>=300",
            "--special-token",
            "a=b=301",
            "--eos-token",
            "<end>",
            "--pattern",
            "gpt2",
        ]
        result = cli("build", source, "--tokenizer", ranks, *tokens, "--out", tmp_path / "store")
        assert result.code == 0, result.err
        store = tokpress.open(tmp_path / "store")
        assert store.manifest.eos_id == 300
        assert store.manifest.tokenizer.special_tokens == {"<end>": 300, "a=b": 301}

    @pytest.mark.parametrize("name", ["with space", "[red]", "[bold]x[]", "ünï", "a'b"])
    def test_names_with_odd_characters_are_shown_as_they_are(
        self, cli: Cli, source: Path, tmp_path: Path, name: str
    ) -> None:
        source = source.rename(tmp_path / f"{name}.jsonl")
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / name)
        assert result.code == 0
        assert f"tokpress inspect {tmp_path / name}\n" in result.err
        assert f"{source} at 0" in cli("inspect", tmp_path / name, "--doc", "0").out
        assert cli("verify", tmp_path / name).out.startswith(f"{tmp_path / name} is sound")


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(show, "monotonic", lambda: self.now)


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, highlight=False, soft_wrap=True)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class TestProgress:
    def test_on_a_terminal_is_a_bar(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, screen = Clock(monkeypatch), console(terminal=True)
        bar = ByteProgress(screen, "encoding", 1000)
        clock.now += 1
        bar.advance(500, "· 3 docs/s")
        assert bar._bar is not None
        assert [(task.completed, task.total) for task in bar._bar.tasks] == [(500, 1000)]
        bar.close()
        assert "encoding" in shown(screen)
        assert "50% · 500 B/s · 3 docs/s" in shown(screen)

    def test_elsewhere_is_a_line_now_and_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, screen = Clock(monkeypatch), console(terminal=False)
        bar = ByteProgress(screen, "encoding", 1000)
        for _ in range(10):
            clock.now += 4
            bar.advance(100)
        bar.close()
        lines = shown(screen).splitlines()
        assert [line[:14] for line in lines] == ["encoding: 30% ", "encoding: 60% ", "encoding: 90% "]
        assert "\x1b" not in shown(screen)

    @pytest.mark.parametrize("terminal", [False, True])
    def test_of_what_is_soon_done_is_not_shown(self, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
        clock, screen = Clock(monkeypatch), console(terminal=terminal)
        bar = ByteProgress(screen, "encoding", 1000)
        clock.now += 0.1
        bar.advance(1000)
        bar.close()
        assert shown(screen) == ""

    @pytest.mark.parametrize("terminal", [False, True])
    def test_of_an_unknown_total_has_no_share(self, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
        clock, screen = Clock(monkeypatch), console(terminal=terminal)
        bar = ByteProgress(screen, "encoding")
        clock.now += 20
        bar.advance(2000)
        bar.close()
        assert "2.0 kB · 100 B/s" in shown(screen)
        assert "%" not in shown(screen)
        assert "0:00:00" not in shown(screen)  # nor is it known how long it will take

    @pytest.mark.parametrize("terminal", [False, True])
    def test_of_a_real_build_is_shown(
        self, monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path, terminal: bool
    ) -> None:
        clock, screen = Clock(monkeypatch), console(terminal=terminal)

        class SlowReporter(ConsoleReporter):
            def on(self, event: Event) -> None:
                clock.now += 20 if isinstance(event, Advanced) else 0
                super().on(event)

        source.write_text(source.read_text() + "not json\n")
        tokpress.build(source, tokenizer="bytes", out=tmp_path / "store", reporter=SlowReporter(screen), batch_bytes=64)
        assert "docs/s" in shown(screen)
        assert "tokens/s" in shown(screen)
        assert "1 rejected" in shown(screen)


class TestReporter:
    @pytest.mark.parametrize(
        ("parity", "line"),
        [
            (
                Parity(outcome="equal", engine="gigatoken", reference="huggingface", docs=1000, bytes=2000),
                "gigatoken, proved equal to huggingface on 1,000 documents (2.0 kB)",
            ),
            (Parity(outcome="not-needed", engine="bytes", reference="bytes"), "bytes, the reference itself"),
            (
                Parity(outcome="unsupported", engine="huggingface", reference="huggingface", detail="no [x] here"),
                "huggingface (no [x] here)",
            ),
            (
                Parity(outcome="different", engine="huggingface", reference="huggingface"),
                "huggingface (gigatoken differs from it and is not used)",
            ),
        ],
    )
    def test_tells_how_the_engine_was_chosen(self, parity: Parity, line: str) -> None:
        screen = console(terminal=False)
        screen.print(parity_line(parity))
        assert shown(screen) == line + "\n"

    def test_shows_the_first_difference(self) -> None:
        screen = console(terminal=False)
        difference = Difference(text="[bold]\x1b", token=3, fast=[1], reference=[2])
        ConsoleReporter(screen).on(Proved(outcome="different", engine="h", reference="h", difference=difference))
        assert "first difference at token 3: fast [1], reference [2], in '[bold]\\x1b'" in shown(screen)

    def test_special_tokens_in_brackets_are_not_markup(self) -> None:
        screen = console(terminal=False)
        names = {"[SEP]": 3, "[/CLS]": 2}
        info = TokenizerInfo(kind="huggingface", fingerprint="f", vocab_size=10, special_tokens=names)
        ConsoleReporter(screen).on(TokenizerLoaded.of(info, dtype="uint16", bos_id=2, eos_id=3))
        assert "BOS [/CLS], EOS [SEP]" in shown(screen)


class TestNumbers:
    @pytest.mark.parametrize(
        ("count", "text"),
        [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2.5e6, "2.5 MB"), (7e9, "7.0 GB"), (1e13, "10.00 TB")],
    )
    def test_sizes(self, count: float, text: str) -> None:
        assert size(count) == text

    @pytest.mark.parametrize(
        ("count", "text"), [(0, "0"), (999, "999"), (1500, "1.5k"), (2e6, "2.0M"), (3e9, "3.0G"), (4e12, "4.00T")]
    )
    def test_numbers(self, count: float, text: str) -> None:
        assert number(count) == text

    @pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (2000, "2,000 files")])
    def test_plurals(self, count: int, text: str) -> None:
        assert plural(count, "file") == text

    def test_text_that_is_neither_markup_nor_a_command(self) -> None:
        screen = console(terminal=False)
        screen.print(safe("[red]x[/] \x1b[31m \u202e ä"))
        assert shown(screen) == "[red]x[/] \\x1b[31m \\u202e ä\n"
