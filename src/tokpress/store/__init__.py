"""Token ids on disk.

In: `TokenBatch`es with positions. Out: a directory that anyone can map into memory, check and decode (docs/format.md).

    manifest   the records on disk: receipts, manifest, plan; canonical JSON with checksums
    unfinished a store that is being written: may it be, and what of it is done?
    recheck    receipts of an earlier run -> those whose files are still as they say
    writer     batches -> shards and their receipts
    shard      a shard's files, mapped when they are needed: sizes and document ends checked
    open_shards  those that a process has open, which are not too many
    reader     a store -> documents, slices, decoded text
    summary    a store in numbers
    rejects    rejected records, one after the other
    seal       the end of a run: receipts -> manifest
    kept       metadata columns beside the documents (--keep)
    verify     every byte against every checksum and every count against every other
"""
