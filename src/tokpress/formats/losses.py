"""What a reader will lose of an export, counted before anything is written.

In: an export. Out: a `Loss` for each split and kind: tokens that stand in no row, tokens whose loss the trainer changes,
bounds of documents that it finds by EOS, splits too small to start from. With `--for` an export is refused if the tokens in
the loss would be others than the store's, unless `--lossy` says that this is known.
"""

from __future__ import annotations

import numpy as np

from tokpress.errors import UsageError
from tokpress.formats.base import Export, Loss, has_mask, shards_of
from tokpress.formats.rows import Sequences
from tokpress.formats.trainers import check_trainer, find_trainer
from tokpress.store.reader import Store

_BY_EOS = (
    "dolma",
    "nanogpt",
    "llmc",
)  # readers that find documents by EOS: OLMo-core, and those that look for any at all
_BY_FILE = ("megatron", "datatrove", "dolma", "nanogpt", "llmc")  # readers that need a sequence in every file
_SMALL_TOKENS = 2**14
_CONTEXT_TOKENS = 2048  # of LLM Foundry's own configurations


def find_losses(export: Export) -> list[Loss]:
    """Raises UsageError if labelled tokens would differ, and that was not asked for."""
    options = export.options
    if options.trainer:
        check_trainer(options.trainer, options.to, options.seq_len, masked=any(map(has_mask, export.splits.values())))
    found = [loss for store in export.splits.values() for loss in _of_split(export, store)]
    labels = [loss for loss in found if loss.loss_tokens]
    bounds = [loss for loss in found if loss.kind == "bounds-by-eos"]
    if bounds and options.trainer and not options.lossy:
        said = "; ".join(str(loss) for loss in bounds)
        raise UsageError(f"--for {options.trainer} would cut documents: {said}. {find_trainer(options.trainer).bounds}")
    if labels and options.trainer and not options.lossy:
        said = "; ".join(str(loss) for loss in labels)
        raise UsageError(
            f"--for {options.trainer} would not have loss on the tokens that the store has: {said}. "
            "Say --lossy if it may be so."
        )
    return found


def _of_split(export: Export, store: Store) -> list[Loss]:
    options, split = export.options, store.split_name
    found: list[Loss] = []
    if options.seq_len is not None and options.to != "litdata":
        found += _cut(export, store)
    if options.to == "bridge":
        found += _after_eos(store)
    if options.trainer == "llm-foundry" and options.seq_len is None:
        found += _of_turns(store)
    if options.to in _BY_EOS and options.seq_len is None:
        found += _bounds(store)
    if options.to == "mds" and options.seq_len is None and not options.trainer:
        found += _beyond_a_context(store)
    if options.to == "mds" and has_mask(store) and not options.trainer:
        detail = "loss_mask is a column of its own: LLM Foundry does not read it. For that: --for llm-foundry"
        found.append(Loss(split=split, kind="mask-not-read", tokens=0, detail=detail))
    if options.to == "litdata" and store.num_tokens < (options.seq_len or 1):
        detail = f"{store.num_tokens:,} tokens make no block of {options.seq_len or 1:,}: there is nothing to read"
        found.append(Loss(split=split, kind="too-small", tokens=store.num_tokens, detail=detail))
    if options.to in _BY_FILE and options.seq_len is None and store.num_tokens < _SMALL_TOKENS:
        detail = f"{store.num_tokens:,} tokens: a reader whose batch of sequences is larger cannot start"
        found.append(Loss(split=split, kind="too-small", tokens=store.num_tokens, detail=detail))
    return found


def _beyond_a_context(store: Store) -> list[Loss]:
    """LLM Foundry reads as much of a document as its model's context holds."""
    lengths = store.doc_lengths()
    lost = int(np.maximum(lengths - _CONTEXT_TOKENS, 0).sum())
    if not lost:
        return []
    detail = (
        f"stand beyond the first {_CONTEXT_TOKENS:,} of their document: LLM Foundry drops what is beyond max_seq_len. "
        "Say how long it is: --seq-len"
    )
    return [Loss(split=store.split_name, kind="tokens-cut", tokens=lost, detail=detail)]


def _cut(export: Export, store: Store) -> list[Loss]:
    sequences = Sequences(store, export.options)
    if not len(sequences.data) and store.num_tokens:
        detail = f"{store.num_tokens:,} tokens make no row of {export.options.seq_len:,}: there is nothing to read"
        in_loss = store.manifest.splits[store.split_name].loss_tokens or 0
        return [
            Loss(split=store.split_name, kind="too-small", tokens=store.num_tokens, loss_tokens=in_loss, detail=detail)
        ]
    lost = sequences.data.packing.waste().truncated_tokens
    if not lost:
        return []
    in_loss = 0
    if has_mask(store):
        rows = range(len(sequences.data))
        kept = sum(int(np.count_nonzero(sequences.gather(block)["loss_mask"])) for block in sequences.blocks(rows))
        in_loss = max((store.manifest.splits[store.split_name].loss_tokens or 0) - kept, 0)
    detail = "stand in no row: what is longer than a row, or left over at the end"
    return [Loss(split=store.split_name, kind="tokens-cut", tokens=lost, loss_tokens=in_loss, detail=detail)]


def _eos(store: Store) -> int | None:
    manifest = store.manifest
    named = manifest.tokenizer.eos_token
    return manifest.eos_id if manifest.eos_id is not None else manifest.tokenizer.special_tokens.get(named or "")


def _after_eos(store: Store) -> list[Loss]:
    """Megatron Bridge has no loss where the token before is EOS."""
    eos, lost = _eos(store), 0
    for number in range(len(shards_of(store))):
        shard = store.shard(number)
        after = np.flatnonzero(shard.ids[:-1] == eos) + 1 if eos is not None else np.empty(0, np.int64)
        inside = after[~np.isin(after, shard.ends)]
        lost += len(inside) if shard.mask is None else int(np.count_nonzero(shard.mask[inside]))
    if not lost:
        return []
    detail = "follow an EOS inside their document, where Megatron Bridge has no loss"
    return [Loss(split=store.split_name, kind="loss-changed", tokens=lost, loss_tokens=lost, detail=detail)]


def _of_turns(store: Store) -> list[Loss]:
    """LLM Foundry puts EOS after an answer without one; what follows the last answer is left out."""
    eos, added, after = _eos(store), 0, 0
    for number in range(len(shards_of(store))):
        shard = store.shard(number)
        places = np.arange(len(shard.ids)) if shard.mask is None else np.flatnonzero(shard.mask)
        starts = np.concatenate(([0], shard.ends[:-1]))
        last = np.searchsorted(places, shard.ends) - 1
        some = np.searchsorted(places, starts) <= last
        ends = places[last[some]]
        added += int(np.count_nonzero(shard.ids[ends] != eos)) if eos is not None else 0
        after += int((shard.ends[some] - ends - 1).sum()) + int((shard.ends - starts)[~some].sum())
    split = store.split_name
    found = []
    if after:
        detail = "stand after the last token in the loss of their document, and teach nothing"
        found.append(Loss(split=split, kind="tokens-cut", tokens=after, detail=detail))
    if added:
        detail = "more, EOS, that LLM Foundry puts after answers that do not end with it"
        found.append(Loss(split=split, kind="loss-changed", tokens=added, loss_tokens=added, detail=detail))
    return found


def _bounds(store: Store) -> list[Loss]:
    """Documents that a reader which looks for EOS finds elsewhere. Plain text that was built here has it at its end only."""
    manifest = store.manifest
    if manifest.eos_id is not None and manifest.special_tokens == "text" and not manifest.run.is_import:
        return []
    eos, wrong = _eos(store), 0
    for number in range(len(shards_of(store))):
        shard = store.shard(number)
        ends = np.flatnonzero(shard.ids == eos) + 1 if eos is not None else np.empty(0, np.int64)
        wrong += len(np.setxor1d(ends, shard.ends))
    if not wrong:
        return []
    detail = f"bounds are not where EOS ({eos}) stands, by which this reader finds documents"
    return [Loss(split=store.split_name, kind="bounds-by-eos", tokens=wrong, detail=detail)]
