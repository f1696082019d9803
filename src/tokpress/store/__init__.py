"""Token ids on disk.

In: `TokenBatch`es with positions. Out: a directory that anyone can map into memory, check and decode (docs/format.md).

    manifest   the records on disk: receipts, manifest, plan; canonical JSON with checksums
    durable    files that are either whole or not there
    writer     batches -> shards and their receipts
    reader     a store -> documents, slices, decoded text
    verify     every byte against every checksum and every count against every other
"""
