"""What travels between the coordinator and its workers."""

from __future__ import annotations

import pytest

from tokpress.documents.frame import Frame
from tokpress.records import Parity, TokenizerInfo
from tokpress.run.job import Advanced, FirstDocument, Prepared


def prepared(parity: Parity, memory_per_byte: int, *, footprint: int = 1, head: str = "") -> Prepared:
    return Prepared(
        info=TokenizerInfo(kind="huggingface", fingerprint="f", vocab_size=10, special_tokens={}),
        frame=Frame(None, None, 10),
        parity=parity,
        first_document=FirstDocument(head=head, tail="", tokens=1) if head else None,
        footprint=footprint,
        memory_per_byte=memory_per_byte,
    )


EQUAL = Parity(outcome="equal", engine="gigatoken", reference="huggingface", docs=3, bytes=30)
DIFFERENT = Parity(outcome="different", engine="huggingface", reference="huggingface", docs=2, bytes=20)


class TestPrepared:
    @pytest.mark.parametrize("first", [True, False])
    def test_if_one_prover_has_to_use_the_reference_all_need_its_memory(self, first: bool) -> None:
        fast, reference = prepared(EQUAL, 4, footprint=700), prepared(DIFFERENT, 140, footprint=500)
        both = fast + reference if first else reference + fast
        assert (both.parity.outcome, both.parity.engine) == ("different", "huggingface")
        assert (both.memory_per_byte, both.footprint) == (140, 700)

    @pytest.mark.parametrize("memory", [4, 140])
    def test_the_first_document_is_that_of_the_first(self, memory: int) -> None:
        both = prepared(EQUAL, 4, head="first") + prepared(EQUAL, memory, head="second")
        assert both.first_document == FirstDocument(head="first", tail="", tokens=1)
        assert (both.parity.docs, both.parity.bytes) == (6, 60)


def test_what_was_advanced_adds_up() -> None:
    one, two = Advanced(input_bytes=1, text_bytes=2, docs=3, tokens=4, rejects=5), Advanced(docs=10, rejects=-1)
    assert one + two == Advanced(input_bytes=1, text_bytes=2, docs=13, tokens=4, rejects=4)
