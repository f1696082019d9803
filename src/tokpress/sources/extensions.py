"""What the name of a file says about it.

In: a name. Out: its format and compression; or, for kinds of files that are not read, what to do instead.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from tokpress.sources.compression import EXTENSIONS as COMPRESSIONS

STREAMS = ("jsonl", "csv", "tsv", "text", "lines")  # formats that may be compressed as a whole
FORMAT_OF_EXTENSION = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".rst": "text",
    ".py": "text",
}
# What people have and is not read, and how to get the text out of it.
_NOT_READ = {
    ("warc", "wet", "arc"): (
        "a web archive, which is not read: tokens of raw HTML are of little use. Extract the text first, with datatrove "
        "or resiliparse for example, and write JSON lines or Parquet"
    ),
    ("tar", "zip", "7z", "rar", "tgz"): "an archive of files, which is not read. Unpack it and name the directory",
    ("pdf", "docx", "doc", "epub", "odt", "rtf", "xlsx", "xls", "pptx"): (
        "an office or book format, which is not read. Convert it to text first, with pandoc or pdftotext for example"
    ),
    ("avro", "orc", "lance", "vortex", "delta", "sqlite", "db", "duckdb"): (
        "a table format that is not read. Write it as Parquet first: duckdb, polars or pyarrow do that in a line"
    ),
    ("yaml", "yml", "toml", "xml", "html", "htm"): (
        "not read as records. Convert it to JSON lines, or add --format text to take each file as it stands as a document"
    ),
    ("pkl", "pickle", "pt", "pth", "safetensors", "npy", "npz", "idx", "mds", "h5"): (
        "no text. If it holds token ids: tokpress import --help. Else write its text as JSON lines or Parquet"
    ),
    (
        "lz4",
        "br",
        "lzma",
        "z",
        "sz",
        "snappy",
        "lzo",
    ): "compressed in a way that is not read. Compress it with zstd or gzip",
}


def format_and_compression(name: str) -> tuple[str | None, str | None]:
    path = PurePosixPath(name.lower())
    compression = COMPRESSIONS.get(path.suffix)
    if compression:
        path = path.with_suffix("")
    return FORMAT_OF_EXTENSION.get(path.suffix), compression


def why_not_read(name: str) -> str | None:
    """What a file of a known kind is that there is no reader for."""
    path = PurePosixPath(name.lower())
    if path.suffix in COMPRESSIONS:
        path = path.with_suffix("")
    return next((why for kinds, why in _NOT_READ.items() if path.suffix[1:] in kinds), None)
