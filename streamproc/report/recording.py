"""Steps an engine over a log, and records what a report shows: of files, or of records of the turns topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from streamproc.core.decision import Decision
from streamproc.core.kept_runs import KeptRuns
from streamproc.core.local_accounts import LocalAccounts
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.signing import command_signer
from streamproc.model.guard_report import read_excerpts
from streamproc.model.turn_texts import TurnTexts, turn_texts
from streamproc.model.wire import Event, Turn
from streamproc.replay.log import LogReplay
from streamproc.report.history import TEXTS_MAX, Place, RunHistory
from streamproc.report.tree import RecordedTrees

if TYPE_CHECKING:
    from streamproc.core.engine import Engine
    from streamproc.core.outcome import Outcome
    from streamproc.core.packed_states import Held
    from streamproc.core.run_state import RunState
    from streamproc.fingerprint import HashKey
    from streamproc.importers import Import
    from streamproc.kafka.reading import Record
    from streamproc.policy import Policy
    from streamproc.replay.source import LogEvent, Source
    from streamproc.settings import Settings

NOWHERE: Final = Place(0, 0, "event")


class Recording:
    """The runs of a log under one policy, as a report needs them. `only` records a single run; all are stepped, as they
    may share budgets.

    `histories` holds the runs in the order of their first events, `logs` the names of files, or of the topic.
    """

    def __init__(self, policy: Policy, *, only: str | None = None) -> None:
        self.policy = policy
        self.only = only
        self.histories: dict[str, RunHistory] = {}
        self.logs: list[str] = []
        self.commands: tuple[str, ...] = ()  # that show the same again; filled in by the caller
        self.trees = RecordedTrees()
        self.run_ids: set[str] = set()  # of all runs in the log
        self.left_out = 0  # turns of the run before the first that was read; filled in by the caller
        self._engine = ObservedEngine(policy.engine(), self)
        self._place, self._texts = NOWHERE, cast("TurnTexts | None", None)
        self._size = 0
        self._names: dict[int, Import] = {}  # what the logs that were read share
        self._accounts: LocalAccounts | None = None

    @property
    def engine(self) -> Engine:
        """The engine to step; it records what it is stepped over."""
        return cast("Engine", self._engine)

    # -- files

    def read(self, sources: Iterable[Source], key: HashKey | None = None) -> Iterator[Decision]:
        """Step over the events of files, and yield the decisions in log order. Raises what `Source` raises."""
        for source in sources:
            name = source.log.name
            if source.names is not None:
                self._names[id(source.names)] = source.names
            for found in source.read(key):
                yield from self.step(found, name)

    def step(self, found: LogEvent, log: str = "") -> list[Decision]:
        """Step over one event of a file, and return the decisions that it causes."""
        if self._accounts is None:
            self._accounts = LocalAccounts(KeptRuns(self.engine))
        if not self.logs or self.logs[-1] != log:
            self.logs.append(log)
        place = Place(len(self.logs) - 1, found.number, found.unit)
        self._begin(found.event, place, found.raw)
        return self._accounts.step(found.event, found.event.at)

    def name_of(self, run_id: str) -> str:
        """Return the name by which a person knows a run; empty if its log has none."""
        return next((name for one in self._names.values() if (name := one.name_of(run_id))), "")

    # -- Kafka

    def replay(self, settings: Settings) -> LogReplay:
        """Return what reads the records of the turns topic, as a worker with these settings does; for `feed`."""
        self.logs = [settings.topic("turns")]
        return LogReplay(
            self.engine, event_bytes_max=settings.event_bytes_max, only=self.only, authority=command_signer(settings),
            record_signer=record_signer(settings),
        )  # fmt: skip

    def feed(self, log: LogReplay, records: Iterable[Record]) -> None:
        """Step over records of a topic, partition after partition, each in log order."""
        for record in records:
            if record.key is not None:
                self.run_ids.add(record.key.decode("utf-8", "replace"))
            self._place, self._texts = Place(record.partition, record.offset, "offset"), None
            for _ in log.decide((record,)):
                pass

    # -- what the engine did

    def _begin(self, event: Event, place: Place, raw: Any) -> None:
        self._place = place
        wanted = type(event) is Turn and (self.only is None or event.run_id == self.only)
        self._texts = turn_texts(raw) if wanted else None

    def applied(self, run: RunState, event: Event, decisions: Iterable[Decision]) -> None:
        """Record an event that the engine has applied, and its decisions."""
        if event.parent_run_id and event.run_id not in self.run_ids:
            parent = self.histories.get(event.parent_run_id)
            if parent is not None:
                parent.noted.born(event, parent.turns, run.at_ms, f"{self._place.unit} {self._place.number}")
        self.run_ids.add(event.run_id)
        found = list(decisions)
        self.trees.note(event.run_id, run, found)
        if self.only is not None and event.run_id != self.only:
            return
        history = self.histories.get(event.run_id)
        if history is None:
            history = self.histories[event.run_id] = RunHistory(event.run_id)
        texts = self._texts
        if texts is None and type(event) is Turn and event.content is not None and self._place.unit == "offset":
            texts = turn_texts(event.content)
        before = history.size
        for event_id, fields in read_excerpts(event).items():
            history.add_texts(event_id, turn_texts(fields))
        history.note(self._engine.engine, run, event, self._place, texts)
        if found and len(run.cycles.table):
            history.note_cycles(self._engine.engine, run)
        for decision in found:
            history.decided(decision)
        self._size += history.size - before
        if self._size > TEXTS_MAX:
            self._shrink()

    def _shrink(self) -> None:
        """Forget the texts of runs without decisions, oldest first, then those of others, until half are gone."""
        for history in sorted(self.histories.values(), key=lambda one: bool(one.decisions)):
            if self._size <= TEXTS_MAX // 2:
                break
            self._size -= history.drop_texts()


class ObservedEngine:
    """An engine that reports each event and its outcome to a recording."""

    def __init__(self, engine: Engine, recording: Recording) -> None:
        self.engine = engine
        self.states = engine.states
        self._recording = recording

    def step(self, state: Held, event: Event, at_ms: int | None, position: int = -1) -> Outcome:
        """Apply an event, as `Engine.step` does."""
        outcome = self.engine.step(state, event, at_ms, position)
        self._recording.applied(self.states.open(outcome.kept), event, outcome.decisions)
        return outcome
