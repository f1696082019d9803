"""The native encoder: the library's ids and token starts, and what becomes of a model that it does not take."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from conftest import HARD_TEXTS, make_texts, write_jsonl

import tokpress
from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines import table
from tokpress.engines.choice import choose_engine
from tokpress.engines.load import fast_engine
from tokpress.engines.parity import nasty_texts
from tokpress.engines.table import all_engines, fast_for, missing_for
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from . import samples

pytest.importorskip("tokpress_native", reason="the native encoder is not built: no C++ compiler")


def texts(name: str, policy: SpecialTokenPolicy) -> list[str]:
    special = list(samples.reference(name, policy).info.special_tokens)[:10]
    rng = random.Random(name)
    parts = ["a", "b ", "  ", "the ", "\n", "é", "e\u0301", "漢", "🙂", "ﬁ", "▁", "\u3000", "\0", "<user>", *special]
    fuzzed = ["".join(rng.choices(parts, k=rng.randrange(1, 30))) for _ in range(300)]
    return [*nasty_texts(special), *HARD_TEXTS, *fuzzed]


@pytest.mark.parametrize("policy", samples.POLICIES)
@pytest.mark.parametrize("name", samples.SENTENCEPIECE)
class TestEqual:
    def test_ids(self, name: str, policy: SpecialTokenPolicy) -> None:
        reference, text = samples.reference(name, policy), large_strings(texts(name, policy))
        tokens = fast_engine("native", samples.sample(name).files, policy, reference).encode(text, threads=2)
        expected = reference.encode(text)
        assert np.array_equal(tokens.ends, expected.ends)
        assert np.array_equal(tokens.ids, expected.ids)

    def test_token_starts(self, name: str, policy: SpecialTokenPolicy) -> None:
        reference, text = samples.reference(name, policy), large_strings(texts(name, policy))
        native = fast_engine("native", samples.sample(name).files, policy, reference)
        assert [list(starts) for starts in native.token_starts(text)] == [*map(list, reference.token_starts(text))]


class TestChoice:
    def choose(self, name: str) -> tuple[str, tokpress.records.Parity]:
        found = samples.sample(name).files
        engine, parity = choose_engine(found, TokenizerConfig(spec=name), samples.reference(name), [])
        return engine.name, parity

    @pytest.mark.parametrize("name", samples.SENTENCEPIECE)
    def test_it_is_first_for_sentencepiece_models(self, name: str) -> None:
        engine, parity = self.choose(name)
        assert (engine, parity.outcome, parity.refusals) == ("native", "equal", {})
        assert parity.reference_version == sentencepiece.__version__

    def test_without_it_others_are_tried_and_the_reason_is_recorded(self, not_installed: None) -> None:
        engine, parity = self.choose("mistral-v1-real")
        assert engine == "gigatoken"
        assert parity.refusals == {"native": "no_such_module is not installed. Run: pip install 'tokpress[native]'"}
        assert [spec.name for spec in fast_for("sentencepiece")] == ["gigatoken"]
        assert missing_for("huggingface") == missing_for("sentencepiece", "sentencepiece") == {}

    def test_without_it_asking_for_it_says_what_to_run(self, not_installed: None) -> None:
        files, reference = samples.sample("mistral-v1-real").files, samples.reference("mistral-v1-real")
        with pytest.raises(TokenizerError, match=r"native cannot be used.*pip install 'tokpress\[native\]'"):
            choose_engine(files, TokenizerConfig(spec="x", engine="native"), reference, [])

    def test_an_older_library_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sentencepiece, "__version__", "0.2.1")
        name = "sp-unigram-unk-prefix-nmt_nfkc"
        with pytest.raises(TokenizerError, match=r"0\.2\.2 and later, and 0\.2\.1 is installed.*pip install -U"):
            fast_engine("native", samples.sample(name).files, "text", samples.reference(name))

    def test_a_model_that_it_does_not_take_is_refused_with_the_reason(self) -> None:
        words = samples.train_sentencepiece(model_type="word", vocab_size=300)
        files = TokenizerFiles("sentencepiece", {"tokenizer.model": words})
        with pytest.raises(TokenizerError, match="does not take this model: neither a unigram nor a BPE model"):
            fast_engine("native", files, "text", samples.reference("mistral-v1-real"))


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where nothing compiles it."""
    specs = [replace(spec, needs="no_such_module") if spec.name == "native" else spec for spec in all_engines()]
    monkeypatch.setattr(table, "all_engines", lambda: tuple(specs))


def test_a_build_uses_it_and_records_the_library_s_version(tmp_path: Path) -> None:
    model = tmp_path / "spm.model"
    model.write_bytes(samples.sample("sp-unigram-unk-prefix-nmt_nfkc").files.files["tokenizer.model"])
    data = write_jsonl(tmp_path / "data.jsonl", make_texts(200))
    native = tokpress.build([data], tokenizer=model, out=tmp_path / "native")
    library = tokpress.build([data], tokenizer=model, out=tmp_path / "library", engine="sentencepiece")
    assert (native.manifest.parity.engine, library.manifest.parity.engine) == ("native", "sentencepiece")
    assert native.manifest.parity.reference_version == sentencepiece.__version__
    assert np.array_equal(native.tokens(0, native.num_tokens), library.tokens(0, library.num_tokens))


def test_a_parallel_tokenizer_uses_it(tmp_path: Path) -> None:
    model = tmp_path / "spm.model"
    model.write_bytes(samples.sample("sp-unigram-unk-prefix-nmt_nfkc").files.files["tokenizer.model"])
    documents = make_texts(600, seed=5) * 2
    tokenizer = tokpress.ParallelTokenizer(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())
    for _ in range(3):  # the first calls are proof, too
        assert [ids.tolist() for ids in tokenizer(documents)] == library.encode(documents)
    assert tokenizer.engine.name == "native"
