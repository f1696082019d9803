"""Machines that give less than one is used to: no rights, few handles, little memory, no links, a calendar that jumps."""

from __future__ import annotations

import hashlib
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokpress
from attack.confined import (
    NOBODY,
    Limits,
    as_nobody,
    in_public,
    is_root,
    limited,
    mounted,
)
from attack.scene import Scene
from attack.table import Case, Must, Outcome, refused, says, sound

Make = Callable[[Scene], Outcome]
_MB = 10**6
_FILES, _SPACE, _PROCESSES = resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_NPROC
_SMALL = ("--workers", "2", "--unit-size", "2000", "--shard-size", "1000")


def _digest(store: Path) -> str:
    """Of all tokens."""
    digest = hashlib.sha256()
    for path in sorted((store / "shards").glob("*.bin")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _expected(scene: Scene, corpus: Path) -> str:
    made = scene.process("build", corpus, "--tokenizer", "bytes", "--out", scene.path / "expected", *_SMALL)
    assert made.code == 0, made
    return _digest(scene.path / "expected")


# Another user


def _as_nobody(*words: str, umask: str = "022", **environment: Any) -> Make:
    """`tokpress WORDS`, where CORPUS and OUT stand for what nobody may use, OTHERS for a store that is only readable."""

    def run(scene: Scene) -> Outcome:
        place = in_public(scene)
        corpus = scene.corpus()
        (place / "corpus.jsonl").write_bytes(corpus.read_bytes())
        others = Path(f"{place}-others")
        scene.to_remove.append(others)
        others.mkdir(mode=0o755)
        tokpress.build(corpus, tokenizer="bytes", out=others / "store", shard_size=500)
        secret = place / "secret.jsonl"
        secret.write_bytes(corpus.read_bytes())
        secret.chmod(0o600 if is_root() else 0)
        if not is_root():
            others.chmod(0o555)
            (others / "store").chmod(0o555)
        there = {"CORPUS": place / "corpus.jsonl", "OUT": scene.out, "OTHERS": others / "store", "SECRET": secret}
        there |= {"CLOSED": others / "new"}
        arguments = [there.get(word, word) for word in words]
        return scene.process(*arguments, cwd=place, before=as_nobody(scene, umask), **environment)

    return run


_BUILD = ("build", "CORPUS", "--tokenizer", "bytes", "--out", "OUT")
AS_NOBODY: dict[str, tuple[Make, Must]] = {
    "builds": (_as_nobody(*_BUILD, *_SMALL), sound(50)),
    "has a home that is not there": (_as_nobody(*_BUILD, HOME="/nonexistent"), sound(50)),
    "has a home that is only readable": (_as_nobody(*_BUILD, HOME="/usr"), sound(50)),
    "has no directory for temporary files": (_as_nobody(*_BUILD, TMPDIR="/nonexistent"), sound(50)),
    "writes where it may not": (
        _as_nobody("build", "CORPUS", "--tokenizer", "bytes", "--out", "CLOSED"),
        refused("ermission denied|cannot be written", "-others", code=1),
    ),
    "reads what it may not": (
        _as_nobody("build", "SECRET", "--tokenizer", "bytes", "--out", "OUT"),
        refused("secret.jsonl", "ermission denied", code=1),
    ),
    "goes on with another's store": (
        _as_nobody("build", "CORPUS", "--tokenizer", "bytes", "--out", "OTHERS"),
        says("ermission denied|differ|another", code=None),
    ),
    "overwrites another's store": (
        _as_nobody("build", "CORPUS", "--tokenizer", "bytes", "--out", "OTHERS", "--overwrite"),
        says("ermission denied", code=1),
    ),
    "packs another's store": (
        _as_nobody("pack", "OTHERS", "--seq-len", "8", "--method", "bestfit"),
        says("ermission denied", code=1),
    ),
    "verifies another's store": (_as_nobody("verify", "OTHERS"), says("is sound")),
    "inspects another's store": (_as_nobody("inspect", "OTHERS"), says("50")),
    "exports another's store, whose files it may not link": (
        _as_nobody("export", "OTHERS", "--to", "nanogpt", "--out", "OUT"),
        says("written|linked"),
    ),
    "imports what it just wrote": (
        _as_nobody("export", "OTHERS", "--to", "megatron", "--out", "OUT"),
        says("megatron"),
    ),
    "may not even use what it makes": (_as_nobody(*_BUILD, umask="777"), refused("ermission denied", code=1)),
}


def _no_home(scene: Scene) -> Outcome:
    words = [sys.executable, "-m", "tokpress", "build", scene.corpus(), "--tokenizer", "bytes", "--out", scene.out]
    return scene.shell(["env", "-u", "HOME", "-u", "TMPDIR", "-u", "USER", *map(str, words)])


# Limits of a process


def _with_limits(limits: Limits, *options: str, files: int = 1, user: bool = False) -> Make:
    def run(scene: Scene) -> Outcome:
        place = in_public(scene) if user else scene.path
        inputs = place / "inputs"
        inputs.mkdir()
        for number in range(files):
            text = scene.corpus(40, f"{number}.jsonl").read_bytes()
            (inputs / f"{number}.jsonl").write_bytes(text)
        if user and is_root():
            for path in (inputs, *inputs.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        if user:  # the limit comes last: it counts all that this user runs, also what comes before the command
            before = [*as_nobody(scene), "prlimit", f"--nproc={limits[_PROCESSES]}"]
            return scene.build(inputs, *options, process=True, before=before, cwd=place)
        return scene.build(inputs, *options, process=True, preexec=limited(limits), cwd=place)

    return run


def _works_or_says(*words: str) -> Must:
    """Either is right, as long as nothing hangs, nothing is half done, and an error says what there was too little of."""

    def check(scene: Scene, outcome: Outcome) -> None:
        (sound() if outcome.code == 0 else refused(*words))(scene, outcome)

    return check


def _loaded_with_few_handles(scene: Scene) -> Outcome:
    store = scene.built(shard_size=40)
    script = (
        "import sys, tokpress\n"
        "data = tokpress.PretokenizedDataset(sys.argv[1], seq_len=4, output='numpy')\n"
        "print(sum(len(batch['input_ids']) for batch in tokpress.Loader(data, batch_size=2, max_epochs=1)), 'sequences')\n"
    )
    assert len(store.manifest.splits["train"].shards) > 30
    return scene.shell([sys.executable, "-c", script, str(scene.out)], preexec=limited({resource.RLIMIT_NOFILE: 24}))


def _cut_short_by_a_limit_on_files(scene: Scene) -> Outcome:
    corpus = scene.corpus(2000)
    expected = _expected(scene, corpus)
    words = (corpus, *_SMALL, "--shard-size", "200000", "--unit-size", "1000000")
    first = scene.build(*words, process=True, preexec=limited({resource.RLIMIT_FSIZE: 20_000}))
    assert first.code == 1, first
    assert "oo large" in first.err, first
    second = scene.build(corpus, *_SMALL, "--overwrite", process=True)
    assert _digest(scene.out) == expected
    return second


# Mounts


def _small_shm(scene: Scene) -> Outcome:
    script = (
        "mount -t tmpfs -o size=16k tmpfs /dev/shm && exec $TOKPRESS build $1 --tokenizer bytes --out $2 --workers 2"
    )
    return mounted(scene, script, scene.corpus(), scene.out)


def _shm_of_a_loader(scene: Scene) -> Outcome:
    scene.built()
    script = (
        "import sys, tokpress\n"
        "data = tokpress.PretokenizedDataset(sys.argv[1], seq_len=8)\n"
        "print(sum(len(batch['input_ids']) for batch in tokpress.Loader(data, batch_size=2, max_epochs=1)), 'sequences')\n"
    )
    shell = f'mount -t tmpfs -o size=4k tmpfs /dev/shm && exec {sys.executable} -c "$1" $2'
    return mounted(scene, shell, script, scene.out)


def _full_disk(options: str) -> Make:
    """A disk that is too small; then a larger one, and the same command."""

    def run(scene: Scene) -> Outcome:
        corpus = scene.corpus(3000)
        expected = _expected(scene, corpus)
        place = scene.path / "disk"
        place.mkdir()
        build = f"$TOKPRESS build $1 --tokenizer bytes --out $2/store {' '.join(_SMALL)}"
        script = (
            f"mount -t tmpfs -o {options} tmpfs $2 && cd $2\n"
            f"{build}; echo first $? >&2\n"
            "mount -o remount,size=100m,nr_inodes=0 $2\n"
            f"{build} && cp -r $2/store $3"
        )
        outcome = mounted(scene, script, corpus, place, scene.out)
        assert "first 1" in outcome.err, outcome
        assert "No space left on device" in outcome.err, outcome
        assert outcome.code or _digest(scene.out) == expected
        return outcome

    return run


CASES = [
    *(Case(f"nobody {name}", make, must) for name, (make, must) in AS_NOBODY.items()),
    Case("no home and no user", _no_home, sound(50)),
    *(
        Case(
            f"{most} handles, {files} files",
            _with_limits({_FILES: most}, *_SMALL, "--val-fraction", "0.2", files=files),
            _works_or_says("ulimit -n|oo many open files"),
        )
        for most in (10, 14, 20, 32, 64)
        for files in (1, 100)
    ),
    Case("a loader of more shards than handles", _loaded_with_few_handles, says("sequences")),
    *(
        Case(
            f"{megabytes} MB of address space",
            _with_limits({_SPACE: megabytes * _MB}, "--workers", "1"),
            _works_or_says("memory|Memory|dies each time"),
        )
        for megabytes in (250, 400, 700, 1000, 2000, 4000)  # with less NumPy itself cannot be loaded
    ),
    *(
        Case(
            f"{most} processes and threads of a user",
            _with_limits({_PROCESSES: most}, *_SMALL, user=True),
            _works_or_says("ulimit -u|temporarily unavailable|thread|dies each time"),
        )
        for most in (5, 10, 30, 100)  # with fewer NumPy itself cannot be loaded
    ),
    Case("files of 20 kB at most, then of any size", _cut_short_by_a_limit_on_files, sound(2000)),
    Case("a small /dev/shm", _small_shm, sound(50)),
    Case("a loader with hardly a /dev/shm", _shm_of_a_loader, says("sequences")),
    Case("a disk that is full, then larger", _full_disk("size=60k"), sound(3000)),
]
