"""The tables of `graphemes.cpp` are those of the installed `tokenizers`, which is asked for every code point.

Its `Precompiled` replaces a cluster of fewer than six bytes by what the first character's rule says. With a map in which
every character up to three bytes becomes "X", what comes out says which characters it took for one cluster.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sentencepiece
from engines.models import charsmap_of
from tokenizers import normalizers

SOURCE = Path(__file__).parents[2] / "native/src/graphemes.cpp"
CODES = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
SHORT = [code for code in CODES if code < 0x10000]  # up to three bytes
MARK = "\u0301"


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    rules = tmp_path_factory.mktemp("rules") / "rules.tsv"
    rules.write_text("".join(f"{code:X}\t58\n" for code in SHORT if code != ord("X")))
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["X X X", "ab ab"] * 20),
        model_writer=written,
        model_type="char",
        vocab_size=8,
        hard_vocab_limit=False,
        normalization_rule_tsv=str(rules),
        minloglevel=2,
    )
    normalize: Callable[[str], str] = normalizers.Precompiled(charsmap_of(written.getvalue())).normalize_str
    return normalize


def table(name: str) -> Iterator[int]:
    found = re.search(rf"{name}\[\] = {{(.*?)}};", SOURCE.read_text(), re.DOTALL)
    assert found is not None
    for first, last in re.findall(r"{0x([0-9A-F]+), 0x([0-9A-F]+)}", found[1]):
        yield from range(int(first, 16), int(last, 16) + 1)


def test_what_joins_the_character_before(replaced: Callable[[str], str]) -> None:
    assert [code for code in CODES if replaced(f"a{chr(code)}") == "X"] == [*table("kJoining")]


def test_what_lets_nothing_join(replaced: Callable[[str], str]) -> None:
    """Of four bytes: two marks after it are looked up each alone if all three are a cluster, which is too long then."""
    short = [code for code in SHORT if code != ord("X") and replaced(chr(code) + MARK) != "X"]
    long = [code for code in CODES if code >= 0x10000 and not replaced(chr(code) + MARK + MARK).endswith("XX")]
    assert [0, *short, *long] == [*table("kControls")]


def test_what_joins_the_character_after(replaced: Callable[[str], str]) -> None:
    short = [code for code in SHORT if replaced(f"{chr(code)}a{MARK}") in ("X", "XXX")]
    long = [code for code in CODES if code >= 0x10000 and replaced(f"{chr(code)}a{MARK}").endswith("XX")]
    assert short + long == [*table("kPrepending")]
