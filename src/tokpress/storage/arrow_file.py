"""An upload as pyarrow writes into it.

In: an upload. Out: a file for pyarrow's writers. One that was never closed ends its file when it is collected, at any time
later, be it while the process dies: what comes after the upload was committed or given up goes nowhere.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tokpress.storage.base import Upload


def arrow_file(upload: Upload) -> pa.PythonFile:
    return pa.PythonFile(_UntilClosed(upload), "w")


class _UntilClosed:
    closed = False  # asked for by pyarrow

    def __init__(self, upload: Upload) -> None:
        self._upload = upload

    def write(self, data: Any) -> None:
        if not self._upload.closed:
            self._upload.write(data)

    def flush(self) -> None:
        """An upload holds nothing back."""
