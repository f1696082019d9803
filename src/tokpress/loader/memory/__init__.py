"""Ranges of tokens on a disk -> rows in memory.

In: the pieces that a packing names. Out: arrays that hold them, and the documents that they belong to.

    ranges      pieces of the token stream, cut where a shard ends, then where a document ends
    remote      ids of a store in a bucket, through a cache of pages
    stream      the shards of a split: opened and checked when first touched, then kept open
    read_ahead  what the system is told of maps: which parts will be read next
    gather      ranges of many shards -> rows, copied in one call
    buffers     memory for fields, used again when nobody looks at it any more
"""
