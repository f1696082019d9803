"""Samples -> batches, as a training loop takes them.

bundles   which tokens go where, worked out for many steps together
fields    ids and bounds -> input_ids, labels, position_ids, cu_seqlens, doc_ids, loss_mask
prefetch  batches made ahead of time, by threads; copied to a device on a stream of its own
"""
