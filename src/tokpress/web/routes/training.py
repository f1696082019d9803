"""Steps of a training run, as its meter wrote them."""

from __future__ import annotations

from tokpress.view.training import read_training
from tokpress.web.answering import Answer, Reply
from tokpress.web.parameters import BadRequest, Parameters
from tokpress.web.session import Session


def training(session: Session, parameters: Parameters) -> Reply:
    number = parameters.integer("meter", 0)
    if number >= len(session.meters):
        raise BadRequest(f"there is no meter {number}: this server has {len(session.meters)}.")
    path = session.meters[number]
    return Reply(view=read_training(path), python=f"from tokpress import view\n\nview.read_training({path!r})")


QUICK: dict[str, Answer] = {}
SCANS: dict[str, Answer] = {"training": training}
