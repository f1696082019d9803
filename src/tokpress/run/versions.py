"""Versions of what decides the output.

In: nothing. Out: a package's name -> its version.
"""

from __future__ import annotations

from importlib.metadata import version

_PACKAGES = ("tokpress", "gigatoken", "tokenizers", "sentencepiece", "tiktoken", "pyarrow", "numpy")


def output_versions() -> dict[str, str]:
    return {package: version(package) for package in _PACKAGES}
