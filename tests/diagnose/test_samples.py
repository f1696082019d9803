"""py-spy's stacks: which kind of work each is, and the user's own lines."""

from __future__ import annotations

from tokpress.diagnose.samples import read_samples

SITE = "/usr/lib/python3/site-packages"


def row(*frames: str, count: int = 1, thread: str = "MainThread") -> str:
    return f"thread (12): {thread};" + ";".join(f"f ({frame})" for frame in frames) + f" {count}"


def test_a_stack_is_judged_by_the_libraries_in_it() -> None:
    rows = [
        row("/home/me/train.py:5", f"{SITE}/torch/nn/modules/module.py:10", "/home/me/model.py:3", count=10),
        row("/home/me/train.py:6", f"{SITE}/torch/_tensor.py:10", f"{SITE}/torch/autograd/graph.py:1", count=5),
        row("/home/me/train.py:7", f"{SITE}/torch/utils/data/dataloader.py:10", "/home/me/data.py:1", count=4),
        row("/home/me/train.py:7", f"{SITE}/datasets/iterable_dataset.py:10", count=3),
        row("/home/me/train.py:8", f"{SITE}/transformers/tokenization_utils.py:1", count=2),
        row("/home/me/train.py:9"),
        row("/home/me/torch/train.py:9"),  # a directory of this name is no library
    ]
    samples = read_samples("\n".join(rows))
    assert samples.total == 26
    assert samples.kinds == {"compute": 15, "data": 7, "tokenize": 2, "other": 2}
    assert samples.lines[:3] == [("/home/me/model.py", 3, 10), ("/home/me/train.py", 6, 5), ("/home/me/data.py", 1, 4)]


def test_watched_calls_have_been_timed_already() -> None:
    rows = [
        row("/a/train.py:5", "/x/tokpress_watch.py:80", f"{SITE}/sentencepiece/__init__.py:1"),
        row("/a/train.py:6"),
    ]
    samples = read_samples("\n".join(rows))
    assert (samples.total, samples.kinds) == (2, {"other": 1})
    assert [line for _, line, _ in samples.lines] == [5, 6]


def test_only_the_thread_that_trains_counts() -> None:
    samples = read_samples(
        "\n".join([row("/a/b.py:1", thread="Thread-1 (f)"), row("/a/b.py:2", thread="tokpress-batch_0")])
    )
    assert (samples.total, samples.kinds, samples.lines) == (0, {}, [])


def test_what_is_no_stack_is_passed_over() -> None:
    assert read_samples("").total == 0
    assert read_samples("thread (1): MainThread 114").total == 0  # at the interpreter's end
    assert read_samples("nonsense\n\nthread (1): MainThread;f (a.py:3) many").total == 0


def test_names_with_spaces_and_brackets() -> None:
    samples = read_samples("thread (1): MainThread;C.m.<locals>.<listcomp> (/my dir/a (2).py:30) 7")
    assert samples.lines == [("/my dir/a (2).py", 30, 7)]
