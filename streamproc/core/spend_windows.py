"""Windows of spend: sums of hops in log time, to which the entries of a statement are added.

Windows hop in log time: the last 60 minutes in hops of 5 minutes, the last 24 hours in hops of an hour, the last 30
days in hops of a day. Amounts are integers: tokens and micro-USD.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from streamproc.core.signals.spend import SPEND_MAX
from streamproc.model.wire_parts import Whole

MINUTE_MS: Final = 60_000
# Length of a hop in ms, and how many hops make the window.
WINDOWS: Final = {
    "hour": (5 * MINUTE_MS, 12),
    "day": (60 * MINUTE_MS, 24),
    "month": (24 * 60 * MINUTE_MS, 30),
    "burn": (MINUTE_MS, 5),  # the current rate: reported, without a limit
}


class SpendEntry(msgspec.Struct, array_like=True, gc=False):
    """The spend of one event of a run."""

    payer: Whole  # index of the run in `Statement.payers`
    offset: Whole  # of the event in its partition
    at_ms: Whole
    tokens: Whole
    micro_usd: Whole
    unpriced: Annotated[int, msgspec.Meta(ge=0, le=1)]  # 1: tokens without a price
    first: bool = False  # the first entry of the run
    left: bool = False  # the run has finished


class SpendWindow(msgspec.Struct, array_like=True, gc=False):
    """The spend in a window, as sums of its hops. The window of a session has sums only."""

    hops: list[
        Annotated[list[int], msgspec.Meta(min_length=4, max_length=4)]
    ] = []  # [number, tokens, micro-USD, unpriced turns], oldest first
    tokens: int = 0
    micro_usd: int = 0
    unpriced: int = 0


def hop_of(hops: list[list[int]], number: int) -> list[int]:
    """Return the hop with this number; create it in its place if there is none."""
    index = len(hops)
    while index and hops[index - 1][0] > number:
        index -= 1
    if not index or hops[index - 1][0] != number:
        hops.insert(index, [number, 0, 0, 0])
        index += 1
    return hops[index - 1]


def add_to(window: SpendWindow, hop: list[int] | None, entry: SpendEntry) -> None:
    """Add an entry, up to the largest stored integer."""
    tokens = min(entry.tokens, SPEND_MAX - window.tokens)
    micro_usd = min(entry.micro_usd, SPEND_MAX - window.micro_usd)
    window.tokens += tokens
    window.micro_usd += micro_usd
    window.unpriced += entry.unpriced
    if hop is not None:
        hop[1] += tokens
        hop[2] += micro_usd
        hop[3] += entry.unpriced
