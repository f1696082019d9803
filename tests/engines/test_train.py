"""New tokenizers from text: the same text gives the same file, and it can be used at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece

import tokpress
from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines.load import fast_engine, load_files, reference_engine
from tokpress.engines.tiktoken import PATTERNS
from tokpress.errors import UsageError
from tokpress.train import TokenizerModel

from . import samples
from .fuzz import fuzzed

MODELS: list[TokenizerModel] = ["bpe", "sp-bpe", "sp-unigram"]
SUFFIX = {"bpe": "json", "sp-bpe": "model", "sp-unigram": "model"}
Train = Callable[..., Path]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in samples.corpus()[34:60]), "utf-8")
    return path


@pytest.fixture
def train(source: Path, tmp_path: Path) -> Train:
    """Options as for `tokpress.train_tokenizer`; by default a small byte-level BPE."""

    def trained(model: TokenizerModel = "bpe", *, out: str = "tok", **options: object) -> Path:
        path = tmp_path / out / f"tokenizer.{SUFFIX[model]}"
        defaults = {"vocab_size": 1000, "model": model, "out": path}
        return tokpress.train_tokenizer(source, **(defaults | options))  # type: ignore[arg-type]

    return trained


@pytest.mark.parametrize("model", MODELS)
class TestEveryModel:
    def test_has_about_as_many_tokens_as_asked_for(self, train: Train, model: TokenizerModel) -> None:
        info = reference_engine(load_files(TokenizerConfig(spec=str(train(model)))), "text").info
        assert 500 < info.vocab_size <= 1000

    def test_loses_nothing(self, train: Train, model: TokenizerModel) -> None:
        engine = reference_engine(load_files(TokenizerConfig(spec=str(train(model)))), "text")
        texts = [text.replace("▁", "") for text in fuzzed(1, 200, ["<|endoftext|>", "</s>"])]
        tokens = engine.encode(large_strings(texts))
        assert [engine.decode(tokens.doc(i)) for i in range(len(texts))] == texts

    def test_is_the_same_for_the_same_text(self, train: Train, model: TokenizerModel) -> None:
        assert train(model, out="one").read_bytes() == train(model, out="two").read_bytes()

    def test_is_the_same_in_another_process_on_fewer_cores(
        self, train: Train, source: Path, tmp_path: Path, model: TokenizerModel
    ) -> None:
        other = tmp_path / "other" / f"tokenizer.{SUFFIX[model]}"
        script = (
            "import os, sys, tokpress\n"
            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
            "source, out, model = sys.argv[1:]\n"
            "tokpress.train_tokenizer(source, out=out, model=model, vocab_size=1000)\n"
        )
        environment = os.environ | {"PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", script, source, other, model], env=environment, check=True, timeout=120)
        assert other.read_bytes() == train(model).read_bytes()

    def test_can_be_built_with(self, train: Train, source: Path, tmp_path: Path, model: TokenizerModel) -> None:
        store = tokpress.build(source, tokenizer=train(model), out=tmp_path / "store")
        assert store.manifest.eos_id is not None
        assert store.text(3) == samples.corpus()[37]
        assert store.verify().ok

    def test_a_file_of_the_wrong_name_is_an_error(self, tmp_path: Path, model: TokenizerModel) -> None:
        wrong = tmp_path / "tokenizer.bin"
        with pytest.raises(UsageError, match=rf"a {model} tokenizer is a \.{SUFFIX[model]} file\. Name it like"):
            tokpress.train_tokenizer("x", out=wrong, vocab_size=1000, model=model)
        assert not wrong.exists()


class TestBytePairs:
    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_every_pattern_can_be_encoded_fast(self, train: Train, pattern: str) -> None:
        files = load_files(TokenizerConfig(spec=str(train(pattern=pattern))))
        reference = reference_engine(files, "text")
        fast = fast_engine("gigatoken", files, "text", reference)
        text = large_strings(fuzzed(2, 300))
        assert fast.encode(text).ids.tolist() == reference.encode(text).ids.tolist()

    def test_a_pattern_of_ones_own(self, train: Train) -> None:
        trained = json.loads(train(pattern=r"\w+|\W").read_bytes())
        assert trained["pre_tokenizer"]["pretokenizers"][0]["pattern"] == {"Regex": r"\w+|\W"}

    def test_what_is_no_pattern_is_an_error(self, train: Train) -> None:
        with pytest.raises(UsageError, match=r"--pattern '\(\(\(' is neither one of gpt2, .* nor a regular expression"):
            train(pattern="(((")

    def test_the_first_special_token_ends_documents(self, train: Train) -> None:
        path = train(special_tokens=["<end>", "<pad>"])
        info = reference_engine(load_files(TokenizerConfig(spec=str(path))), "text").info
        assert info.special_tokens == {"<end>": 0, "<pad>": 1}
        assert info.eos_token == "<end>"

    def test_without_special_tokens_none_is_named(self, train: Train) -> None:
        path = train(special_tokens=[])
        info = reference_engine(load_files(TokenizerConfig(spec=str(path))), "text").info
        assert (info.special_tokens, info.eos_token) == ({}, None)
        assert not path.with_name("tokenizer_config.json").exists()

    def test_every_byte_has_a_token(self, train: Train) -> None:
        path = train(vocab_size=257)
        engine = reference_engine(load_files(TokenizerConfig(spec=str(path))), "text")
        assert sorted(map(engine.token_bytes, range(1, 257))) == [bytes([byte]) for byte in range(256)]

    def test_fewer_tokens_than_bytes_are_an_error(self, train: Train) -> None:
        with pytest.raises(UsageError, match=r"--vocab-size 256 is too small: bytes and special tokens alone are 257"):
            train(vocab_size=256)

    def test_another_tokenizers_companion_is_left_alone(self, train: Train, tmp_path: Path) -> None:
        other = tmp_path / "tok" / "tokenizer_config.json"
        other.parent.mkdir()
        other.write_text('{"eos_token": "</s>", "chat_template": "..."}')
        with pytest.raises(
            UsageError, match=r"tokenizer_config\.json belongs to another tokenizer.*--out NEW/tokenizer\.json"
        ):
            train()
        assert "chat_template" in other.read_text()

    def test_training_again_replaces_both_files_if_it_may(self, train: Train) -> None:
        path = train(special_tokens=["<a>"])
        with pytest.raises(UsageError, match=r"is there already.*--overwrite"):
            train(special_tokens=["<b>"])
        assert json.loads(path.with_name("tokenizer_config.json").read_text()) == {"eos_token": "<a>"}
        train(special_tokens=["<b>"], overwrite=True)
        assert json.loads(path.with_name("tokenizer_config.json").read_text()) == {"eos_token": "<b>"}


class TestSentencePiece:
    @pytest.mark.parametrize("model", ["sp-bpe", "sp-unigram"])
    def test_special_tokens_become_control_symbols(self, train: Train, model: TokenizerModel) -> None:
        path = train(model, special_tokens=["<|endoftext|>", "</s>", "<pad>"])
        info = reference_engine(load_files(TokenizerConfig(spec=str(path))), "text").info
        assert set(info.special_tokens) == {"<s>", "</s>", "<|endoftext|>", "<pad>"}
        assert info.eos_token == "</s>"

    def test_its_own_symbols_may_be_named_too(self, train: Train) -> None:
        path = train("sp-bpe", special_tokens=["<unk>", "<s>", "</s>"])  # the trainer refuses <unk> as a control symbol
        info = reference_engine(load_files(TokenizerConfig(spec=str(path))), "text").info
        assert set(info.special_tokens) == {"<s>", "</s>"}

    def test_the_model_is_of_the_kind_that_was_asked_for(self, train: Train) -> None:
        scores = []
        for model in ("sp-bpe", "sp-unigram"):
            processor = sentencepiece.SentencePieceProcessor(model_file=str(train(model, out=model)))
            scores.append(processor.GetScore(processor.GetPieceSize() - 1))
        assert scores[0] == int(scores[0])  # a BPE's scores are ranks
        assert scores[1] != int(scores[1])  # a unigram model's are log probabilities

    def test_too_many_tokens_or_too_little_text_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("")
        with pytest.raises(UsageError, match="SentencePiece cannot train 1,000 tokens on this text"):
            tokpress.train_tokenizer(tmp_path / "a.txt", out=tmp_path / "a.model", model="sp-bpe", vocab_size=1000)


class TestSampling:
    def test_only_so_much_text_is_used(self, train: Train) -> None:
        whole, part = train(out="whole"), train(out="part", sample_size=20_000)
        assert whole.read_bytes() != part.read_bytes()
        assert part.read_bytes() == train(out="again", sample_size="20kB").read_bytes()
