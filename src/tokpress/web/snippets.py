"""The Python that gives what a view shows.

In: a store and a call on it. Out: lines that can be pasted into a notebook; the last one is the view itself.
"""

from __future__ import annotations

from tokpress.store.reader import Store


def on_store(store: Store, call: str, *before: str) -> str:
    """`call` may use `store` and `view`; `before` are lines that it needs."""
    imports = ["import tokpress", *(["from tokpress import view"] if "view." in call else [])]
    return "\n".join([*imports, "", opened("store", store), *before, call])


def opened(name: str, store: Store) -> str:
    split = "" if store.split_name == "train" else f", split={store.split_name!r}"
    return f"{name} = tokpress.open({store.url!r}{split})"
