"""Samples -> batches, as a training loop takes them.

In: what samples are, and the rows that memory gives. Out: dictionaries of arrays or tensors, ahead of time.

    bundles   which tokens go where, worked out for many steps together
    make      the rows of several steps -> their fields, cut into batches
    fields    ids and bounds -> input_ids, labels, position_ids, cu_seqlens, doc_ids, loss_mask
    prefetch  batches made ahead of time, by threads; copied to a device on a stream of its own
"""
