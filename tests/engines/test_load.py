"""From what a user calls a tokenizer to its files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import huggingface_hub.constants
import pytest

from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines.load import load_files, open_files, reference_engine
from tokpress.engines.tiktoken import PATTERNS
from tokpress.errors import TokenizerError
from tokpress.records import TokenizerFiles

from . import hub, samples
from .conftest import write_files


def load(path: Path | str, **options: object) -> TokenizerFiles:
    return load_files(TokenizerConfig(spec=str(path), **options))  # type: ignore[arg-type]


class TestTokenizerJson:
    def test_by_its_path(self, bpe_directory: Path) -> None:
        files = load(bpe_directory / "tokenizer.json")
        assert files == samples.sample("cl100k").files

    def test_by_its_directory(self, bpe_directory: Path) -> None:
        assert load(bpe_directory) == samples.sample("cl100k").files

    def test_by_another_name(self, bpe_directory: Path) -> None:
        (bpe_directory / "tokenizer.json").rename(bpe_directory / "mine.json")
        assert load(bpe_directory / "mine.json") == samples.sample("cl100k").files

    def test_from_home(self, bpe_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(bpe_directory.parent))
        assert load("~/bpe") == samples.sample("cl100k").files

    def test_with_white_space_before_it(self, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        path.write_text("\n  " + samples.byte_level_json("cl100k"))
        assert reference_engine(load(path), "text").info.vocab_size == 1200

    def test_companions_come_along(self, bpe_directory: Path) -> None:
        (bpe_directory / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<|im_start|>"}))
        (bpe_directory / "chat_template.jinja").write_text("{{ messages }}")
        (bpe_directory / "model.safetensors").write_bytes(b"not for us")
        files = load(bpe_directory)
        assert sorted(files.files) == [
            "chat_template.jinja",
            "special_tokens_map.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
        info = reference_engine(files, "text").info
        assert (info.bos_token, info.eos_token) == ("<|im_start|>", "<|endoftext|>")

    def test_companions_are_part_of_the_fingerprint(self, bpe_directory: Path) -> None:
        before = load(bpe_directory).fingerprint
        (bpe_directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        assert load(bpe_directory).fingerprint != before


class TestSentencePiece:
    def test_by_its_path(self) -> None:
        path = samples.package_file("mistral_common", "data/tokenizer.model.v1")
        files = load(path)
        assert files.kind == "sentencepiece"
        assert reference_engine(files, "text").info.vocab_size == 32_000

    @pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "mine.model"])
    def test_by_its_directory(self, tmp_path: Path, name: str) -> None:
        files = samples.sample("sp-bpe-fallback-bare-identity").files
        (tmp_path / name).write_bytes(files.files["tokenizer.model"])
        assert load(tmp_path) == files

    def test_a_tokenizer_json_beside_it_is_preferred(self, bpe_directory: Path) -> None:
        write_files(bpe_directory, "sp-bpe-fallback-bare-identity")
        assert load(bpe_directory).kind == "huggingface"


class TestRankFiles:
    def test_published_ones_are_known_by_name(self, cl100k_base: Path) -> None:
        info = reference_engine(load(cl100k_base), "text").info
        assert (info.kind, info.vocab_size, info.eos_token) == ("tiktoken", 100_277, "<|endoftext|>")
        assert info.special_tokens["<|endofprompt|>"] == 100_276

    def test_by_content_and_not_by_name(self) -> None:
        """Llama 3's tokenizer.model is one."""
        files = load(samples.llama3_ranks(), pattern="llama3", added_tokens=samples.LLAMA3_SPECIALS)
        assert files.kind == "tiktoken"
        tokens = reference_engine(files, "text").encode(large_strings(["Hello world!"])).ids.tolist()
        assert tokens == samples.oracle("llama3-real")("Hello world!")
        assert reference_engine(files, "text").info.special_tokens == samples.LLAMA3_SPECIALS

    def test_without_a_pattern_the_patterns_are_named(self) -> None:
        with pytest.raises(TokenizerError) as raised:
            load(samples.llama3_ranks())
        assert f"{samples.llama3_ranks()} is a rank file" in str(raised.value)
        assert all(name in str(raised.value) for name in ("--pattern", *PATTERNS))

    def test_in_a_directory(self, cl100k_base: Path) -> None:
        assert load(cl100k_base.parent) == load(cl100k_base)

    def test_several_in_a_directory_are_listed(self, tmp_path: Path) -> None:
        for name in ("b.tiktoken", "a.model"):
            (tmp_path / name).write_bytes(samples.small_ranks())
        with pytest.raises(TokenizerError, match=r"several to choose from, name one: a\.model, b\.tiktoken"):
            load(tmp_path)

    @pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
    def test_a_pattern_by_name_or_as_it_is(self, tmp_path: Path, pattern: str) -> None:
        (tmp_path / "mine.tiktoken").write_bytes(samples.small_ranks())
        details = json.loads(load(tmp_path, pattern=pattern).files["tiktoken.json"])
        assert details == {"pattern": PATTERNS.get(pattern, pattern), "special_tokens": {}}

    def test_options_overrule_what_is_known(self, cl100k_base: Path) -> None:
        details = json.loads(load(cl100k_base, pattern="gpt2", added_tokens={"<|x|>": 100_256}).files["tiktoken.json"])
        assert details == {"pattern": PATTERNS["gpt2"], "special_tokens": {"<|x|>": 100_256}}

    def test_lines_may_end_as_on_windows(self, tmp_path: Path) -> None:
        (tmp_path / "mine.tiktoken").write_bytes(samples.small_ranks().replace(b"\n", b"\r\n"))
        files = load(tmp_path, pattern="gpt2")
        assert reference_engine(files, "text").encode(large_strings(["some text"])).ids.tolist() == samples.oracle(
            "gpt2-ranks"
        )("some text")


class TestNothingThere:
    @pytest.mark.parametrize(
        "path", ["gone.json", "gone/tokenizer.model", "./org/name", "../name", "a/b/c", "/gone", "~/gone", "org/name/"]
    )
    def test_a_path_is_not_taken_for_a_hub_id(self, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(
            TokenizerError, match=r"no tokenizer at .*Check the path, or make one: tokpress train-tokenizer"
        ):
            load(path)

    def test_an_unknown_user_is_no_crash(self) -> None:
        with pytest.raises(TokenizerError, match="no tokenizer at ~nobody-of-that-name/tok"):
            load("~nobody-of-that-name/tok")

    def test_an_empty_directory(self, tmp_path: Path) -> None:
        with pytest.raises(TokenizerError, match=r"no tokenizer in .*it holds none of tokenizer\.json, tekken\.json"):
            load(tmp_path)

    @pytest.mark.parametrize("spec", ["", "what is this?", "a--b", "-x"])
    def test_what_can_be_no_name(self, spec: str) -> None:
        with pytest.raises(TokenizerError, match=r"neither a file here nor a tokenizer on the hub .*Check the name"):
            load(spec)


class TestDamagedFiles:
    """Whatever is in a file, loading it ends, quickly, with a tokenizer or an error of ours."""

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\n",
            b"{",
            b"{}",
            b"[1]",
            b"word 1\n",
            b"IQ== 0\n",
            b"\0" * 10_000,
            b"\xff" * 10_000,
            b"{" * 10_000,
            b"a" * 10**6,
        ],
        ids=["empty", "newline", "brace", "object", "list", "text", "one-rank", "nul", "ff", "braces", "long-line"],
    )
    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "ranks.tiktoken"])
    def test_are_refused(self, tmp_path: Path, name: str, data: bytes) -> None:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TokenizerError):
            reference_engine(load(tmp_path / name, pattern="gpt2"), "text")


class TestOpenFiles:
    @pytest.mark.parametrize("name", ["cl100k", "gpt2-ranks", "sp-bpe-fallback-bare-identity", "bytes"])
    def test_what_a_store_keeps_is_the_same_tokenizer(self, tmp_path: Path, name: str) -> None:
        files = samples.sample(name).files
        assert open_files(files.kind, write_files(tmp_path, name), list(files.files)) == files


# --- the hub


@cache
def repository() -> dict[str, bytes]:
    return {
        "tokenizer.json": samples.sample("gpt2").files.files["tokenizer.json"],
        "tokenizer_config.json": json.dumps({"eos_token": "<|im_end|>"}).encode(),
        "model.safetensors": b"not for us",
    }


Served = Callable[[str], TokenizerFiles]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Loads from a hub of our own, with an empty cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with hub.serve({"org/model": repository(), "org/weights": {"model.safetensors": b""}}) as address:
        _use_hub(monkeypatch, address)
        yield load


def _use_hub(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """The library reads HF_ENDPOINT when it is imported."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)


def _refusing_address() -> str:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


class TestHub:
    def test_a_tokenizer_and_what_belongs_to_it(self, served: Served) -> None:
        files = served("org/model")
        assert {name: repository()[name] for name in files.files} == dict(files.files)
        assert sorted(files.files) == ["tokenizer.json", "tokenizer_config.json"]
        assert reference_engine(files, "text").info.eos_token == "<|im_end|>"

    def test_once_downloaded_no_network_is_needed(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        files = served("org/model")
        _use_hub(monkeypatch, _refusing_address())
        assert served("org/model") == files

    def test_a_directory_of_that_name_comes_first(
        self, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_files(tmp_path / "org" / "model", "cl100k")
        monkeypatch.chdir(tmp_path)
        assert served("org/model") == samples.sample("cl100k").files

    @pytest.mark.parametrize(
        ("repo", "message"),
        [
            (
                "org/unknown",
                r"(?s)'org/unknown' is neither a file here nor a tokenizer on the hub .*404.*Check the name",
            ),
            (hub.GATED, r"(?s)neither a file here nor .*for a gated one, log in first: hf auth login"),
            (hub.BROKEN, r"(?s)the hub cannot be reached .*500"),
            ("org/weights", r"the hub's 'org/weights' has no tokenizer\.json\. Give a path"),
        ],
    )
    def test_what_is_not_there(self, served: Served, repo: str, message: str) -> None:
        with pytest.raises(TokenizerError, match=message):
            served(repo)

    @pytest.mark.parametrize("repo", ["org/model", "gpt2-like"])
    def test_out_of_reach(self, served: Served, repo: str, monkeypatch: pytest.MonkeyPatch) -> None:
        _use_hub(monkeypatch, _refusing_address())
        with pytest.raises(
            TokenizerError, match=rf"the hub cannot be reached .*refused.*: hf download {repo} tokenizer\.json"
        ):
            served(repo)

    def test_the_address_is_that_of_hf_endpoint(self, tmp_path: Path) -> None:
        script = (
            "from tokpress.config import TokenizerConfig\n"
            "from tokpress.engines.load import load_files\n"
            "print(load_files(TokenizerConfig(spec='org/model')).fingerprint)\n"
        )
        with hub.serve({"org/model": repository()}) as address:
            environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
            run = subprocess.run(
                [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
            )
        expected = {name: data for name, data in repository().items() if name.endswith(".json")}
        assert run.stdout.strip() == TokenizerFiles("huggingface", expected).fingerprint
