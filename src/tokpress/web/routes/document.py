"""The view of a document: a page of its tokens, and the ways to find one."""

from __future__ import annotations

import msgspec

from tokpress.view.documents import view_document
from tokpress.view.find import FindPage, find_kept, find_position, find_text, find_token
from tokpress.web.answering import Answer, Reply
from tokpress.web.parameters import BadRequest, Parameters
from tokpress.web.session import Session
from tokpress.web.snippets import on_store

PAGE_TOKENS = 1024
MOST_TOKENS = 4096


class AtPosition(msgspec.Struct, frozen=True, kw_only=True):
    doc: int | None  # None: no document comes from there or after it


def document(session: Session, parameters: Parameters) -> Reply:
    store = session.engine_ready(session.store(parameters.store, parameters.split))
    doc = parameters.integer("doc", 0)
    first = parameters.integer("first", 0)
    count = parameters.integer("count", PAGE_TOKENS, least=1, most=MOST_TOKENS)
    call = f"view.view_document(store, {doc}, first={first}, count={count})"
    return Reply(view=view_document(store, doc, first=first, count=count), python=on_store(store, call))


def find(session: Session, parameters: Parameters) -> Reply:
    """A bounded part of the split; `next_doc` says where the page goes on."""
    store = session.engine_ready(session.store(parameters.store, parameters.split))
    by = parameters.choice("by", ("text", "token", "field"), "text")
    first = parameters.integer("first_doc", 0)
    page: FindPage
    if by == "token":
        token = parameters.integer("value", most=2**32)
        page, call = find_token(store, token, first_doc=first), f"view.find_token(store, {token}, first_doc={first})"
    elif by == "field":
        field, value = parameters.text("field"), parameters.text("value")
        page = find_kept(store, field, value, first_doc=first)
        call = f"view.find_kept(store, {field!r}, {value!r}, first_doc={first})"
    else:
        text, ignore_case = parameters.text("value"), parameters.flag("ignore_case")
        if not text:
            raise BadRequest("value is empty: there is no text to look for.")
        page = find_text(store, text, first_doc=first, ignore_case=ignore_case)
        call = f"view.find_text(store, {text!r}, first_doc={first}, ignore_case={ignore_case})"
    return Reply(view=page, python=on_store(store, call))


def at_position(session: Session, parameters: Parameters) -> Reply:
    store = session.store(parameters.store, parameters.split)
    source, position = parameters.text("source"), parameters.integer("position", 0)
    call = f"view.find_position(store, {source!r}, {position})"
    return Reply(view=AtPosition(doc=find_position(store, source, position)), python=on_store(store, call))


QUICK: dict[str, Answer] = {"document": document, "document/at": at_position}
SCANS: dict[str, Answer] = {"find": find}
