"""The run: from inputs and a tokenizer to a finished store.

In: a `BuildConfig` and what a user named as inputs. Out: a store. This is the one package that knows the others.

    coordinator   the whole build: prove parity, run every unit, write the manifest
    writing       units -> shards, shards -> a store
    plan          inputs -> units of about equal size
    tasks         plan and receipts -> what is left to do
    scheduler     who does which unit, and what becomes of it when a worker dies
    assigned      what a worker has, as the scheduler sees it
    quarantine    which document killed the worker
    hopeless      what no second try can mend
    clusters/     where workers run
    share         --share I/N: which units are one machine's own
    shared        a store that several machines write: what they agree on, who does what
    member        this process as one of them
    nodes         which machine does which unit, where a driver says so
    agent         one machine, as it works for a driver
    on_ray        --executor ray: the driver, and the one module that knows Ray
    status        tokpress status: what is done, by whom, what is left
    versions      of what decides the output
    messages      what scheduler and workers say to each other
    worker        one unit -> its shards: read, encode, audit, shape, write
    refused       documents that the tokenizer has no ids for
    budget        memory and cores -> how many workers, and how much text at a time
    sample_judge  inputs of which nothing can come, told from a sample
    gate          large records take turns
    events        what a caller is told while it runs
    event_log     --events FILE: written, and read back
    clock         where a worker's time goes
    tally         the counters of a run
    profiles      --profile FILE
    projection    build --dry-run: what a run would take
    measure       tokpress bench: ways to encode, numbers of workers
    deep          verify --deep: re-encode a sample of a finished store from its sources
"""
