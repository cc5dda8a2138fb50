"""A slice of a log in one call: its records are read, and its turns stepped, and only what has something to say becomes
the caller's business.

The records of one run are stepped one after the other, however the log interleaves the runs, so each state is read and
written once a slice. Runs share nothing, so each decides what it would have decided in the log's order; the caller puts
what is said back into that order, by the place of the record in the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from streamproc.core.board.ends import may_resume_tasks
from streamproc.core.charges import Charge
from streamproc.core.decision import Decision
from streamproc.core.engine import Engine
from streamproc.core.outcome import Outcome
from streamproc.core.packed_states import Held, PackedStates
from streamproc.core.records import ccall, cclass, cfunc, final, i64, is_utf8
from streamproc.core.run_state import RunState
from streamproc.errors import Problem
from streamproc.model.wire import Event, Turn

ALL_DONE: Final = -1

# Why the caller has to look at a record.
STEPPED: Final = 0  # it was stepped, and something follows, or may follow
REPEATED: Final = 1  # its run has applied a later one
LAST: Final = 2  # it is the last that its run has applied
FAULT: Final = 3  # the engine has raised `problem`; the state is the one before
UNREAD: Final = 4  # it is no turn, or cannot be read: the caller gives its event to `know`, or to `pass_over` it
NOT_ACTIVE: Final = 5  # its run is not among the active ones any more: it was not stepped


@final
@cclass
class SliceSteps:
    """The steps of one slice, for a caller that keeps the states of `active` runs.

    First `sort_on` is called until all records are sorted, then `step_on` until all are stepped. Each returns the place
    of a record that the caller has to look at.
    """

    bytes_max: i64  # of a record
    every_ms: i64  # log time after which a caller looks at a run again
    place: i64  # of the record to be sorted next
    run: i64  # the run that is stepped, as a place in `keys`
    at: i64  # and which of its records comes next
    why: i64  # the caller has to look at a record
    engine: Engine
    wrapped: Any  # an engine of another type, asked by its `step`; None: `engine`
    states: PackedStates
    decode: Callable[[bytes], Any]
    records: list[Any]
    known: dict[int, Any]  # events that the caller has read, by place
    keys: list[Any]  # of the runs, in the order of their first records
    places: dict[bytes, list[int]]  # of the records of each run
    unseen: Any  # whether no publisher has sent an event of its run before, or its status must be looked at again
    called: list[Any]  # gets the place, the record and the event of each turn that names a model or a provider
    stepped: list[Any]  # events since the state was opened
    event: Any  # of the record that the caller has to look at; None: it was not read
    decisions: list[Decision]  # about it
    charges: list[Charge]
    refused: Problem | None
    problem: Exception | None

    def __init__(
        self,
        engine: Any,
        decode: Callable[[bytes], Any],
        records: Sequence[Any],
        called: list[Any],
        bytes_max: int,
        every_ms: int,
    ) -> None:
        self.states = engine.states
        if type(engine) is Engine:
            self.engine, self.wrapped = engine, None
        else:
            self.wrapped = engine
        self.decode, self.records, self.bytes_max, self.every_ms = decode, list(records), bytes_max, every_ms
        self.place = self.run = self.at = 0
        self.known, self.keys, self.places, self.event = {}, [], {}, None
        self.stepped, self.called = [], called
        self.why, self.decisions, self.charges, self.refused, self.problem = STEPPED, [], [], None, None

    @ccall
    def sort_on(self, active: dict[bytes, Held]) -> i64:
        """Sort records by run up to one whose run is not active, and return its place: the caller passes it to `take`,
        or it is not stepped."""
        records: list[Any] = self.records
        place: i64
        for place in range(self.place, len(records)):
            record: Any = records[place]
            key: Any = record.key
            if key not in active:
                self.place = place + 1
                return place
            self._sort(place, key)
        self.place = len(records)
        return ALL_DONE

    def take(self, place: int, event: Any) -> None:
        """Step this record, whose event is known."""
        self.known[place] = event
        self._sort(place, self.records[place].key)

    @cfunc
    def _read(self, value: Any, key: Any) -> Any:
        """Return the event of a record; None if there is anything to say against it."""
        try:
            if value is None or len(value) > self.bytes_max:
                return None
            event: Any = self.decode(value)
            return event if is_utf8(event.run_id, key) else None
        except Exception:  # noqa: BLE001 (the caller reads it again, and says what is wrong)
            return None

    @cfunc
    def _sort(self, place: i64, key: Any) -> None:
        places: Any = self.places.get(key)
        if places is None:
            self.places[key] = [place]
            self.keys.append(key)
        else:
            places.append(place)

    @ccall
    def step_on(
        self, active: dict[bytes, Held], dirty: dict[bytes, list[Any]], charges: list[Any], watched: bool
    ) -> i64:
        """Step records up to one about which there is something to say, and return its place; `why` says what.

        A turn without decisions is passed over, unless it is the first event of its run, the first after `every_ms`,
        or the run is `watched` and not halted. States are kept in `active`, and `dirty` names those that changed, with
        the records that objects have applied. `charges` get the place and the charges of each record that has any.
        """
        places: list[int]
        while self.run < len(self.keys):
            key: Any = self.keys[self.run]
            places = self.places[key]
            if self.at < len(places):  # else there was something to say about its last record
                place: i64 = self._step_run(key, places, active, dirty, charges, watched)
                if place != ALL_DONE:
                    return place
            self.run += 1
            self.at = 0
        return ALL_DONE

    def know(self, place: int, event: Any) -> None:
        """Step a record that was not stepped yet, whose event is known."""
        self.known[place] = event

    def pass_over(self) -> None:
        """Do not step a record that was not stepped yet."""
        self.at += 1

    @cfunc
    def _step_run(
        self,
        key: Any,
        places: list[int],
        active: dict[bytes, Held],
        dirty: dict[bytes, list[Any]],
        charges: list[Any],
        watched: bool,
    ) -> i64:
        states: PackedStates = self.states
        records: list[Any] = self.records
        first: i64 = self.at
        found: i64 = ALL_DONE
        changed: bool = False
        before_ms: i64
        offset: i64
        place: i64
        held: Any = active.get(key)
        if held is None:
            self.why = NOT_ACTIVE
            return places[first]
        run: RunState = states.open_to_step(held)
        self.stepped = []
        while found == ALL_DONE and self.at < len(places):
            place = places[self.at]
            record: Any = records[place]
            event: Any = self._event_at(place, record, key)
            if event is None:
                self.why, found = UNREAD, place
                break
            self.stepped.append(event)
            self.at += 1
            offset = record.offset
            if offset <= run.offset:
                self.why, found = LAST if offset == run.offset else REPEATED, place
                break
            unseen: bool = not run.owner or (run.has_board and may_resume_tasks(run, event))  # its status says so
            before_ms = run.at_ms  # a run without decisions must not seem to be lost
            try:
                if self.wrapped is None:
                    self.decisions = self.engine.apply(run, event, record.timestamp, offset)
                    self.charges, self.refused = self.engine.charges, self.engine.refused
                    states.settle(run)
                    changed = True
                else:
                    active[key] = held = self._wrapped_step(held, event, record.timestamp, offset)
                    run = states.open_to_step(held)
            except Exception as problem:  # noqa: BLE001 (a fault of the engine costs one event, not the stream)
                if changed and isinstance(held, bytes):
                    active[key] = self._stepped_again(held, places[first : self.at - 1])
                self.why, self.problem = FAULT, problem
                return place
            self._note_changed(key, record, dirty, not isinstance(held, bytes))
            if self.charges:
                charges.append((place, self.charges))
            if type(event) is Turn and self.refused is None:
                self._note_called(place, record, event)
            unseen = unseen or before_ms // self.every_ms != run.at_ms // self.every_ms
            looked_at: bool = len(self.decisions) > 0 or self.refused is not None or (watched and run.halted < 0)
            if unseen or looked_at or type(event) is not Turn:
                self.why, self.unseen, found = STEPPED, unseen, place
        if changed:
            active[key] = states.close(run)
        return found

    @cfunc
    def _event_at(self, place: i64, record: Any, key: Any) -> Any:
        """Return an event to step; None, with what was read of it in `event`, if the caller has to look at it first."""
        if self.known:
            self.event = self.known.pop(place, None)
            if self.event is not None:
                return self.event
        self.event = self._read(record.value, key)
        return self.event if type(self.event) is Turn else None

    def _wrapped_step(self, held: Held, event: Event, at_ms: int | None, offset: int) -> Held:
        outcome: Outcome = self.wrapped.step(held, event, at_ms, offset)
        self.decisions, self.charges, self.refused = outcome.decisions, outcome.charges, outcome.refused
        return outcome.kept

    @cfunc
    def _note_changed(self, key: Any, record: Any, dirty: dict[bytes, list[Any]], is_object: bool) -> None:
        applied: Any = dirty.get(key)
        if applied is None:
            dirty[key] = [record] if is_object else []
        elif is_object:
            applied.append(record)

    @cfunc
    def _note_called(self, place: i64, record: Any, turn: Turn) -> None:
        if turn.model or turn.provider:
            self.called.append((place, record, turn))

    def _stepped_again(self, held: bytes, places: list[int]) -> Held:
        """Return the state before the record that failed: the state that was opened, and the records since."""
        run: RunState = self.states.open_to_step(held)
        for place, event in zip(places, self.stepped, strict=False):
            record = self.records[place]
            self.engine.apply(run, event, record.timestamp, record.offset)
            self.states.settle(run)
        return self.states.close(run)


@ccall
def piece_end(records: Sequence[Any], begin: i64, records_max: i64, bytes_max: i64, large: i64) -> i64:
    """Return the end of a piece of some records: it has so many records or bytes at most, or ends with a large one."""
    size: i64
    end: i64 = begin
    while end < len(records) and end - begin < records_max and bytes_max > 0:
        value: Any = records[end].value
        end += 1
        size = 0 if value is None else len(value)
        if size > large:
            break
        bytes_max -= size
    return end
