"""The whole build: find the inputs, prove the engine, run what is left to do, seal the store.

In: what a user named and a `BuildConfig`. Out: a finished `Store`. Run again it goes on where it was stopped: a shard exists
when its receipt exists, a store when its manifest does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import time

import msgspec

import tokpress
from tokpress.config import BuildConfig, reject_limit
from tokpress.documents.frame import frame_for
from tokpress.documents.splits import VAL, by_name, check_split
from tokpress.documents.templates import check_template, load_template, reading
from tokpress.engines.load import load_files
from tokpress.engines.table import engine_names
from tokpress.errors import StoreError, UsageError
from tokpress.machine import cpu_sets, usable_cores
from tokpress.options import check_bounds
from tokpress.records import STDIN, Input
from tokpress.run import events
from tokpress.run.clusters.base import Cluster
from tokpress.run.clusters.processes import ProcessCluster
from tokpress.run.events import Listener, Quiet, Reporter, Timed, join
from tokpress.run.member import Member
from tokpress.run.messages import Job
from tokpress.run.plan import as_planned, default_unit_bytes, make_plan, val_below_of
from tokpress.run.share import Share
from tokpress.run.shared import Attempt, find_run
from tokpress.run.status import check_all_done
from tokpress.run.writing import finish_store, write_units
from tokpress.sources.datasets import use_dataset
from tokpress.sources.files import Argument, discover
from tokpress.sources.opening import is_inherited
from tokpress.storage import open_storage
from tokpress.storage.base import Storage
from tokpress.store import unfinished
from tokpress.store.manifest import read_manifest
from tokpress.store.reader import Store

SMALL_BYTES = 32 * 10**6  # one worker is enough
# Inputs up to this size are encoded inside this process, where nobody is watched: none, but in tests with many tiny stores.
INSIDE_BYTES = 0


def build_store(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | Storage,
    config: BuildConfig,
    *,
    overwrite: bool = False,
    seal: bool = False,
    reporter: Listener | None = None,
) -> Store:
    """`seal`: no unit is to be left."""
    storage = open_storage(out)
    with _telling(storage, reporter) as told:
        return _build(inputs, storage, config, told, overwrite=overwrite, seal=seal)


def build_share(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | Storage,
    config: BuildConfig,
    share: Share,
    *,
    reporter: Listener | None = None,
) -> Attempt | None:
    """One machine's share of a build. None: the store is finished already."""
    storage = open_storage(out)
    with _telling(storage, reporter) as told:
        return _build_share(inputs, storage, config, told, share)


@contextmanager
def _telling(storage: Storage, reporter: Listener | None) -> Iterator[Reporter]:
    told = Timed(join(reporter or Quiet()))
    told.on(events.Began(started_at=time(), store=storage.url, version=tokpress.__version__))
    try:
        yield told
    except BaseException as error:  # also an interruption: whoever listens is to know that nothing follows
        told.on(events.Failed(error=type(error).__name__, message=str(error)))
        raise


def _build(
    inputs: Sequence[str | os.PathLike[str]],
    storage: Storage,
    config: BuildConfig,
    reporter: Reporter,
    *,
    overwrite: bool,
    seal: bool,
) -> Store:
    if seal:
        check_all_done(storage)
    job = make_job(inputs, storage, config)
    reporter.on(events.InputsFound.of(job.inputs))
    from_pipe = any(source.path == STDIN for source in job.inputs)
    if not overwrite and not from_pipe and find_run(storage) is not None:
        return _finish(job, storage, reporter)
    with storage.lock():
        old = None if overwrite else unfinished.stored_plan(storage)
        job = msgspec.structs.replace(job, inputs=as_planned(job.inputs, old))
        is_known = old is not None and old.tokenizer.fingerprint == job.files.fingerprint
        if old is not None and is_known:
            # The tokenizer is known: what else differs, or that all is done, can be said before it is loaded.
            frame = frame_for(config.tokenizer, old.tokenizer)
            planned = make_plan(job.inputs, job.config, old.tokenizer, frame, val_below_of(old))
            unfinished.check_same_plan(storage, planned)
            if unfinished.is_finished(storage):
                reporter.on(events.AlreadyFinished(store=storage.url))
                return Store(storage, read_manifest(storage))
        if storage.has_lock or (old is not None and not is_known):  # which is refused
            with unfinished.tidied(storage), cluster_for(job, storage, resuming=old is not None) as cluster:
                return finish_store(job, storage, write_units(job, storage, cluster, reporter, old), reporter)
        return _finish(job, storage, reporter, resuming=old is not None, overwrite=overwrite)


def _build_share(
    inputs: Sequence[str | os.PathLike[str]], storage: Storage, config: BuildConfig, reporter: Reporter, share: Share
) -> Attempt | None:
    if config.read.limit is not None:
        raise UsageError("--limit needs the units one after the other, and --share has them done by many. Choose one.")
    job = make_job(inputs, storage, config)
    reporter.on(events.InputsFound.of(job.inputs))
    if any(source.path == STDIN for source in job.inputs):
        raise UsageError(
            "standard input cannot be shared: only one process can read it. Name files, or leave --share out."
        )
    if unfinished.is_finished(storage):
        return None
    resuming = unfinished.stored_plan(storage) is not None
    with cluster_for(job, storage, resuming=resuming) as cluster, Member(storage, share) as member:
        write_units(job, storage, cluster, reporter, None, member)
        return member.attempt


def _finish(job: Job, storage: Storage, reporter: Reporter, *, resuming: bool = True, overwrite: bool = False) -> Store:
    """What no share has done, and the manifest. Another machine may do the same: then one of them is first."""
    if overwrite or not unfinished.is_finished(storage):
        try:
            member = Member(storage, overwrite=overwrite)
            with cluster_for(job, storage, resuming=resuming) as cluster, member:
                run = write_units(job, storage, cluster, reporter, None, member)
                return finish_store(job, storage, run, reporter, member)
        except (OSError, StoreError):
            if overwrite or not unfinished.is_finished(storage):
                raise
    unfinished.end_run(storage)
    reporter.on(events.AlreadyFinished(store=storage.url))
    return Store(storage, read_manifest(storage))


def make_job(inputs: Sequence[str | os.PathLike[str]], storage: Storage, config: BuildConfig) -> Job:
    """What is to be done, after all that can be checked without reading text was checked."""
    check_options(config, [os.fspath(argument) for argument in inputs])
    unfinished.check_output(storage)
    given, read = use_dataset(inputs, config.read, has_template=config.template.makes_text)
    config = msgspec.structs.replace(config, read=read)
    out, named = storage.url, by_name(config.split)
    found = [*discover(given, reading(config), out=out, named=named), *_val_inputs(given, config, out)]
    files = load_files(config.tokenizer)
    load_template(config.template, files, None, found)  # what is wrong with it is said now
    return Job(url=storage.url, config=config, inputs=found, files=files)


def _val_inputs(inputs: Sequence[Argument], config: BuildConfig, out: str) -> list[Input]:
    if not config.split.val_inputs:
        return []
    read = reading(config)
    both = [*inputs, *config.split.val_inputs]
    val = discover(config.split.val_inputs, read, out=out)
    if len(discover(both, read, out=out)) < len(discover(inputs, read, out=out)) + len(val):
        raise UsageError("a file is named as an input and with --val-inputs, too. It can be in one split only.")
    return [msgspec.structs.replace(source, split=VAL) for source in val]


def work_for(job: Job, storage: Storage, member: Member, reporter: Reporter) -> None:
    """As one of several machines, which is told what to do."""
    with cluster_for(job, storage, resuming=True) as cluster, member:
        write_units(job, storage, cluster, reporter, None, member)


def cluster_for(job: Job, storage: Storage, *, resuming: bool = False, most: int | None = None) -> Cluster:
    """Processes, which can be watched: one is enough for little, and only one can read a pipe. Inside this process only what
    a caller made its standard input that no other process can read. `most`: workers, whatever was asked for."""
    resources = job.config.resources
    size = sum(source.size for source in job.inputs)
    from_pipe = any(source.path == STDIN for source in job.inputs)
    inside = size < INSIDE_BYTES and resources.workers in (None, 1) and not resuming
    if inside or (from_pipe and not is_inherited(sys.stdin)):
        from tokpress.run.clusters.inline import (
            InlineCluster,  # it brings all that a worker needs; else only workers do
        )

        return InlineCluster(job, storage)
    alone = from_pipe or (resources.workers is None and size < SMALL_BYTES)
    count = 1 if alone else min(most or resources.workers or usable_cores(), _most_units(job))
    return ProcessCluster(job, count, pin=cpu_sets(resources.pin))


def _most_units(job: Job) -> int:
    """No more workers are started than there can be units."""
    unit_bytes = job.config.store.unit_bytes or default_unit_bytes(job.inputs)
    return len(job.inputs) + sum(source.size for source in job.inputs) // unit_bytes


_KINDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "True or False", "array": "a list"}


def _in_words(what: str) -> str:
    """What msgspec says of a wrong type, for people."""
    wrong = re.fullmatch(r"Expected `(\w+)(?: \| \w+)*`, got `(\w+)`", what)
    if not wrong or not {wrong[1], wrong[2]} <= _KINDS.keys():
        return what
    return f"it is {_KINDS[wrong[2]]}. Give {_KINDS[wrong[1]]}"


def check_options(config: BuildConfig, inputs: Sequence[str] = ()) -> None:
    """An option that makes no sense is an error now, not in an hour."""
    try:
        msgspec.convert(msgspec.to_builtins(config), BuildConfig)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        name = where.rstrip("`").rpartition(".")[2]
        raise UsageError(
            f"{name or 'an option'} cannot be that: {_in_words(what)}. See: tokpress build --help"
        ) from None
    if config.tokenizer.engine not in engine_names():
        raise UsageError(
            f"--engine {config.tokenizer.engine!r} is not known. Choose one of {', '.join(engine_names())}."
        )
    reject_limit(config.check.max_rejects, 0)
    check_bounds(config)
    check_template(config.template)
    check_split(config.split, [*inputs, *config.split.val_inputs])
    read = reading(config)
    named = [*([read.text_field] if read.kind == "text" else []), *read.required, *config.read.keep]
    if len(set(named)) < len(named):
        raise UsageError("--keep names a field twice, or the text itself. Name each field to keep once.")
