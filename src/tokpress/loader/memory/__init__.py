"""Ranges of tokens on a disk -> rows in memory.

stream      ranges of the token stream -> ids, document bounds, masks
maps        many mapped files, seen as one array
gather      rows of mapped memory -> rows of a batch
read_ahead  what the system is told of maps: which parts will be read next
buffers     memory for batches, used again when nobody looks at it any more
"""
