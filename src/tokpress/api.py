"""The Python front door: the command line's options as keywords, and the same results.

In: paths and options. Out: a `Store`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Unpack

import msgspec

from tokpress.options import BuildOptions, PathLike, as_list, build_config
from tokpress.packing.plan import plan_problems
from tokpress.reference import documented
from tokpress.run.coordinator import build_share as run_share
from tokpress.run.coordinator import build_store, make_job
from tokpress.run.events import Listener, join
from tokpress.run.messages import Prepared
from tokpress.run.share import Share, parse_share
from tokpress.run.shared import Attempt
from tokpress.storage import open_storage
from tokpress.store.reader import Store, open_store
from tokpress.store.verify import Report, verify_store
from tokpress.view.progress import Progress, build_progress

if TYPE_CHECKING:
    from tokpress.run.projection import Projection


@documented
def build(
    inputs: PathLike | Sequence[PathLike] = (),
    *,
    tokenizer: PathLike,
    out: PathLike,
    overwrite: bool = False,
    seal: bool = False,
    executor: Literal["local", "ray"] = "local",
    address: str | None = None,
    reporter: Listener | None = None,
    progress: Progress = "auto",
    **options: Unpack[BuildOptions],
) -> Store:
    """Tokenize `inputs` into a store at `out`; called again, it goes on where it was stopped.

    `inputs`: files, directories, globs, or "-" for standard input; none with a `dataset`. `tokenizer`: tokenizer.json, a
    directory with one, SentencePiece .model, rank file, name of a tiktoken encoding, hub id, or "bytes". `out`: directory
    of the store.
    `overwrite`: replace a store that is there already. `seal`: only finish a store whose shares (`build_share`) are done.
    `executor`: "ray" for all machines of a Ray cluster (docs/scale.md); `address` is that of `ray.init`.
    `reporter` hears what happens, as typed events (docs/events.md): a function, or anything with `on(event)`;
    `tokpress.events.join` makes one of several.
    `progress`: True shows how far it is, in a notebook as a bar, in a script as a line; False never does; "auto" does where
    there is no `reporter`.

    The options are those of `tokpress build`; None is the default, sizes are bytes or like "4GB".

        store = tokpress.build(["data/*.jsonl.zst"], tokenizer="tokenizer.json", out="tokens", workers=2, keep=["id"])
    """
    config = build_config(tokenizer, options)
    shown = build_progress(progress, has_reporter=reporter is not None)
    if shown is not None:
        reporter = shown if reporter is None else join(reporter, shown)
    if executor == "ray":
        from tokpress.run.on_ray import build_on_ray

        return build_on_ray(as_list(inputs), out, config, address=address, overwrite=overwrite, reporter=reporter)
    return build_store(as_list(inputs), out, config, overwrite=overwrite, seal=seal, reporter=reporter)


def build_share(
    inputs: PathLike | Sequence[PathLike] = (),
    *,
    tokenizer: PathLike,
    out: PathLike,
    share: Share | str,
    reporter: Listener | None = None,
    **options: Unpack[BuildOptions],
) -> Attempt | None:
    """One machine's share of a build: "3/64", or "auto" in a Slurm array or a Kubernetes Indexed Job (docs/scale.md).

    `build`, called when all are done, does what is left and finishes the store. None: it is finished already.

    `inputs`, `tokenizer`, `out`, `reporter` and `options` are those of `build`, the same on every machine.

        tokpress.build_share("data/*.jsonl", tokenizer="tokenizer.json", out="tokens", share="0/2")  # on one machine
        tokpress.build_share("data/*.jsonl", tokenizer="tokenizer.json", out="tokens", share="1/2")  # on another one
        store = tokpress.build("data/*.jsonl", tokenizer="tokenizer.json", out="tokens")  # when both are done
    """
    chosen = parse_share(share, os.environ) if isinstance(share, str) else share
    return run_share(as_list(inputs), out, build_config(tokenizer, options), chosen, reporter=reporter)


def dry_run(
    inputs: PathLike | Sequence[PathLike] = (), *, tokenizer: PathLike, out: PathLike, **options: Unpack[BuildOptions]
) -> tuple[Prepared, Projection]:
    """What `build` would take, measured on a small piece of the inputs; nothing is written.

    `inputs`, `tokenizer`, `out` and `options` are those of `build`.

        prepared, projection = tokpress.dry_run("data/*.jsonl", tokenizer="tokenizer.json", out="tokens")
        projection.tokens, projection.disk_bytes
        projection.workers  # seconds and memory for 1, 2, 4 ... workers
    """
    from tokpress.run.projection import project

    storage = open_storage(out)
    return project(make_job(as_list(inputs), storage, build_config(tokenizer, options)), storage)


def verify(
    store: PathLike, *, deep: bool = False, deep_docs: int = 200, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Check every file of a store, and its packing plans; the report names each that is damaged.

    `deep`: also read so many documents of each split again from the sources, and encode them with the reference.
    `progress` is told the bytes just checked and those of the whole store.

    `deep_docs`: how many documents of each split `deep` reads again.

        report = tokpress.verify("tokens")
        assert report.ok, report.problems
    """
    report = verify_store(store, progress=progress)
    if deep and report.ok:
        report = _encoded_again(report, open(report.path), deep_docs)
    if report.ok:
        report = msgspec.structs.replace(report, problems=plan_problems(open_storage(report.path)))
    return report


def _encoded_again(report: Report, store: Store, docs: int) -> Report:
    from tokpress.run.deep import reencode_sample

    samples = [reencode_sample(store.split(name), docs) for name in store.manifest.splits]
    return msgspec.structs.replace(
        report,
        problems=[problem for sample in samples for problem in sample.problems],
        reencoded_docs=sum(sample.docs for sample in samples),
        not_reencoded=next((sample.why_not for sample in samples if sample.why_not), ""),
    )


def open(path: PathLike, split: str = "train") -> Store:  # noqa: A001 - called as tokpress.open
    """A finished store, memory-mapped.

    `path`: a directory, or s3://, gs://, az://. `split`: which of its splits is meant; `store.split(name)` gives
    another one.

        store = tokpress.open("tokens")
        len(store), store[0], store.split("train").num_tokens
    """
    return open_store(path, split)
