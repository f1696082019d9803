"""Characters that the fast engine and the references see differently, because their Unicode tables are of other years.

In: documents. Out: which of them hold such a character. gigatoken 0.10 splits and normalizes text by Unicode 17;
`tokenizers` and `tiktoken` split by Unicode 16, and `tokenizers` normalizes by Unicode 9. So the characters that Unicode 17
added count as letters, numbers, marks or symbols for the one and as nothing for the others, and marks added since Unicode
9 are put into canonical order (NFC) by the one only. No such character is frequent: a document that holds one is encoded
by the reference. The tests go through all of Unicode, so that an upgrade of a library that moves this list is seen.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokpress.batches import Int64s, places, string_buffers

_ADDED_IN_UNICODE_17 = """
    88F C5C CDC 1ACF-1ADD 1AE0-1AEB 20C1 2B96 A7CE-A7CF A7D2 A7D4 A7F1 FBC3-FBD2 FD90-FD91 FDC8-FDCE 10940-10959
    10EC5-10EC7 10ED0-10ED8 10EFA-10EFB 11B60-11B67 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6
    187F8-187FF 18D09-18D1E 18D80-18DF2 1CCFA-1CCFC 1CEBA-1CED0 1CEE0-1CEF0 1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 1F6D8
    1F777-1F77A 1F8D0-1F8D8 1FA54-1FA57 1FA8A 1FA8E 1FAC8 1FACD 1FAEA 1FAEF 1FBFA 2B73A-2B73F 2CEA2-2CEAD 323B0-33479
"""
# Those that have a combining class, and the first ones of those that compose.
_NORMALIZED_SINCE_UNICODE_9 = """
    7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA A82C 105D2 105DA 10D24-10D27 10D69-10D6D 10EAB-10EAC
    10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11382-11390 113C2 113CE-113D0 1145E 11839-1183A 11935 1193D-1193E
    11943 119E0 11A34 11A47 11A99 11D42-11D45 11D97 11F41-11F42 1611E-1612F 16D63-16D6A 16FF0-16FF1 1E08F 1E130-1E136
    1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF
"""


def _ranges() -> list[tuple[int, int]]:
    listed = (part.partition("-") for part in (_ADDED_IN_UNICODE_17 + _NORMALIZED_SINCE_UNICODE_9).split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in listed]


UNSETTLED = "".join(chr(code) for first, last in _ranges() for code in range(first, last + 1))
_PATTERN = "[" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in _ranges()) + "]"
_HEADS = np.zeros(2**16, np.bool_)  # by a character's first two bytes: may it be one of them?
_HEADS[[int.from_bytes(char.encode()[:2]) for char in UNSETTLED]] = True
_LOWEST_LEAD = min(UNSETTLED).encode()[0]
_CHUNK_BYTES = 4 * 1024**2  # looked at together: eight bytes are held for each


def unsettled_documents(text: pa.LargeStringArray) -> Int64s:
    """Indices of the documents that hold such a character. Looks at two bytes of a character, then only at suspects."""
    starts, data = string_buffers(text)
    suspects = np.empty(0, np.int64)
    for begin in range(int(starts[0]), int(starts[-1]), _CHUNK_BYTES):
        leads = begin + places(data[begin : min(begin + _CHUNK_BYTES, int(starts[-1]))] >= _LOWEST_LEAD)
        heads = data[leads].astype(np.uint16) << 8 | data[leads + 1]
        suspects = np.union1d(suspects, np.searchsorted(starts, leads[_HEADS[heads]], "right") - 1)
    found: Int64s = suspects[np.asarray(pc.match_substring_regex(text.take(suspects), _PATTERN))]
    return found
