"""The views as JSON: each file has the functions of one view of the page, and lists their paths.

In: parameters of a request and the session. Out: a typed view and the Python that gives the same (`answering.Reply`).

    store      totals, lengths, tokens, inputs, rejects, packings
    document   a document as its tokens, and the ways to find one
    sequence   a packed sequence as a training step gets it
    step       a step of a Loader, and when a document is seen
    compare    two tokenizers on one text, two stores on one record
    run        a build under way, as it goes on
    training   steps of a training run, by phase
"""
