"""Turns of traces that are still under way.

A file importer sees a trace as a whole; here its spans come one by one, when they end, children before parents. So the
last spans of each trace are kept, its turns are made again from all of them whenever spans come, and those that were
not published before are. What is not known yet is waited for, within bounds:

- a span waits `reorder_s` for others that ended before it and come from another process or a later batch;
- a model call that asked for tools waits for their spans, or for the next model call;
- the calls that one answer of a model asked for wait for each other, as they are one turn;
- a tool call without a result waits for the next model call, which may tell it.

When the root of a trace ends, or nothing has come for `quiet_s`, nothing is waited for any more.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from streamproc.importers.trace_events import TraceCounts, TraceEvent, TraceOptions
from streamproc.importers.trace_steps import MODEL, TOOL, UNSET, WORKING, Step
from streamproc.importers.trace_turns import turns_of
from streamproc.model.newest import Newest

PUBLISHED_MAX: Final = 2_000  # ids of published events that are remembered for each trace

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AssemblyLimits:
    """How long spans wait, and how many are kept."""

    reorder_s: float = 2.0
    quiet_s: float = 120.0
    traces: int = 10_000
    spans_of_trace: int = 100  # that are published and kept, because later spans may belong to them
    waiting_of_trace: int = 1_000  # that are not published
    bytes: int = 256 << 20  # about what all of them take


@dataclass(slots=True)
class _Kept:
    """A span of an open trace."""

    step: Step
    arrived: float
    settled: Callable[[], None] | None
    size: int
    done: bool = False  # published, or found to be no turn


@dataclass(slots=True)
class _OpenTrace:
    id: str
    kept: dict[str, _Kept] = field(default_factory=dict)
    published: Newest[str, None] = field(default_factory=lambda: Newest(PUBLISHED_MAX))
    run: str = ""  # of the spans that name none; final once an event is published
    heard: float = 0.0  # when its last span came
    waiting: int = 0
    size: int = 0
    scheduled: bool = False
    root_ended: bool = False
    newest: int = 0  # the time of the newest published turn
    seen: TraceCounts = field(default_factory=TraceCounts)


class TraceAssembly:
    """Collects spans by trace and returns raw events once they are complete.

    Times are seconds of a monotonic clock. Nothing here waits: call `due` at short intervals.
    """

    def __init__(self, limits: AssemblyLimits | None = None) -> None:
        self.limits = limits or AssemblyLimits()
        self.turns = self.usage = self.wrappers = 0
        """Spans that were published as turns, those whose usage went into the turn of another, and the others."""
        self.repeated = 0
        """Spans that came a second time."""
        self.late = 0
        """Turns that ended before one of their trace that was published already."""
        self.early = 0
        """Traces that were published before they were complete, as there was no room for them."""
        self.settled: list[Callable[[], None]] = []
        """What to call once the events that were returned are acknowledged."""
        self.notes: dict[str, None] = {}
        """What detectors cannot see in the traces that ended."""
        self._traces: OrderedDict[str, _OpenTrace] = OrderedDict()  # the one that has been quiet for longest first
        self._schedule: list[tuple[float, str]] = []
        self._events: list[Event] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._traces)

    def holds(self, trace: str) -> bool:
        """Whether spans of a trace are kept."""
        return trace in self._traces

    def add(self, step: Step, now: float, settled: Callable[[], None] | None = None) -> None:
        """Keep a span as a step. `settled` is added to the list of that name once the step has nothing to wait for."""
        trace = self._traces.get(step.trace)
        if trace is None:
            trace = self._traces[step.trace] = _OpenTrace(step.trace)
        self._traces.move_to_end(step.trace)
        trace.heard = now
        if step.id in trace.kept or f"{step.trace}:{step.id}" in trace.published:
            self.repeated += 1
            if settled is not None:
                self.settled.append(settled)
            return
        size = step.size
        trace.kept[step.id] = _Kept(step, now, settled, size)
        trace.waiting += 1
        self._grow(trace, size)
        trace.root_ended = trace.root_ended or not step.parent
        if trace.root_ended or not trace.scheduled:
            self._wait(trace, now if trace.root_ended else now + self.limits.reorder_s)
        self._make_room(trace, now)

    def due(self, now: float) -> list[Event]:
        """Return the events that are complete, those of one trace in the order in which they ended."""
        while self._schedule and self._schedule[0][0] <= now:
            trace = self._traces.get(heapq.heappop(self._schedule)[1])
            if trace is not None:
                self._advance(trace, now)
        while self._traces:
            trace = next(iter(self._traces.values()))
            if trace.heard + self.limits.quiet_s > now:
                break
            self._end(trace, now)
        return self._taken()

    def flush(self, now: float) -> list[Event]:
        """Return the events of all traces, complete or not, and forget them."""
        for trace in list(self._traces.values()):
            self._end(trace, now)
        return self._taken()

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _wait(self, trace: _OpenTrace, until: float) -> None:
        trace.scheduled = True
        heapq.heappush(self._schedule, (until, trace.id))

    def _grow(self, trace: _OpenTrace, size: int) -> None:
        trace.size += size
        self._bytes += size

    def _make_room(self, trace: _OpenTrace, now: float) -> None:
        if trace.waiting > self.limits.waiting_of_trace:
            self.early += 1
            self._publish(trace, now, final=True)
            self._prune(trace)
        while self._traces and (len(self._traces) > self.limits.traces or self._bytes > self.limits.bytes):
            self.early += 1
            self._end(next(iter(self._traces.values())), now)

    def _end(self, trace: _OpenTrace, now: float) -> None:
        if trace.waiting:
            self._publish(trace, now, final=True)
        self.notes.update(dict.fromkeys(trace.seen.notes()))
        del self._traces[trace.id]
        self._grow(trace, -trace.size)

    def _advance(self, trace: _OpenTrace, now: float) -> None:
        trace.scheduled = False
        if trace.waiting:
            self._publish(trace, now, final=trace.root_ended)
            self._prune(trace)
        if trace.root_ended:
            self.notes.update(dict.fromkeys(trace.seen.notes()))
        next_s = (one.arrived + self.limits.reorder_s for one in trace.kept.values() if not one.done)
        if (until := min((time for time in next_s if time > now), default=None)) is not None:
            self._wait(trace, until)

    def _publish(self, trace: _OpenTrace, now: float, *, final: bool) -> None:
        steps = [one.step for one in trace.kept.values()]
        self._name_run(trace, steps)
        kinds = {one.step.id: one.step.kind for one in trace.kept.values() if one.done}
        options = TraceOptions(sub_agents=False, complete=final and trace.root_ended)
        events = turns_of(steps, TraceCounts(), options)
        self._skip_wrappers(trace, kinds)
        latest = now if final else now - self.limits.reorder_s
        ready = {one.step.id for one in trace.kept.values() if final or one.arrived <= latest}
        last = max((place for place, one in enumerate(events) if ready.issuperset(_span_ids(one))), default=-1)
        unfinished = set() if final else _unfinished(steps)
        for one in events[: last + 1]:
            if unfinished.isdisjoint(_span_ids(one)):
                self._emit(trace, one)
        for kept in trace.kept.values():
            if not kept.done and kept.step.id in ready and kept.step.id not in unfinished:
                self._finish(trace, kept)

    def _name_run(self, trace: _OpenTrace, steps: Iterable[Step]) -> None:
        """Keep all turns of a trace in one run: an agent's span may name it, and comes after what it did."""
        named = {step.run for step in steps if step.run}
        if not trace.run and len(named) < 2:
            trace.run = next(iter(named), trace.id)
        if not trace.run:
            return
        several = len({step.run for step in steps if step.run and step.kind in WORKING}) > 1
        for step in steps:
            if not step.run or (step.kind not in WORKING and not several):
                step.run = trace.run

    def _skip_wrappers(self, trace: _OpenTrace, kinds: dict[str, str]) -> None:
        """Count the span of a wrapper as published if that of the call inside it was, before the wrapper ended."""
        for span_id, kind in kinds.items():
            step = trace.kept[span_id].step
            if step.kind == kind:
                continue
            outer = trace.kept.get(step.parent)
            for _ in range(len(trace.kept)):
                if outer is None or outer.step.kind in WORKING:
                    break
                outer = trace.kept.get(outer.step.parent)
            if outer is not None and outer.step.kind == kind:
                trace.published.setdefault(f"{trace.id}:{outer.step.id}")

    def _emit(self, trace: _OpenTrace, one: TraceEvent) -> None:
        event_id = one.event["event_id"]
        new = [one_id for one_id in one.siblings or (event_id,) if one_id not in trace.published]
        if not new or (event_id.endswith(":user") and trace.newest):
            return
        if len(new) < len(one.siblings):  # the others were published before this one came
            calls = [call for one_id in new for call in one.siblings[one_id]]
            one.event |= {"event_id": new[0], "tool_calls": calls}
        trace.published |= dict.fromkeys(new)
        self.late += one.at < trace.newest
        trace.newest = max(trace.newest, one.at)
        trace.seen.calls += one.blank_calls
        for call in one.event.get("tool_calls", ()):
            trace.seen.calls += 1
            trace.seen.with_args += "args" in call
            trace.seen.with_result += "result" in call or "error" in call
        self._events.append(one.event)

    def _finish(self, trace: _OpenTrace, kept: _Kept) -> None:
        step = kept.step
        kept.done = True
        trace.waiting -= 1
        if f"{trace.id}:{step.id}" in trace.published:
            self.turns += 1
        elif step.kind == MODEL:
            self.usage += 1
        else:
            self.wrappers += 1
        if step.kind == MODEL:
            trace.seen.models += 1
            trace.seen.said += bool(step.output or step.calls)
        if kept.settled is not None:
            self.settled.append(kept.settled)
            kept.settled = None
        # Its turn is made again as long as it is kept, for the sake of others, but is not published again.
        step.args, step.answers, step.asked, step.prompt, step.output = None, {}, False, "", step.output[:1]
        step.calls = [{**call, "args": None} for call in step.calls]
        if step.result is not UNSET:
            step.result = ""
        self._grow(trace, step.size - kept.size)
        kept.size = step.size

    def _prune(self, trace: _OpenTrace) -> None:
        if len(trace.kept) <= 2 * self.limits.spans_of_trace:
            return
        done = [span_id for span_id, one in trace.kept.items() if one.done]
        for span_id in done[: max(0, len(done) - self.limits.spans_of_trace)]:
            self._grow(trace, -trace.kept.pop(span_id).size)


def _span_ids(one: TraceEvent) -> list[str]:
    """Return the ids of the spans that a turn is made of."""
    return [event_id.split(":")[1] for event_id in one.siblings or (str(one.event["event_id"]),)]


def _unfinished(steps: list[Step]) -> set[str]:
    """Return the ids of the steps that later ones complete."""
    models = [step for step in steps if step.kind == MODEL]
    last = max(models, key=lambda step: (step.end, step.start), default=None)
    found = {
        step.id
        for step in steps
        if step.kind == TOOL and step.result is UNSET and not step.error and step.call_id
        and (last is None or last.end < step.end)
    }  # fmt: skip
    if last is not None and not last.error and (last.calls or not last.output):
        found.add(last.id)
        asked = {call["id"] for call in last.calls}
        came = [step for step in steps if step.kind == TOOL and step.call_id in asked and step.start >= last.start]
        if len(came) < len(asked):
            found |= {step.id for step in came}  # its siblings are still at work
    return found
