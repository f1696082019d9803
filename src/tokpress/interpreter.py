"""Another Python interpreter that runs one of our modules.

In: a module, its arguments, and the descriptors that it inherits. Out: the process. It finds packages where this one does,
and nowhere else, and knows nothing of the script that is running here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence


def start_python(
    module: str,
    *arguments: int,
    descriptors: Sequence[int],
    reads_input: bool = False,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Its output and errors are this process's; it has no input, unless it is to read this process's."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *map(str, arguments)],
        pass_fds=descriptors,
        stdin=None if reads_input else subprocess.DEVNULL,
        # NumPy's OpenBLAS starts threads that nobody here has work for, and they wait by spinning.
        env={"OPENBLAS_NUM_THREADS": "1"}
        | os.environ
        | {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        | dict(environment or {}),
    )
