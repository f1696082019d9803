"""The view of a training step: the batch that a Loader with these options makes, and when a document is seen."""

from __future__ import annotations

from tokpress.loader.dataset import PretokenizedDataset
from tokpress.loader.loader import Loader
from tokpress.store.reader import Store
from tokpress.view.steps import PAGE_SAMPLES, view_step, view_when
from tokpress.web.answering import Answer, Reply
from tokpress.web.parameters import BadRequest, Parameters
from tokpress.web.routes.sequence import packing_of
from tokpress.web.session import Session
from tokpress.web.snippets import opened

MOST_SAMPLES = 2**14  # of a step


def step(session: Session, parameters: Parameters) -> Reply:
    loader, lines = _loader(session, parameters)
    number, first = parameters.integer("step", 0), parameters.integer("first", 0)
    call = f"view.view_step(loader, {number}, first={first}, count={PAGE_SAMPLES})"
    return Reply(view=view_step(loader, number, first=first), python="\n".join([*lines, call]))


def when(session: Session, parameters: Parameters) -> Reply:
    loader, lines = _loader(session, parameters)
    doc, epoch = parameters.integer("doc"), parameters.integer("epoch", 0, most=10**6)
    source = parameters.text("source", next(iter(loader.sources)))
    call = f"view.view_when(loader, {doc}, source={source!r}, epoch={epoch})"
    return Reply(view=view_when(loader, doc, source=source, epoch=epoch), python="\n".join([*lines, call]))


def _loader(session: Session, parameters: Parameters) -> tuple[Loader, list[str]]:
    """A loader and the lines that make it. `weights`: "0:3,1:1" mixes stores by their numbers."""
    seq_len, method, shift = packing_of(parameters)
    batch_size = parameters.integer("batch_size", 8, least=1, most=MOST_SAMPLES)
    world_size = parameters.integer("world_size", 1, least=1, most=MOST_SAMPLES)
    seed = parameters.integer("seed", 0)
    shuffle = parameters.choice("shuffle", ("samples", "blocks", "none"), "samples")
    if batch_size * world_size > MOST_SAMPLES:
        raise BadRequest(
            f"a step of {batch_size * world_size:,} samples is too large to show; {MOST_SAMPLES:,} are not."
        )
    weights = _weights(parameters.text("weights", "", most=1000))
    stores = {f"s{number}": session.engine_ready(session.store(number, parameters.split)) for number in weights} or {
        "data": session.engine_ready(session.store(parameters.store, parameters.split))
    }
    data = {
        name: PretokenizedDataset(
            store, split=store.split_name, seq_len=seq_len, method=method, shift_labels=shift, output="numpy"
        )
        for name, store in stores.items()
    }
    options = f"seq_len={seq_len}, method={method!r}" + (", shift_labels=True" if shift else "")
    mixed = {f"s{number}": weight for number, weight in weights.items()}
    chosen: bool | str = "blocks" if shuffle == "blocks" else shuffle == "samples"
    made = Loader(
        data if mixed else data["data"],
        batch_size=batch_size,
        weights=mixed or None,
        seed=seed,
        shuffle=chosen,
        world_size=world_size,
        threads=0,
    )
    shown = f"batch_size={batch_size}, seed={seed}, shuffle={chosen!r}, world_size={world_size}"
    what = f"{{{', '.join(f'{name!r}: {name}' for name in data)}}}, weights={mixed!r}" if mixed else "data"
    return made, [*_lines(stores, options), f"loader = tokpress.Loader({what}, {shown})"]


def _lines(stores: dict[str, Store], options: str) -> list[str]:
    lines = ["import tokpress", "from tokpress import view", ""]
    for name, store in stores.items():
        lines += [
            opened("store", store),
            f"{name} = tokpress.PretokenizedDataset(store, split={store.split_name!r}, {options})",
        ]
    return lines


def _weights(text: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for part in filter(None, text.split(",")):
        number, _, weight = part.partition(":")
        try:
            found[int(number)] = float(weight)
        except ValueError:
            raise BadRequest(f'weights={text[:60]!r} are none. Give them as "0:3,1:1": store and weight.') from None
    return found


QUICK: dict[str, Answer] = {"step": step, "when": when}
SCANS: dict[str, Answer] = {}
