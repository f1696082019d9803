"""The watch inside a user's process: every call counted once, at the user's own line, and nothing changed for the script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokpress.diagnose import observe as observe_module
from tokpress.diagnose.observe import Watched

from .conftest import Run
from .scripts import line_of

INSIDE = Path(observe_module.__file__).parent / "inside"


def of_kind(watched: Watched, kind: str) -> list[tuple[int, int, int]]:
    """Line, calls, texts."""
    return [(line.line, line.calls, line.texts) for line in watched.lines if line.kind == kind]


HUGGING_FACE = "import tokenizers; t = tokenizers.Tokenizer.from_file(sys.argv[1])"
RANKS = "{bytes([i]): i for i in range(256)}"
TIKTOKEN = f"import tiktoken; t = tiktoken.Encoding('x', pat_str='.', mergeable_ranks={RANKS}, special_tokens={{}})"
SENTENCEPIECE = "import sentencepiece; t = sentencepiece.SentencePieceProcessor(model_file=sys.argv[2])"
PARALLEL = "import tokpress; t = tokpress.ParallelTokenizer(sys.argv[1], eos=False)"


class TestTokenizers:
    @pytest.mark.parametrize(
        ("setup", "calls"),
        [
            (HUGGING_FACE, {"t.encode('a')": 1, "t.encode_batch(['a', 'b'])": 2}),
            (TIKTOKEN, {"t.encode('ab')": 1, "t.encode_ordinary_batch(['ab', 'b'])": 2}),
            (SENTENCEPIECE, {"t.encode('a')": 1, "t.EncodeAsIds('a')": 1, "t.encode_as_ids(['a', 'b', 'c'])": 3}),
            (PARALLEL, {"t(['ab', 'c'])": 2}),
        ],
        ids=["tokenizers", "tiktoken", "sentencepiece", "tokpress"],
    )
    def test_are_counted_at_the_line_that_calls_them(
        self, run: Run, bpe: Path, spm: Path, setup: str, calls: dict[str, int]
    ) -> None:
        script = ["import sys", setup, "for _ in range(3):", *(f"    {call}" for call in calls)]
        (watched,) = run("\n".join(script), bpe, spm).watched
        in_the_loop = [line for line in of_kind(watched, "tokenize") if line[0] >= 4]  # to make one may take some, too
        assert in_the_loop == [(number, 3, 3 * texts) for number, texts in enumerate(calls.values(), start=4)]
        assert 0 < sum(line.seconds for line in watched.lines) < watched.seconds

    def test_in_another_thread_are_no_part_of_the_loop(self, run: Run, bpe: Path) -> None:
        script = """
import sys, threading, tokenizers
t = tokenizers.Tokenizer.from_file(sys.argv[1])
thread = threading.Thread(target=t.encode, args=("text",))
thread.start(); thread.join()
"""
        (watched,) = run(script, bpe).watched
        assert watched.lines == []
        assert [(line.kind, line.calls, line.texts) for line in watched.beside] == [("tokenize", 1, 1)]

    def test_in_another_thread_before_the_first_step_do_not_count(self, run: Run, bpe: Path) -> None:
        script = """
import sys, threading, tokenizers
t = tokenizers.Tokenizer.from_file(sys.argv[1])
watch = next(finder._watch for finder in sys.meta_path if hasattr(finder, "_watch"))
for texts in (["a", "b"], ["c"]):
    thread = threading.Thread(target=t.encode_batch, args=(texts,))
    thread.start(); thread.join()
    watch.stepped(watch)
"""
        (watched,) = run(script, bpe).watched
        assert watched.steps == 1
        assert [(line.calls, line.texts) for line in watched.beside] == [(1, 1)]

    def test_an_error_of_theirs_is_passed_on(self, run: Run, bpe: Path) -> None:
        script = """
import sys, tokenizers
t = tokenizers.Tokenizer.from_file(sys.argv[1])
try:
    t.encode(5)
except TypeError:
    sys.exit(7)
"""
        observed = run(script, bpe)
        assert observed.exit_code == 7
        assert of_kind(observed.watched[0], "tokenize") == [(5, 1, 1)]


READS = {  # a line of a loop -> how often it reads a result in 10 steps
    "loss.item()": 10,
    "float(loss), loss.tolist()": 20,
    "loss.detach().cpu()": 10,
    "loss.item() if step % 5 == 0 else None": 2,
    "if loss > 0: pass": 0,  # a truth value: not a float
    "torch.arange(3).tolist()": 0,  # ids, lengths, ... never were on the device
    "torch.nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)": 0,  # what torch reads is not the user's
}
LOOP = """
import torch
w = torch.nn.Parameter(torch.ones(3))
optimizer, other = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([w], lr=0.1)
w.sum().item()
for step in range(11):
    loss = (w * w).sum()
    loss.backward()
    optimizer.step()
    other.step()
    {reads}
w.sum().item()
"""


class TestLoop:
    """Between the first and the last step of one optimizer."""

    def test_reads_of_results_are_counted(self, run: Run) -> None:
        script = LOOP.format(reads="\n    ".join(READS))
        (watched,) = run(script).watched
        assert watched.steps == 10
        assert watched.device == "cpu"
        assert of_kind(watched, "sync") == [(line_of(script, read), calls, 0) for read, calls in READS.items() if calls]

    def test_loaders_are_timed_without_the_tokenizing_in_them(self, run: Run, bpe: Path) -> None:
        script = """
import sys, time, tokenizers, torch
t = tokenizers.Tokenizer.from_file(sys.argv[1])
class Texts(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, i):
        time.sleep(0.001)
        return len(t.encode("words and words " * 500))
w = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([w], lr=0.1)
for batch in torch.utils.data.DataLoader(Texts(), batch_size=4, num_workers=int(sys.argv[2])):
    w.grad = torch.ones(3)
    optimizer.step()
"""
        (watched,) = run(script, bpe, 0).watched
        assert of_kind(watched, "tokenize") == [(8, 36, 36)]
        assert of_kind(watched, "data") == [(11, 9, 0)]
        assert sum(line.seconds for line in watched.lines) < watched.seconds
        trainer, worker = sorted(run(script, bpe, 1).watched, key=lambda watched: -watched.steps)
        assert of_kind(trainer, "tokenize") == []
        assert of_kind(trainer, "data") == [(11, 9, 0)]
        assert of_kind(worker, "tokenize") == [(8, 40, 40)]

    def test_tokpress_s_own_loader_is_timed(self, run: Run, bytes_store: Path) -> None:
        script = """
import sys, torch, tokpress
w = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([w], lr=0.1)
for batch in tokpress.Loader(tokpress.PretokenizedDataset(sys.argv[1], seq_len=16), batch_size=8):
    w.grad = torch.ones(3)
    optimizer.step()
"""
        (watched,) = run(script, bytes_store).watched
        assert watched.steps > 5
        assert {(line.kind, line.line) for line in watched.lines} == {("data", 5)}


class TestUnchanged:
    """The script is the one that it was."""

    def environment(self, directory: Path, **more: str) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(INSIDE), os.environ.get("PYTHONPATH")]))
        return os.environ | {"PYTHONPATH": path, "TOKPRESS_WATCH": str(directory)} | more

    def test_its_path_and_modules(self, tmp_path: Path) -> None:
        code = "import sys, json; print(json.dumps([sys.path, sorted(sys.modules)]))"
        plain = json.loads(subprocess.check_output([sys.executable, "-c", code]))
        path, modules = json.loads(
            subprocess.check_output([sys.executable, "-c", code], env=self.environment(tmp_path))
        )
        assert path == plain[0]
        assert {"torch", "tokenizers", "numpy", "tokpress", "multiprocessing"}.isdisjoint(modules)

    def test_its_own_sitecustomize_runs(self, tmp_path: Path) -> None:
        (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'")
        environment = self.environment(tmp_path)
        environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
        code = "import sys; print(mine, sys.modules['sitecustomize'].__file__)"
        said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert said.split() == ["ran", str(tmp_path / "sitecustomize.py")]

    def test_a_library_that_is_made_otherwise_is_named(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "tiktoken").mkdir()
        (tmp_path / "tiktoken" / "__init__.py").write_text("")
        (tmp_path / "tiktoken" / "core.py").write_text("")
        script = """
import sys, tokenizers, tiktoken.core
tokenizers.Tokenizer(tokenizers.models.BPE()).encode("")
"""
        observed = run(script)
        assert observed.exit_code == 0
        assert [missed.partition(":")[0] for missed in observed.watched[0].missed] == ["tiktoken.core"]

    def test_processes_that_do_nothing_of_it_report_nothing(self, run: Run) -> None:
        assert run("print('nothing to see')").watched == []
