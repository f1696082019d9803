from collections.abc import Sequence
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

_Ids = npt.NDArray[np.uint32]
_Int64s = npt.NDArray[np.int64]

class Tokenizer:
    def __init__(self, model: bytes, *, literals: Sequence[tuple[str, int]] = ..., simd: bool = True) -> None: ...
    @staticmethod
    def from_pieces(
        pieces: Sequence[tuple[str, float]],
        *,
        unknown: int,
        byte_fallback: bool = False,
        charsmap: bytes = b"",
        words: bool = False,
        prefix: bool = True,
        strip_left: bool = False,
        strip_right: bool = False,
        joined_spaces: str = "",
        literals: Sequence[tuple[str, int]] = ...,
    ) -> Tokenizer: ...
    def unsettled(self, offsets: _Int64s, data: npt.NDArray[np.uint8]) -> _Int64s: ...
    @overload
    def encode(self, texts: list[str], *, threads: int = 1, starts: Literal[False] = False) -> tuple[_Ids, _Int64s]: ...
    @overload
    def encode(self, texts: list[str], *, threads: int = 1, starts: Literal[True]) -> tuple[_Ids, _Int64s, _Int64s]: ...
    @overload
    def encode_buffers(
        self, offsets: _Int64s, data: npt.NDArray[np.uint8], *, threads: int = 1, starts: Literal[False] = False
    ) -> tuple[_Ids, _Int64s]: ...
    @overload
    def encode_buffers(
        self, offsets: _Int64s, data: npt.NDArray[np.uint8], *, threads: int = 1, starts: Literal[True]
    ) -> tuple[_Ids, _Int64s, _Int64s]: ...
    @property
    def vocab_size(self) -> int: ...
    def piece(self, token: int) -> str: ...
    @property
    def worker_bytes(self) -> int: ...
