"""The run: from inputs and a tokenizer to a finished store.

In: a `BuildConfig` and what a user named as inputs. Out: a store. This is the one room that knows the others.

    plan          inputs -> units of about equal size
    worker        one unit -> its shards: read, encode, audit, frame, write
    shape         ids -> documents as they are stored: frame, loss mask, length
    splits        which split a record belongs to
    coordinator   prove parity, run every unit, write the manifest
    progress      what a caller is told while it runs
    deep          re-encode a sample of a finished store from its sources
"""
