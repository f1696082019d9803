"""Tokenizing inside a training loop, for those whose loop does it today.

In: texts, or inputs as for a build. Out: ids equal to the reference's, in order; or the batches of a `Loader`.

    parallel     ParallelTokenizer and parallel_tokenize: texts -> ids, or (input_ids, target_ids)
    rows         ids end to end -> an array a text, cut and padded
    encoder      Arrow text -> ids, by a plain call or by a worker pool, whichever is faster
    costs        from which size on a worker pool pays
    proof        the fast engine, on probation
    pool         the worker pool: threads
    dataset      LiveDataset: inputs -> batches, tokenized while training runs
    tokens       inputs and a tokenizer, opened as a build opens them
    packer       documents from a place on -> rows of tokens
    window       the tokens that were encoded and not delivered yet
    state        where a live data set is: a small dictionary
"""
