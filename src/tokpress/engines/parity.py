"""The proof that the fast engine may be used: both engines, the same text, every id.

In: two engines and documents (a sample of the user's own inputs). Out: a `Parity` record that the manifest keeps. To the
sample come fixed strings on which tokenizers are known to differ. During a run `Auditor` goes on with a small fraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from tokpress.batches import Int64s, TextBatch, TokenBatch, string_buffers, text_bytes
from tokpress.engines.base import Engine
from tokpress.errors import ParityError, TokenizerError
from tokpress.hashing import GOLDEN, mix
from tokpress.records import Difference, Parity

ALL = slice(None)
AUDIT_MAX_BYTES = 256 * 1024  # of a longer document, so much of its head is encoded by both
# Letters, numbers and marks of Unicode 15 to 18, on which libraries differ by the age of their tables.
_NEWCOMERS = "\U00031350\U0001e4d0\U0002ebf0\ua7cb\U00010d40\U00010d69\ua7ce\U00011de0\U000323b0\u0558\U0003d000"


def nasty_texts(added_tokens: Iterable[str]) -> list[str]:
    """Strings on which tokenizers have been seen to differ."""
    names = list(added_tokens)
    joined = "".join(names[:8])
    return [
        *(f"{name} a{name}b  {name}\n{name}\u0338" for name in names),  # the last makes one character with a ">"
        *names[:8],
        *(joined, joined[1:], joined[:-1]),  # literals that are not quite whole
        "",
        *(" ", "  ", "\n", "\t\n \n", " \u00a0\u2003\u3000x", "a \u00a0 b", "\u00a0", "x \n \n  "),
        *("a\r\nb\r\n\r\nc", "\r", "\n\r\n\r"),
        *("\u0301", "e\u0301 \u0301\u0302", "\u0e33\u0e34", "a\u0300\u0315b"),  # combining marks, alone and stacked
        *("\0", "a\0b", "\0\0\0", "\x01\x7f\x80\x9f"),
        *("👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽👍🏿", "🇩🇪🇯🇵", "☠️", "\ufe0f"),
        *("\u202eabc\u202c", "\u2066x\u2069", "\u200b\u200d\u200c", "\ufeffx", "a\u00adb"),
        *("שלום עליכם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界。", "こんにちは世界", "안녕하세요"),
        *("ﬁ ﬂ Å Å ½ ² Ⅷ ㎏ ｆｕｌｌ", "İstanbul ıI", "ǅ ß ẞ ſ 'ſ", "\U00010400\U0001f1e6\U000e0041"),
        *("don't DON'T we'LL I'Ve it'S 'tis ''s", "'s 't", "''''", "x'\u017f"),
        *("1234567890 12 345,678.90 ١٢٣ ⅛ ²³", "3.14159e-10", "0x1F", "1" * 300),
        *(
            "a" * 1000,
            "ab" * 500,
            " " * 1000,
            "\n" * 300,
            "." * 500,
            "=" * 80 + "\n",
            "é" * 300,
            "字" * 300,
            "🙂" * 100,
        ),
        *("\t" * 50 + "x", "    def f(x):\n\treturn {'a': [1, 2]}  # ok\n\n\n", "<s></s><unk><pad>[CLS][SEP]<0x0A>"),
        *(f"(({char}123 a{char}\u0316\u0301{char}" for char in _NEWCOMERS),
        *("▁▁ a▁b", "Ġhello", "https://example.org/?q=%20&x=1#y", "\\n\\t\\u0041", "A" * 50 + "b" * 50),
    ]


def check_parity(
    fast: Engine,
    reference: Engine,
    sample: Iterable[pa.LargeStringArray],
    part: slice = ALL,
    before: Callable[[], None] = lambda: None,
) -> Parity:
    """Encodes the nasty strings and the sample twice, up to the first difference; or a `part` of them, where several
    workers share the proof. `before` is called before each array of documents."""
    docs = compared = 0
    found: Difference | TokenizerError | None = None
    added_tokens = getattr(reference, "added_tokens", reference.info.special_tokens)  # some are no special ones
    nasty = pa.array(nasty_texts(added_tokens), pa.large_string())
    for text in (nasty, *sample)[part]:
        before()
        try:
            expected = reference.encode(text)
            found = compare(fast.encode(text), expected, text)
        except TokenizerError as error:
            found = error
        docs += len(text)
        compared += text_bytes(text)
        if found is not None:
            break
    outcome = "equal" if found is None else "different" if isinstance(found, Difference) else "unsupported"
    return Parity(
        outcome=outcome,
        engine=fast.name if found is None else reference.name,
        reference=reference.name,
        docs=docs,
        bytes=compared,
        difference=found if isinstance(found, Difference) else None,
        detail=str(found) if isinstance(found, TokenizerError) else "",
    )


def compare(fast: TokenBatch, reference: TokenBatch, text: pa.LargeStringArray) -> Difference | None:
    if np.array_equal(fast.ends, reference.ends) and np.array_equal(fast.ids, reference.ids):
        return None
    for i in range(len(text)):
        ours, theirs = fast.doc(i), reference.doc(i)
        if not np.array_equal(ours, theirs):
            shared = min(len(ours), len(theirs))
            differing = np.flatnonzero(ours[:shared] != theirs[:shared])
            at = int(differing[0]) if len(differing) else shared
            document: str = text[i].as_py()
            return Difference(
                text=document if len(document) <= 200 else document[:200] + "…",
                token=at,
                fast=ours[at : at + 8].tolist(),
                reference=theirs[at : at + 8].tolist(),
            )
    raise AssertionError("batches differ but no document does")


class Auditor:
    """Encodes a fraction of all documents with the reference too, and stops the run at the first difference.

    Which documents is decided by a hash of where they stand, so it depends neither on workers nor on batches.
    """

    def __init__(self, fast: Engine, reference: Engine, rate: float) -> None:
        self._fast = fast
        self._reference = reference
        self._threshold = np.uint64(min(int(rate * 2**64), 2**64 - 1))
        self.docs = self.bytes = 0  # compared so far

    def check(self, batch: TextBatch, tokens: TokenBatch) -> Int64s:
        """Which of the batch's documents were encoded twice. Raises ParityError at the first that differs."""
        chosen = np.flatnonzero(
            mix(batch.positions.astype(np.uint64) + batch.sources.astype(np.uint64) * GOLDEN) < self._threshold
        )
        if not len(chosen):
            return chosen
        starts, _ = string_buffers(batch.text)
        for i in chosen.tolist():
            text, encoded = batch.text[i : i + 1], tokens
            if starts[i + 1] - starts[i] > AUDIT_MAX_BYTES:
                head = text[0].as_buffer().to_pybytes()[:AUDIT_MAX_BYTES].decode("utf-8", "ignore")
                text = pa.array([head], pa.large_string())
                encoded = self._fast.encode(text)
            else:
                encoded = TokenBatch(tokens.doc(i), np.array([len(tokens.doc(i))]))
            difference = compare(encoded, self._reference.encode(text), text)
            if difference is not None:
                raise ParityError(
                    f"the audit found a document that {self._fast.name} and {self._reference.name} encode differently "
                    f"(input {batch.sources[i]}, position {batch.positions[i]}): {difference}. "
                    f"Build with the reference: --engine {self._reference.name}"
                )
            self.docs += 1
            self.bytes += text_bytes(text)
        return chosen
