"""Token ids on disk.

In: `TokenBatch`es with positions. Out: a directory that anyone can map into memory, check and decode (docs/format.md).

    manifest   the records on disk: receipts, manifest, plan; canonical JSON with checksums
    receipts   which shards exist, found with one read a unit
    unfinished a store that is being written: may it be, how is it begun, what is removed?
    recheck    receipts of an earlier run -> those whose files are still as they say
    writer     batches -> shards and their receipts
    shard      a shard's files, mapped when they are needed: sizes and document ends checked
    open_shards  those that a process has open, which are not too many
    reader     a store -> documents, slices, decoded text
    summary    a store in numbers
    notebook   a store as a notebook shows it
    rejects    rejected records, one after the other
    seal       the end of a run: receipts -> manifest
    kept       metadata columns beside the documents (--keep)
    contents   all files of a finished store, for who takes it elsewhere
    copy       to another disk or bucket, verified on arrival
    publish    to the Hub, with a card
    card       that card
    verify     every byte against every checksum and every count against every other
"""
