"""How far an order from the page is, as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.read_model.order_progress import OrderProgress, Stage, order_progress

if TYPE_CHECKING:
    from streamproc.read_model.order_progress import OrderModel
    from streamproc.web.orders import PlacedOrder

SENTENCES: Final[dict[Stage, str]] = {
    "sending": "It is being sent", "unsent": "It was not sent", "sent": "It is sent", "standing": "It stands",
    "replaced": "It was replaced", "refused": "It was refused", "obeyed": "It is obeyed",
}  # fmt: skip


def progress(order: PlacedOrder, model: OrderModel) -> OrderProgress:
    """Return how far an order is."""
    if order.sent is None:
        return OrderProgress(stage="sending", note="the broker has not confirmed it yet")
    if not order.sent:
        return OrderProgress(stage="unsent", note=order.problem)
    return order_progress(order, model)


def sentence(found: OrderProgress) -> str:
    """Say how far an order is."""
    return f"{SENTENCES[found.stage]}: {found.note.removesuffix('.')}."
