"""Sequences of tokens -> batches for a training loop.

In: a store and a packing. Out: dictionaries of arrays (or tensors), in a global order that is a function of the sample's
number alone.

    order/       sample number -> which sequence of which source
    memory/      ranges of tokens on a disk -> rows in memory
    batches/     rows -> what a model takes, many batches together, ahead of time
    dataset      PretokenizedDataset: sequence number -> fields
    loader       Loader: all of it together
    looking      what a loader says of itself: steps, samples, sources
    state        where a loader is: a small dictionary
    provenance   which documents are in a step, and in which step is a document
    torch_data   make_dataloader, for those who have a torch DataLoader in their loop
    pairs        load_pretokenized_dataset: (input_ids, target_ids)
    rates        how fast batches come, for `tokpress bench loader`
"""
