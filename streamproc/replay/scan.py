"""Run the engine over files, without a broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from streamproc.core.decision import Decision
from streamproc.core.kept_runs import KeptRuns
from streamproc.core.local_accounts import LocalAccounts
from streamproc.core.local_providers import LocalProviders
from streamproc.core.run_state import RunState
from streamproc.fingerprint import HashKey
from streamproc.importers import LogFile
from streamproc.model.wire import Event, Turn
from streamproc.policy import Policy
from streamproc.replay.source import LogEvent, Source
from streamproc.replay.turn_log import TurnLog, packed_turn

BATCH_MAX: Final = 64  # events fingerprinted before they are stepped: each part of the work keeps to its own memory


class ScanEvent(NamedTuple):
    """An event to step, with its place, and what is kept of it if it is a turn. `LogEvent` has the same order."""

    event: Event
    packed: bytes | None
    number: int
    unit: str


class EventPlace(NamedTuple):
    """Where an event stands: the index of its log among the sources, and its number there."""

    source: int
    number: int
    unit: str


class Spent(NamedTuple):
    """What turns have spent."""

    turns: int = 0
    tokens: int = 0
    cost_usd_micro: int = 0

    @classmethod
    def by(cls, run: RunState) -> Spent:
        """Return what a run has spent so far."""
        return cls(run.turns, run.ledger.total_tokens, run.ledger.cost_usd_micro)

    def since(self, before: Spent) -> Spent:
        """Return what was spent after another point of the same run."""
        return Spent(*(max(0, end - begin) for begin, end in zip(before, self, strict=True)))


class Scan:
    """A scan of files under one policy.

    Runs are independent, except for the budgets that they share. A run that continues in a later file is the same run.
    Hashes are made under the `key`, if there is one, as a publisher with that key makes them. With `turn_log`, the last
    turns of each run are kept there. With `providers`, calls of models reach their breakers, in the order of the logs.

    While decisions are iterated, `place` is where the event stands that the last one is about. Afterwards `decisions`
    has all of them by run.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        policy: Policy,
        key: HashKey | None = None,
        *,
        turn_log: TurnLog | None = None,
        providers: LocalProviders | None = None,
    ) -> None:
        self.sources = list(sources)
        self.runs: KeptRuns[str] = KeptRuns(policy.engine())
        self.events = self.turns = 0
        self.place = EventPlace(0, 0, "line")
        self.decisions: dict[str, list[Decision]] = {}
        self.turn_log = turn_log
        self._sources_of: defaultdict[str, dict[int, None]] = defaultdict(dict)
        self._key = key
        self._at_halt: dict[str, Spent] = {}
        self._accounts = LocalAccounts(self.runs, providers)

    def __iter__(self) -> Iterator[Decision]:
        """Yield decisions in log order. Raises what `Source` raises."""
        for number, source in enumerate(self.sources):
            for batch in self._read(source):
                yield from self.step(number, batch)
            source.log.release()

    def step(self, source: int, events: Sequence[ScanEvent | LogEvent]) -> Iterator[Decision]:
        """Step events of one log, and yield the decisions."""
        step, sources_of, log, read = self._accounts.step, self._sources_of, self.turn_log, self.runs.read
        for event, kept, number, unit in events:
            run_id = event.run_id
            self.events += 1
            sources_of[run_id][source] = None
            decisions = step(event, event.at)
            if type(event) is Turn:
                self.turns += 1
                if log is not None and (run := read(run_id)) is not None:
                    packed = kept if isinstance(kept, bytes) else packed_turn(event, kept or {}, number, unit)
                    log.add(run_id, run.turns - 1, source, packed)
            for decision in decisions:
                self.decisions.setdefault(decision.run_id, []).append(decision)
                self.place = EventPlace(source, number, unit)
                if decision.severity == "halt":
                    self._at_halt.setdefault(decision.run_id, self.spent_by(decision.run_id))
                yield decision

    def _read(self, source: Source) -> Iterator[Sequence[LogEvent]]:
        """Yield the events of a log. Those of a file come in batches; what is written meanwhile comes at once."""
        return self._batches(source.read(self._key), 1 if source.log.is_stream else BATCH_MAX)

    def _batches(self, events: Iterator[LogEvent], size: int) -> Iterator[Sequence[LogEvent]]:
        while True:
            batch: list[LogEvent] = []
            failure: Exception | None = None
            try:
                batch.extend(islice(events, size))
            except Exception as error:  # noqa: BLE001  # raised again, after the events before it
                failure = error
            yield batch
            if failure is not None:
                raise failure
            if len(batch) < size:
                return

    def turns_of(self) -> dict[str, int]:
        """Return how many turns each run has taken."""
        return {run_id: run.turns for run_id in self.runs if (run := self.runs.read(run_id)) is not None}

    def name_of(self, run_id: str) -> str:
        """Return the name by which a person knows a run, as its logs have it; empty if they have none."""
        logs = (self.sources[number].names for number in self._sources_of.get(run_id, ()))
        return next((name for log in logs if log is not None and (name := log.name_of(run_id))), "")

    def spent_by(self, run_id: str) -> Spent:
        """Return what a run has spent so far."""
        run = self.runs.read(run_id)
        return Spent() if run is None else Spent.by(run)

    def spent_after_halt(self, run_id: str) -> Spent:
        """Return what a halted run has spent after its halt."""
        return self.spent_by(run_id).since(self._at_halt[run_id])


def size_of(log: LogFile) -> int:
    """Return the bytes of a log as it is stored; 0 if they are not known."""
    if log.is_stream:
        return 0
    path = Path(log.path)
    try:
        return sum(one.stat().st_size for one in path.rglob("*")) if log.is_folder else path.stat().st_size
    except OSError:
        return 0
