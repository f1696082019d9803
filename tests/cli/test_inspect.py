"""`tokpress inspect`: numbers, a histogram, documents with their tokens; safe to look at whatever is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

import tokpress
from tokpress.cli.inspect import coloured

from .conftest import TEXTS, Cli

LENGTHS = [len(text.encode()) + 1 for text in TEXTS]


class TestStore:
    def test_shows_the_totals(self, cli: Cli, store: Path) -> None:
        result = cli("inspect", store)
        assert result.code == 0
        assert result.err == ""
        for said in (
            f"store  {store}, split train of train",
            f"tokens  {sum(LENGTHS):,} in 5 documents, 3 shards of uint16",
            "tokenizer  bytes, 257 tokens, ",
            "records  6 read, 1 rejected",
            f"p50 {sorted(LENGTHS)[2]} ",
            f"max {max(LENGTHS):,}\n",
        ):
            assert said in result.out

    def test_shows_how_long_documents_are(self, cli: Cli, store: Path) -> None:
        rows = re.findall(r"≤ +([\d,]+) +([█▏]*) (\d+)\n", cli("inspect", store).out)
        counts = {int(up_to.replace(",", "")): int(docs) for up_to, _, docs in rows}
        assert counts == {2**k: sum(2**k // 2 < length <= 2**k for length in LENGTHS) for k in range(12)} | {1: 1}
        assert all(bool(bar) == (docs != "0") for _, bar, docs in rows)

    def test_shows_a_few_documents(self, cli: Cli, store: Path) -> None:
        out = cli("inspect", store).out
        assert "document 0 · 14 tokens · " in out
        assert "Hello, world.<|endoftext|>\n" in out
        assert out.count("document ") == 3

    def test_says_of_a_long_document_that_it_goes_on(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("ab" * 5000)
        tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "long")
        assert cli("inspect", tmp_path / "long").out.rstrip().endswith("…")
        assert "…" not in cli("inspect", tmp_path / "long", "--doc", 0).out

    def test_with_json_prints_it_and_nothing_else(self, cli: Cli, store: Path) -> None:
        result = cli("inspect", store, "--json")
        facts = json.loads(result.out)
        assert result.err == ""
        assert (facts["docs"], facts["tokens"], facts["read"], facts["rejected"]) == (5, sum(LENGTHS), 6, 1)
        assert facts["rejects"] == {"bad-json": 1}
        assert facts["splits"] == {"train": {"docs": 5, "tokens": sum(LENGTHS)}}
        assert facts["tokens_per_doc"]["max"] == max(LENGTHS)
        assert sum(entry["docs"] for entry in facts["tokens_per_doc"]["histogram"]) == 5
        assert facts["fingerprint"] == tokpress.open(store).fingerprint

    @pytest.mark.parametrize("json_too", [[], ["--json"]])
    def test_an_empty_store_is_shown_too(self, cli: Cli, tmp_path: Path, json_too: list[str]) -> None:
        (tmp_path / "a.jsonl").write_bytes(b"")
        tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "empty", limit=0)
        result = cli("inspect", tmp_path / "empty", *json_too)
        assert result.code == 0
        assert json.loads(result.out)["docs"] == 0 if json_too else "0 in 0 documents, 1 shard of" in result.out

    def test_documents_without_tokens_are_counted(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": ""}\n' * 3 + '{"text": "x"}\n')
        tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store", eos=False)
        assert "max 1 · 3 empty\n" in cli("inspect", tmp_path / "store").out
        facts = json.loads(cli("inspect", tmp_path / "store", "--json").out)["tokens_per_doc"]
        assert facts["empty"] == 3
        assert facts["histogram"] == [{"up_to": 1, "docs": 4}]


class TestDocument:
    @pytest.mark.parametrize("doc", [0, 2, 4, -1, -5])
    def test_is_shown_whole(self, cli: Cli, store: Path, doc: int) -> None:
        result = cli("inspect", store, "--doc", doc)
        assert result.code == 0
        assert result.out.startswith(f"document {doc % 5} · {LENGTHS[doc]:,} tokens · ")
        assert result.out.endswith("<|endoftext|>\n")

    def test_is_not_cut_into_lines(self, cli: Cli, store: Path) -> None:
        assert TEXTS[4] in cli("inspect", store, "--doc", 4).out

    def test_shows_line_ends_and_tabs(self, cli: Cli, store: Path) -> None:
        assert "zwei Wörter⏎\nin Zeilen→   !<|endoftext|>" in cli("inspect", store, "--doc", 2).out

    def test_cannot_command_the_terminal(self, cli: Cli, store: Path) -> None:
        out = cli("inspect", store, "--doc", 3).out
        assert "\\x1b[31mred\\x1b[0m \\x07bell \\u202eright to left<|endoftext|>" in out
        assert not [char for char in out if not char.isprintable() and char != "\n"]

    def test_its_json_cannot_command_the_terminal_either(self, cli: Cli, tmp_path: Path) -> None:
        text = "\x1b[31m \x9b2J \u202e é 👍 \U000e0041 \n end"
        (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + "\n")
        store = tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store")
        result = cli("inspect", store.path, "--doc", 0, "--json")
        assert json.loads(result.out)["text"] == text + "<|endoftext|>"
        assert all(char.isprintable() or char == "\n" for char in result.out)

    def test_with_json_has_ids_and_text(self, cli: Cli, store: Path) -> None:
        shown = json.loads(cli("inspect", store, "--doc", -2, "--json").out)
        assert shown["doc"] == 3
        assert shown["ids"] == [*TEXTS[3].encode(), 256]
        assert shown["text"] == TEXTS[3] + "<|endoftext|>"
        assert Path(shown["source"]).name == "texts.jsonl"

    @pytest.mark.parametrize("doc", [5, 100, -6])
    def test_outside_is_wrong_usage(self, cli: Cli, store: Path, doc: int) -> None:
        result = cli("inspect", store, "--doc", doc)
        assert result.code == 2
        assert result.err == f"error: --doc {doc}: split 'train' of {store} has 5 documents, 0 to 4.\n"

    def test_of_an_empty_store_is_wrong_usage(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(b"")
        tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "empty", limit=0)
        result = cli("inspect", tmp_path / "empty", "--doc", 0)
        assert result.code == 2
        assert "has no documents" in result.err


class TestSequence:
    def test_is_so_many_tokens_of_all_documents_end_to_end(self, cli: Cli, store: Path) -> None:
        out = cli("inspect", store, "--seq", 1, "--seq-len", 10).out
        assert out == "sequence 1 · tokens 10 to 20\nld.<|endoftext|><|endoftext|>zwei \n"

    def test_with_json_has_ids_and_text(self, cli: Cli, store: Path) -> None:
        shown = json.loads(cli("inspect", store, "--seq", 0, "--seq-len", 5, "--json").out)
        assert shown == {"seq": 0, "ids": [*b"Hello"], "text": "Hello"}

    @pytest.mark.parametrize(
        ("seq", "seq_len", "said"), [(1, 1500, "1 whole sequences of 1,500 tokens, 0 to 0"), (0, 9999, "0 whole")]
    )
    def test_outside_is_wrong_usage(self, cli: Cli, store: Path, seq: int, seq_len: int, said: str) -> None:
        result = cli("inspect", store, "--seq", seq, "--seq-len", seq_len)
        assert result.code == 2
        assert said in result.err

    def test_and_document_are_two_things(self, cli: Cli, store: Path) -> None:
        result = cli("inspect", store, "--seq", 0, "--doc", 0)
        assert result.code == 2
        assert "Give one of them" in result.err


class TestSplit:
    def test_an_unknown_one_names_those_there_are(self, cli: Cli, store: Path) -> None:
        result = cli("inspect", store, "--split", "val")
        assert result.code == 1
        assert "no split 'val'" in result.err
        assert "train" in result.err


class TestColours:
    def test_each_token_stands_out_from_its_neighbours(self, small_store: Callable[..., tokpress.Store]) -> None:
        store = small_store()
        for doc in (3, 40, 200):
            spans = [span for span in coloured(store, store.doc(doc)).spans if span.end > span.start]
            assert all(a.style != b.style for a, b in pairwise(spans) if a.end == b.start)

    def test_a_character_of_several_tokens_is_whole(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("日é👍")
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store")
        assert coloured(store, store.doc(0)).plain == "日é👍<|endoftext|>"

    def test_half_a_character_is_shown_as_such(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("a\x1b日")
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store")
        assert coloured(store, store.doc(0)[:-2]).plain == "a\\x1b\ufffd"
        assert coloured(store, store.doc(0)[3:]).plain == "\ufffd\ufffd<|endoftext|>"

    def test_special_tokens_have_their_own(self, store: Path) -> None:
        shown = coloured(tokpress.open(store), tokpress.open(store).doc(0))
        assert [str(span.style) for span in shown.spans].count("bold black on yellow") == 1
        assert shown.spans[-1].style == "bold black on yellow"

    def test_text_is_never_markup(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("[red]x[/] [/]")
        store = tokpress.build(tmp_path / "a.txt", tokenizer="bytes", out=tmp_path / "store")
        console = Console(width=200)
        with console.capture() as captured:
            console.print(coloured(store, store.doc(0)))
        assert captured.get() == "[red]x[/] [/]<|endoftext|>\n"
