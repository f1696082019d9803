"""Sequences of tokens -> batches for a training loop.

In: a store and a packing. Out: dictionaries of arrays (or tensors), in a global order that is a function of the sample's
number alone.

    permutation  position -> sample, shuffled, as a function
    order        straight, shuffled, shuffled by blocks
    mixture      several sources in exact proportions, in stages
    schedule     sample number -> source and sequence: the global order
    stream       ranges of the token stream -> ids, document bounds, masks
    fields       ids and bounds -> input_ids, labels, position_ids, cu_seqlens, doc_ids, loss_mask
    dataset      PretokenizedDataset: sequence number -> fields
    buffers      memory for batches, used again when nobody looks at it any more
    prefetch     batches made ahead of time, by threads; copied to a device on a stream of its own
    steps        which samples make up a step, and which of them a rank takes
    state        where a loader is: a small dictionary
    loader       Loader: all of it together
    provenance   which documents are in a step, and in which step is a document
    torch_data   make_dataloader, for those who have a torch DataLoader in their loop
    pairs        load_pretokenized_dataset: (input_ids, target_ids)
    measure      rates for `tokpress bench loader`
"""
