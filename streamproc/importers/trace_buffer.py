"""Traces of a log whose spans are in no order, kept until the log ends or the room for them is used up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from streamproc.importers.imported import Import, Imported, ImportTally
from streamproc.importers.trace_events import TraceCounts, TraceEvent, TraceOptions
from streamproc.importers.trace_steps import Step
from streamproc.importers.trace_turns import turns_of

BYTES_MAX: Final = 256 << 20  # about what the steps of a log may take at once: some 100 000 calls of tools
EARLY: Final = (
    "a log was too large to be read as a whole: traces were read in parts, and some turns may be out of order"
)


class TraceBuffer:
    """Collects steps by trace.

    Steps are kept until `rest`, as no span says that its trace is complete. Beyond `BYTES_MAX` the trace that has been
    quiet for longest is read with what is known of it; nothing is dropped, but what comes later is another part of the
    trace, whose steps do not know those of the first part.
    """

    def __init__(
        self, name: str, reading: Import, *, run_is_trace: bool, unit: str = "line", bytes_max: int = BYTES_MAX
    ) -> None:
        self.name = name
        self.unit = unit
        self.counts = TraceCounts()
        self._reading = reading
        self._run_is_trace = run_is_trace
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sizes: dict[str, int] = {}
        # The one that has been quiet for longest comes first. The first key of a dict takes ever longer to find as
        # keys before it are removed.
        self._traces: OrderedDict[str, list[Step]] = OrderedDict()

    @property
    def tally(self) -> ImportTally:
        """The tally of the format."""
        return self._reading.tally(self.name)

    def add(self, step: Step) -> Iterator[Imported]:
        """Keep a step, unless another record of it was read; yield what must be given up for it."""
        if not self._reading.is_new(f"{self.name}:{step.trace}:{step.id}"):
            self.tally.repeated += 1
            return
        steps = self._traces.pop(step.trace, [])
        steps.append(step)
        self._traces[step.trace] = steps
        size = step.size
        self._bytes += size
        self._sizes[step.trace] = self._sizes.get(step.trace, 0) + size
        while self._bytes > self._bytes_max:
            quiet = next(iter(self._traces))
            self.tally.notes[EARLY] = None
            yield from self._imported(self._read(quiet, complete=False))

    def rest(self) -> Iterator[Imported]:
        """Yield the events of all traces that are left: runs of several traces as a whole, in order of time."""
        runs: dict[str, list[str]] = {}
        for trace, steps in self._traces.items():
            named = "" if self._run_is_trace else next((step.run for step in steps if step.run), "")
            runs.setdefault(f"run {named}" if named else f"trace {trace}", []).append(trace)
        for traces in sorted(runs.values(), key=self._began):
            events = [event for trace in traces for event in self._read(trace, complete=True)]
            if len(traces) > 1:
                events.sort(key=lambda event: event.at)
            yield from self._imported(events)
        self.tally.repeated += self.counts.repeated
        self.tally.notes.update(dict.fromkeys(self.counts.notes()))

    def _began(self, traces: list[str]) -> int:
        times = [step.start or step.end for trace in traces for step in self._traces[trace]]
        return min((time for time in times if time), default=0)

    def _read(self, trace: str, *, complete: bool) -> list[TraceEvent]:
        steps = self._traces.pop(trace)
        self._bytes -= self._sizes.pop(trace)
        return turns_of(steps, self.counts, TraceOptions(run_is_trace=self._run_is_trace, complete=complete))

    def _imported(self, events: list[TraceEvent]) -> Iterator[Imported]:
        for one in events:
            yield Imported(one.event, one.number, self.unit)
