"""The turn processor: decodes records, steps them through the engine, and collects the records to publish.

It is synchronous and does no I/O. A bad record affects at most its own run: an unreadable record goes to the
dead-letter topic, and so does an event on which the engine fails, whose run keeps its state.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Final, cast

import msgspec

from streamproc.core.decision import Decision, set_place
from streamproc.core.provider_calls import CallCollector
from streamproc.core.refusal import STRANGER
from streamproc.core.run_state import RunState
from streamproc.core.slice_steps import FAULT, LAST, NOT_ACTIVE, STEPPED, UNREAD, SliceSteps
from streamproc.core.status import encode_status
from streamproc.detectors import LAYERS
from streamproc.errors import InvalidEvent, Problem
from streamproc.fingerprint import read_event
from streamproc.fleet.lost_runs import STATUS_EVERY_MS
from streamproc.fleet.record_signing import CHECKED_TYPES, RESUME_HEADER, check_log_event
from streamproc.kafka.log_limit import LogLimit
from streamproc.kafka.partitioning import EVERYWHERE, Home
from streamproc.kafka.reading import log_time
from streamproc.model.guard_report import is_guard_report
from streamproc.model.wire import (
    ASIDE,
    HaltAcknowledged,
    ModelCalled,
    OperatorResume,
    OperatorStop,
    RunFinished,
    RunStarted,
    Turn,
    decode,
    encode,
)
from streamproc.tracing.trace_context import TURN_HEADER, find_traceparent
from streamproc.worker.counts import ProcessorCounts, WorkerCounts
from streamproc.worker.decision_log import log_decisions
from streamproc.worker.limits import HELD_CHARGES_MAX, HELD_PAYERS_MAX
from streamproc.worker.new_runs import too_many_new_runs
from streamproc.worker.publishing import (
    NO_HEADERS,
    POISON,
    OutgoingRecord,
    control_record,
    dead_letter_record,
    kept_halt,
)
from streamproc.worker.records import NO_VALUE, UNREADABLE, placed_record, too_large, wrong_key
from streamproc.worker.resumes import note_lifted, resumed_by
from streamproc.worker.slice_effects import SliceEffects
from streamproc.worker.spend import call_records, spend_records
from streamproc.worker.strays import Strays
from streamproc.worker.timed_records import TimedRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamproc.core.engine import Engine
    from streamproc.core.states import Held
    from streamproc.fleet.state import Fleet
    from streamproc.model.wire import Event
    from streamproc.worker.fleet_commands import FleetCommands
    from streamproc.worker.records import Fetched, Records
    from streamproc.worker.tables import Runs

log = logging.getLogger(__name__)
limited = LogLimit(log)
FIELD: Final = re.compile(r"[.\[]")  # ends the name of a field that leads into it

STATUS_EVENTS: Final = frozenset({RunStarted, RunFinished, OperatorStop, OperatorResume, HaltAcknowledged})
"""Events after which the status is published without a decision: they change it, or a person waits for the answer."""

_decode_decision: Final = msgspec.json.Decoder(Decision).decode


class TurnProcessor:
    """Steps slices of one partition's records through the engine."""

    def __init__(
        self,
        engine: Engine,
        topic: str,
        *,
        event_bytes_max: int,
        dead_letter_bytes: int,
        version: str,
        new_runs_max: int = 0,
        home: Home | None = None,
        fleet_commands: FleetCommands | None = None,
        counts: WorkerCounts | None = None,
        calls: bool = False,
    ) -> None:
        """With `calls`, what turns and events say about calls of providers goes to the spend topic."""
        self._calls = CallCollector(enabled=calls)
        self.counts = ProcessorCounts()
        self._seen = counts or WorkerCounts()
        self.soon: Callable[..., object] = lambda work, *arguments: work(*arguments)
        """Does work for which no decision waits; at once, unless the worker sets this."""
        self._fleet_commands = fleet_commands
        self._engine = engine
        self._topic = topic
        self._traceparents: dict[bytes, str] = {}  # of the turns that halted runs in this slice
        self._to_log: list[tuple[Decision, str]] = []  # with the traceparents of the turns that caused them
        self._event_bytes_max = event_bytes_max
        self._new_runs_max = new_runs_max
        self._home = home or EVERYWHERE
        self._strays = Strays(self._home, topic)
        self._dead_letter_bytes = dead_letter_bytes
        self._version = version

    def accept(self, runs: Runs, records: Records[Fetched], *, more: bool = False) -> list[OutgoingRecord]:
        """Step records of one partition, oldest first; return the records to publish.

        A record that its run has already applied, by offset, is skipped. If `more` records are waiting, the
        charges of these are published with theirs, or by `due`.
        """
        began_s = time.perf_counter()
        effects = SliceEffects(self._calls)
        for piece in records.pieces() if isinstance(records, TimedRecords) else [list(records)]:
            self._step_piece(runs, piece, effects)
            effects.end_piece(len(piece))
        self.counts.records += effects.records
        runs.charges += effects.charges
        runs.payers.update((one.session or one.run_id, one.user) for one in (effects.charges if more else ()))
        outgoing = effects.outgoing
        if not more or len(runs.charges) >= HELD_CHARGES_MAX or len(runs.payers) >= HELD_PAYERS_MAX:
            outgoing += self.due(runs)
        outgoing += call_records(self._calls.take(runs.partition))
        outgoing += self._statuses(runs, effects.changed, effects.again)
        self._traceparents.clear()
        if self._to_log:
            to_log, self._to_log = self._to_log, []
            self.soon(log_decisions, to_log)
        self._seen.stepped(runs.partition, effects.records, time.perf_counter() - began_s)
        return outgoing

    def due(self, runs: Runs) -> list[OutgoingRecord]:
        """Return what has to be published before the states of these runs are stored."""
        charges, runs.charges = runs.charges, []
        runs.payers.clear()
        return spend_records(charges, runs.partition)

    def _step_piece(self, runs: Runs, records: Sequence[Fetched], effects: SliceEffects) -> None:
        """Step records, those of one run after the other; what follows from them is in the order of the records."""
        steps = SliceSteps(self._engine, decode, records, effects.called, self._event_bytes_max, STATUS_EVERY_MS)
        while (place := steps.sort_on(runs.active)) >= 0:
            event = self._read(records[place], runs.partition, effects, place)
            if event is not None and (
                records[place].key in runs.active or self._load(runs, event, records[place], effects, place) is not None
            ):
                steps.take(place, event)
        watched = self._fleet_commands is not None and self._fleet_commands.killing is not None
        while (place := steps.step_on(runs.active, runs.dirty, effects.charged, watched)) >= 0:
            record, event, why = records[place], steps.event, steps.why
            if why == STEPPED:
                self._stepped(runs, record, event, steps, effects, place)
            elif why == UNREAD:
                event = self._read(record, runs.partition, effects, place, event)
                steps.know(place, event) if event is not None else steps.pass_over()
            elif why == FAULT:
                effects.at(place).append(self._failed(runs, record, event, cast(Exception, steps.problem)))
            elif why == NOT_ACTIVE:
                event = steps.known.get(place) or self._read(record, runs.partition, effects, place)
                ready = event is not None and self._load(runs, event, record, effects, place) is not None
                steps.know(place, event) if ready else steps.pass_over()
            else:
                self.counts.repeated += 1
                if why == LAST:
                    # Another worker may not have known its state yet, published an older status, and ended.
                    effects.repeated.append((place, cast(bytes, record.key), event))

    def _stepped(
        self, runs: Runs, record: Fetched, event: Event, steps: SliceSteps, effects: SliceEffects, place: int
    ) -> None:
        """Publish what follows from a step."""
        key, outgoing = cast(bytes, record.key), effects.at(place)
        if steps.refused is not None:
            why = "token" if steps.refused is STRANGER else "outdated"
            outgoing.append(self._refused(why, record, runs.partition, steps.refused))
            return
        killing = self._fleet_commands.killing if self._fleet_commands is not None else None
        if killing is not None and key not in effects.stopped:
            state = cast(RunState, runs.state(key))
            if state.halted < 0:
                effects.stopped.update(self._kill(state, event, record.offset, killing, outgoing))
        if steps.decisions or steps.unseen or type(event) in STATUS_EVENTS:
            self._decided(runs, record, event, steps.decisions, outgoing)
            effects.changes.append((place, key, event))

    def _load(
        self,
        runs: Runs,
        event: Event,
        record: Fetched,
        effects: SliceEffects,
        place: int,
    ) -> Held | None:
        """Return the state of a run that is not active; create that of a new run. None: the record is not at home, or
        its publisher begins too many runs.

        Commands and the workers' own events begin runs without limit: their authors are checked.
        """
        key = cast(bytes, record.key)
        if not self._home.holds(key, runs.partition):
            effects.at(place).extend(self._away(runs, event, record))
            return None
        state = runs.load(key)
        if state is None:
            limit = self._new_runs_max
            if limit and type(event) not in CHECKED_TYPES and not runs.new_runs.admit(record, log_time(record), limit):
                refused = self._refused("new_runs", record, runs.partition, too_many_new_runs(record, limit))
                effects.at(place).append(refused)
                return None
            state = runs.states.begin(runs.partition)
            runs.keep(key, state)
            effects.changes.append((place, key, event))
            self._strays.began(key, runs.partition)
        return state

    def _away(self, runs: Runs, event: Event, record: Fetched) -> list[OutgoingRecord]:
        """Refuse a record outside of its home. Before such records were refused, a run could be halted there: an
        operator's resume lifts that halt, and the run and its status are removed from this partition."""
        key = cast(bytes, record.key)
        state = runs.state(key) if type(event) is OperatorResume else None
        if state is None or state.halted < 0:
            runs.active.pop(key, None)
            refused = self._refused("partition", record, runs.partition, self._home.problem(key, runs.partition))
            return [refused, *self._strays.refuse(record, runs.partition)]
        outgoing: list[OutgoingRecord] = []
        outcome = self._engine.step(runs.active[key], event, log_time(record), record.offset)
        runs.active[key] = outcome.kept
        if outcome.refused is not None:
            outgoing.append(self._refused("outdated", record, runs.partition, outcome.refused))
        elif outcome.decisions:
            self._decided(runs, record, event, outcome.decisions, outgoing)
            outgoing.append(self._status(runs, key, event.run_id, cast(RunState, runs.state(key))))
            outgoing.append(OutgoingRecord("runs", key, None, offset=record.offset))
            runs.overdue.add(key)  # it leaves the table with the next write
        del runs.active[key]
        return outgoing

    def _read(
        self, record: Fetched, partition: int, effects: SliceEffects, place: int, known: Event | None = None
    ) -> Event | None:
        """Return the event of a record, which may be `known`; for an unusable one add a dead letter and return None.
        Feedback is checked, and changes nothing, as a guard's report does: no state is loaded for them, and no new run
        begins."""
        value, why = record.value, "unreadable"
        try:
            if value is None:
                raise InvalidEvent((NO_VALUE,))
            if len(value) > self._event_bytes_max:
                why = "too_large"
                raise InvalidEvent((too_large(value, self._event_bytes_max),))
            event = known if known is not None else read_event(value)
            if event.run_id.encode() != record.key:
                why = "key"
                raise InvalidEvent((wrong_key(event, record.key),))
            if type(event) is not Turn:
                why = "signature"
                self._check(event, record, partition)
                if type(event) is ModelCalled:
                    effects.called.append((place, record, event))
                if type(event) in ASIDE or is_guard_report(event):
                    return None
        except InvalidEvent as problem:
            effects.at(place).append(self._refused(why, record, partition, *problem.problems))
        except Exception as problem:  # noqa: BLE001 (a parser's own limits: nesting, numbers, surrogates)
            what = Problem("event", f"{type(problem).__name__}: {problem}", UNREADABLE)
            effects.at(place).append(self._refused(why, record, partition, what))
        else:
            return event
        self._seen.invalid[partition] += 1
        return None

    def _check(self, event: Event, record: Fetched, partition: int) -> None:
        """Count an event that is no turn. Raise `InvalidEvent` if it is a command that no operator has signed, or an
        event of workers that none has.
        """
        if type(event) in CHECKED_TYPES and self._fleet_commands is not None:
            check_log_event(event, record, self._fleet_commands.authority, self._fleet_commands.record_signer)
        self._seen.others[partition, type(event)] += 1

    def refuse(self, partition: int, record: Fetched) -> OutgoingRecord:
        """Return the dead letter of a record that crashes the process. Its run does not apply it."""
        self._seen.records[partition] += 1
        self._seen.invalid[partition] += 1
        return self._refused("poison", record, partition, POISON)

    def _kill(
        self, state: RunState, event: Event, offset: int, fleet: Fleet, outgoing: list[OutgoingRecord]
    ) -> tuple[bytes, ...]:
        """Stop a run whose user, tenant or session is killed, by an event in the log on which the engine decides."""
        command = (
            None
            if state.finished
            else fleet.killing(state.scope.user, state.scope.tenant, state.scope.session or event.run_id)
        )
        if command is None or self._fleet_commands is None:
            return ()
        stop = self._fleet_commands.stop_of(command, event.run_id, f"{command.id}@{offset}")
        outgoing.append(OutgoingRecord("turns", event.run_id.encode(), encode(stop)))
        return (event.run_id.encode(),)

    def _refused(self, why: str, refused: Fetched, partition: int, *problems: Problem) -> OutgoingRecord:
        record, first = placed_record(refused, self._topic, partition), problems[0]
        self.counts.refused += 1
        self._seen.dead_letters[why] += 1
        limited(
            logging.WARNING, f"refused {FIELD.split(first.field, 1)[0]} in {record.topic}[{record.partition}]",
            "refused %s[%d]@%d: %s: %s (the record is in the dead-letter topic)",
            record.topic, record.partition, record.offset, first.field, first.what,
        )  # fmt: skip
        return dead_letter_record(record, problems, version=self._version, bytes_max=self._dead_letter_bytes)

    def _failed(self, runs: Runs, failing: Fetched, event: Event, problem: Exception) -> OutgoingRecord:
        """Undo a failed step. The event counts as applied and is not tried again."""
        record = placed_record(failing, self._topic, runs.partition)
        key = cast(bytes, record.key)
        runs.active[key] = self._engine.skip(runs.rebuild(key, self._again), record.offset)
        runs.dirty.setdefault(key, [])
        self.counts.failures += 1
        self._seen.dead_letters["engine"] += 1
        limited(
            logging.ERROR, f"failures of the engine in {record.topic}[{record.partition}]",
            "the engine failed on %s[%d]@%d, run %s; the run keeps its state (the record is in the dead-letter topic)",
            record.topic, record.partition, record.offset, event.run_id, exc_info=problem,
        )  # fmt: skip
        what = Problem("engine", f"{type(problem).__name__}: {problem}", "report this event")
        return dead_letter_record(record, (what,), version=self._version, bytes_max=self._dead_letter_bytes)

    def _again(self, state: Held, record: Fetched) -> Held:
        """Step a record again that was stepped before: its decisions and charges have left."""
        event = read_event(cast(bytes, record.value))
        return self._engine.step(state, event, log_time(record), record.offset).kept

    def _decided(
        self, runs: Runs, record: Fetched, event: Event, decisions: list[Decision], outgoing: list[OutgoingRecord]
    ) -> None:
        key = cast(bytes, record.key)
        if type(event) is OperatorResume:
            note_lifted(runs, key, runs.states.open(runs.active[key]), event, decisions)
        if type(event) is RunFinished and (state := runs.states.open(runs.active[key])).halted < 0:
            self._seen.finished(state.scope.workflow)
        self.counts.decisions += len(decisions)
        times = self._seen.times(log_time(record)) if decisions else None
        traceparent = find_traceparent(record.headers, TURN_HEADER) if decisions else ""
        for decision in decisions:
            self._seen.decided(decision)
            set_place(decision, self._topic, runs.partition, record.offset)
            outgoing_record = control_record(key, decision, times, traceparent)
            if decision.type == "run.resumed" and (resume := resumed_by(runs, key)) is not None:
                outgoing_record.headers.append((RESUME_HEADER, resume))
            outgoing.append(outgoing_record)
            if decision.severity == "halt" or decision.code in LAYERS:
                self._to_log.append((decision, traceparent))
            if decision.severity == "halt":
                self.counts.halts += 1
                self._traceparents[key] = traceparent
                if resumed_by(runs, key) is not None:
                    del runs.halts[key]
                if key not in runs.halts:
                    self._seen.halted(decision)
                runs.halts.setdefault(key, kept_halt(decision, outgoing_record.value or b""))

    def _statuses(self, runs: Runs, changed: dict[bytes, Event], again: dict[bytes, Event]) -> Iterator[OutgoingRecord]:
        """Yield the statuses of these runs.

        Of a halted run of which a stub is left, the last status says why it is halted, and a new one would not: it is
        only published `again`, where another worker may have published `running`.
        """
        for key, event in (again | changed).items():
            state = cast(RunState, runs.state(key))
            if state.halted < 0 or key in runs.halts or key in again:
                yield self._status(runs, key, event.run_id, state)

    def status_of(self, runs: Runs, key: bytes) -> OutgoingRecord | None:
        """Return the status of a run as it is now; None for a new run."""
        state = runs.state(key)
        return None if state is None else self._status(runs, key, key.decode(), state)

    def _status(self, runs: Runs, key: bytes, run_id: str, state: RunState) -> OutgoingRecord:
        halt, resume = runs.halts.get(key), resumed_by(runs, key)
        try:
            decision = _decode_decision(halt) if halt is not None and resume is None else None
        except (ValueError, RecursionError):  # damaged in the changelog: the run is halted all the same
            decision = None
        value = encode_status(self._engine.status(state, run_id, decision))
        headers = NO_HEADERS if resume is None else [(RESUME_HEADER, resume)]
        if decision is not None and (traceparent := self._traceparents.get(key)):
            headers = [(TURN_HEADER, traceparent.encode())]
        return OutgoingRecord("runs", key, value, headers, offset=state.offset)
