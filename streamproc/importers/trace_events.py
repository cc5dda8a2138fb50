"""What traces become, before it is known from which log: raw events, and what detectors can see in them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class TraceEvent:
    """A raw event and its place: what `Imported` needs, without a log."""

    event: dict[str, Any]
    number: int
    at: int  # epoch milliseconds; 0 if unknown
    blank_calls: int = 0  # of which neither arguments nor a result are recorded
    siblings: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The calls of a turn by the event ids that they would have on their own, if it has the calls of several steps."""


@dataclass(slots=True)
class TraceCounts:
    """What traces showed: which detectors can see something in them."""

    repeated: int = 0  # records of a call that another one records
    models: int = 0
    said: int = 0  # model calls whose answer is known
    calls: int = 0
    with_args: int = 0
    with_result: int = 0
    blind: int = 0  # traces with calls of tools and no result of any

    def notes(self) -> Iterator[str]:
        """Say what detectors cannot see in these traces."""
        if self.models and not self.said and not self.calls:
            yield (
                "no content in these traces: only spend, errors and handovers can be judged; record messages and calls"
                " of tools to have loops found"
            )
        if self.calls and not self.with_result and not self.with_args:
            yield (
                "no arguments and no results of tools in these traces: repeated calls cannot be seen, only spend,"
                " errors and silence; record content"
            )
            return
        if self.calls and not self.with_result:
            yield "no tool results in these traces: repeated calls are only seen in long rows; record content"
        elif self.blind:
            yield "some traces have no tool results: repeated calls are only seen in long rows there"
        if self.calls and not self.with_args:
            yield "no arguments of tools in these traces: calls of one tool are told apart by their results only"


@dataclass(slots=True)
class TraceOptions:
    """How runs are cut out of traces."""

    run_is_trace: bool = False  # whether each trace is a run, also one of a conversation
    sub_agents: bool = True  # whether an agent that another agent calls is a run of its own
    complete: bool = True  # whether the steps are all that the trace will have: agents and workflows have finished


def places_beside(times: Mapping[str, list[int]]) -> Iterator[tuple[str, int]]:
    """Yield the work that was done beside other work, with its place, from 2: `times` are start and end. Work gets the
    first place that is free when it begins."""
    busy: list[tuple[int, int]] = []  # ends of what is under way, with its places
    free: list[int] = []
    for work, (start, end) in sorted(times.items(), key=lambda one: one[1]):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        place = heapq.heappop(free) if free else len(busy) + 1
        heapq.heappush(busy, (end, place))
        if place > 1:
            yield work, place
