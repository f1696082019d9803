"""The same tokens as other trainers' files, and back.

In: a store. Out: a directory that the trainer's own reader opens (docs/formats.md); and from such files the documents in
them, for `tokpress import`.

    base       the contracts, and the one place where a name meets its class
    export     tokpress.export: parts in parallel, receipts, the directory in one step
    target     the directory that an export writes to: may it, and is there something to go on with?
    writing    the files of one part
    import_    tokpress.import_tokens: token files as a store, without a copy where that can be
    raw        shared by formats that are raw ids: ends, files that several shards share
    rows       shared by formats that have rows: documents, or sequences of a packing
    tables     rows as Arrow tables
    columns    the columns of a table, from ids and loss
    trainers   --for: which columns a trainer reads, and how it opens them
    losses     what a reader will lose of an export

    megatron   .bin and .idx                          import, too
    megatron_indices   Megatron's document, sample and shuffle indices, made beforehand
    datatrove  .ds, .ds.index, .ds.loss               import, too
    dolma      raw .npy and .csv.gz                   import, too
    nanogpt    train.bin, val.bin                     import, too
    llmc       header and ids, separator first        import, too
    npy        input.npy, target.npy, mask.npy
    parquet    rows
    arrow      rows, as `datasets.load_from_disk` opens them
    pt         chunks of sequences as tensors
    mds        rows in MosaicML's shards
    litdata    chunks for LitData's TokensLoader
    bridge     Megatron Bridge's packed sequences
    turns      documents as LLM Foundry's turns
"""

FORMATS = {  # name, and module -> class; imported when first used
    "megatron": "MegatronFormat",
    "datatrove": "DatatroveFormat",
    "dolma": "DolmaFormat",
    "nanogpt": "NanoGptFormat",
    "llmc": "LlmcFormat",
    "npy": "NpyFormat",
    "parquet": "ParquetFormat",
    "arrow": "ArrowFormat",
    "pt": "TorchFormat",
    "mds": "MdsFormat",
    "litdata": "LitDataFormat",
    "bridge": "BridgeFormat",
}
IMPORTABLE = ("megatron", "datatrove", "dolma", "nanogpt", "llmc")
