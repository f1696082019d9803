"""Where text comes from.

In: paths, directories, globs, addresses or standard input. Out: `TextBatch`es of valid UTF-8 with the exact position of
every document, and a `Reject` for every record that could not be used.

    files        which files there are, their format and compression        -> Input
    ours         what tokpress wrote, which is no input wherever it stands
    remote       which objects of buckets, the Hub and https there are, and each as a file
    presets      well-known datasets by short names: id, files, text field
    datasets     --dataset: a preset or any id on the Hub as files, and the field that holds the text
    hub_layout   which files of a repository on the Hub are a config's and a split's
    extensions   what the name of a file says: its format, or that it is not read
    base         the Reader protocol, and the one place that knows all readers
    opening      the one way to open an input
    fields       what of a JSON record is taken, and whether it is right
    kept         metadata columns (--keep) as Arrow columns of text
    compression  a file as a stream of decompressed chunks, from any position
    blocks       records cut out of a stream, and the loop of all readers that do so
    lines        a stream as blocks of whole lines, with oversized ones skipped
    csv_records  a stream of CSV as blocks of whole records
    rows         what the readers of tables share
    jsonl, csv, text, parquet, arrow      one reader a format
    sample       documents drawn from all over the inputs, for the parity check and for training a tokenizer
"""
