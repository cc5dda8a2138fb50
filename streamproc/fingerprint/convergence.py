"""How far the proposals of a deliberation agree in meaning, by an embedding function of the caller.

It becomes the field `convergence` of a turn, so the worker, `scan` and `replay` read the same number, and no text
leaves the process.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

Embed = Callable[[str], Sequence[float]]
"""Returns a vector for a text; vectors of one function have the same length. It is called once for each proposal."""

RUNS_MAX: Final = 1_000  # whose last proposal is remembered

log = logging.getLogger(__name__)


class Convergence:
    """Compares each proposal of a run with the one before it. A proposal is a turn with a `round` and an `output`, of
    a node in `proposers` if there are any."""

    def __init__(self, embed: Embed, proposers: Collection[str] = ()) -> None:
        self._embed = embed
        self._proposers = frozenset((proposers,) if isinstance(proposers, str) else proposers)
        self._last: OrderedDict[str, Sequence[float]] = OrderedDict()
        self._failed = False

    def measured(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the event with its `convergence`, from 0 to 1, if it is a proposal that follows another one and does
        not report its own. A function that fails changes nothing."""
        text, run_id = event.get("output"), event.get("run_id")
        if event.get("round") is None or not isinstance(text, str) or not text or not isinstance(run_id, str):
            return event
        if self._proposers and event.get("node") not in self._proposers:
            return event
        try:
            vector = self._embed(text)
            before = self._last.pop(run_id, None)
            self._last[run_id] = vector
            if len(self._last) > RUNS_MAX:
                self._last.popitem(last=False)
            if before is None or event.get("convergence") is not None:
                return event
            return {**event, "convergence": similarity(before, vector)}
        except Exception as error:  # noqa: BLE001  # the caller's function must not break what it measures
            if not self._failed:
                log.warning("the embedding function failed, turns are sent without convergence: %r", error)
            self._failed = True
            return event


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors, and 0 for opposite ones. Raises `ValueError` for different lengths."""
    lengths = math.hypot(*one) * math.hypot(*other)
    cosine = sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
    if not math.isfinite(cosine):
        raise ValueError("a vector with numbers that are not finite")
    return min(1.0, max(0.0, cosine))
