"""Judges events as they come: the engine, with its states in the log of `streamproc up`.

The log comes first: an event, the states after it and its decisions are written together, and only then is anyone told.
Log time is this machine's clock, and never goes back.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from streamproc.core.account_names import TREE
from streamproc.core.accounts import Account, dump_account, load_account
from streamproc.core.deadlines import deadline_event
from streamproc.core.decision import encode_decision, set_place
from streamproc.core.kept_runs import KeptRuns
from streamproc.core.local_accounts import LocalAccounts
from streamproc.core.local_providers import LocalProviders
from streamproc.core.providers import dump_breaker, load_breaker
from streamproc.core.session_tree import WORKING, TreeEntry
from streamproc.core.status import encode_status
from streamproc.errors import Unavailable
from streamproc.fingerprint import fingerprint, plain_turn
from streamproc.fingerprint.hash import content
from streamproc.fleet.command_events import ALL, state_event
from streamproc.importers.raw_turns import line_event_id, name
from streamproc.live.kills import COMMAND, CommandRequest, Kills
from streamproc.live.store import CONTROL, TURNS, LiveLog, StoredRun
from streamproc.model.controls import ControlEvent, RunStatus
from streamproc.model.provider_state import PREFIX
from streamproc.model.raw_events import parse_raw
from streamproc.model.redaction import redact_id
from streamproc.model.wire import Deadline, Event, encode

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.core.engine import Engine
    from streamproc.core.outcome import Outcome
    from streamproc.core.packed_states import Held
    from streamproc.core.run_state import RunState
    from streamproc.fingerprint import HashKey
    from streamproc.policy import Policy

KEPT_MAX: Final = 2_000  # runs kept in memory; others are read from the log when they go on
DUE_MAX: Final = 500  # deadlines at a time
OF_SESSIONS: Final = ("session:", f"{TREE}:")  # accounts of one session each

_decode = msgspec.json.Decoder(ControlEvent).decode


def stored_id(run_id: str) -> str:
    """Return the id by which the log knows a run: one that is too long, or has a secret in it, is replaced."""
    return redact_id(name(run_id)).encode("utf-8", "replace").decode()  # as that of a turn


class StoredRuns(KeptRuns[str]):
    """Runs whose states are read from the log when they are not in memory. `changed` are those to be written."""

    def __init__(self, engine: Engine, stored: LiveLog) -> None:
        super().__init__(engine, KEPT_MAX)
        self._stored = stored
        self.changed: set[str] = set()

    def step(self, key: str, event: Event, at_ms: int | None, position: int = -1) -> Outcome:
        self._load(key)
        return super().step(key, event, at_ms, position)

    def read(self, key: str) -> RunState | None:
        self._load(key)
        return super().read(key)

    def packed(self, key: str) -> bytes:
        """Return the state of a run as it is stored."""
        return self._states.packed(self._held[key])

    def drop(self) -> None:
        """Forget what is in memory: the log has the truth."""
        self._held.clear()
        self._objects.clear()
        self.changed.clear()

    def _load(self, key: str) -> None:
        if key not in self._held and (found := self._stored.run(key)) is not None:
            self._held[key] = found.state

    def _keep(self, key: str, held: Held) -> None:
        super()._keep(key, held)
        self.changed.add(key)


class DecisionRecord(NamedTuple):
    """A decision as JSON, with its position in the order of decisions and the run that it is about."""

    position: int
    run_id: str
    value: bytes


class BaseJudge(ABC):
    """What answers hooks and requests: whether a run may go on, and what was decided about it."""

    key: HashKey | None = None
    """Under which texts are hashed."""
    local = True
    """Whether events stay on this machine."""

    def __init__(self) -> None:
        self.on_decisions: list[Callable[[Sequence[ControlEvent]], object]] = []
        """Called with decisions once they are recorded."""

    @property
    def doubt(self) -> str:
        """Why turns may not be judged at the moment; empty if they are."""
        return ""

    def way_on(self, run_id: str) -> str:  # noqa: ARG002
        """How a halted session goes on, in a sentence."""
        return "Send another prompt to go on."

    def read(self, raw: Any, *, include_content: bool = False) -> Event:
        """Return a raw event, fingerprinted. Raises `InvalidEvent`."""
        if not include_content and (turn := plain_turn(raw, self.key, local=self.local)) is not None:
            return turn
        return fingerprint(parse_raw(raw), include_content=include_content, key=self.key, local=self.local)

    def spawn_refusal(self, session_id: str, parent: str, prompt: str, pending: int, now_ms: int) -> str:  # noqa: ARG002
        """Return why a run of a session may not start another one now; empty if it may, or if only its birth shows
        that. `pending` others are about to be born."""
        return ""

    def tell(self, decisions: Sequence[ControlEvent]) -> None:
        """Call `on_decisions`."""
        for told in tuple(self.on_decisions):
            told(decisions)

    @abstractmethod
    def feed(self, events: Sequence[Event], now_ms: int, /) -> list[ControlEvent]:
        """Take events, and return what was decided about their runs. Raises `Unavailable` if that cannot be done."""

    @abstractmethod
    def halted(self, run_id: str) -> ControlEvent | None:
        """Return the decision that halts a run; None if it may go on."""

    @property
    @abstractmethod
    def position(self) -> int:
        """The position of the newest record."""

    @abstractmethod
    def decisions_after(self, position: int) -> list[DecisionRecord]:
        """Return the decisions that came after a position, or the first of them."""


class Judge(BaseJudge):
    """Decides on events, and remembers what it has decided. It is not thread-safe."""

    def __init__(self, policy: Policy, stored: LiveLog) -> None:
        super().__init__()
        self.policy = policy
        self._engine = policy.engine()
        self._stored = stored
        self._runs = StoredRuns(self._engine, stored)
        self._providers = LocalProviders(policy.providers, policy.ref)
        self._accounts = LocalAccounts(self._runs, self._providers, stored=self._stored_account)
        self._halts: dict[str, ControlEvent | None] = {}  # of runs that were asked about
        self._new_halts: dict[str, ControlEvent | None] = {}  # that the log does not hold yet; None: it was lifted
        self._now_ms = stored.newest_ms()
        self._read_accounts()

    def feed(self, events: Sequence[Event], now_ms: int) -> list[ControlEvent]:
        """Record events, decide on them in their order, and return the decisions.

        Raises `Unavailable` if the log cannot be written: then nothing has happened.
        """
        return self._record(events, now_ms, heard=True)

    def obey(self, request: CommandRequest, now_ms: int) -> list[ControlEvent]:
        """Kill the runs of a user, tenant or session, also those to come, or lift that; return what was decided.

        Raises `InvalidEvent`, and `Unavailable` as `feed` does.
        """
        at_ms = self._now_ms = max(self._now_ms, now_ms)
        found: list[ControlEvent] = []
        with self._writing():
            command = self._kills.give(request, at_ms)
            if command is None:
                return []
            self._stored.append(CONTROL, ALL, at_ms, encode_decision(decision := state_event(command, at_ms=at_ms)))
            found.append(decision)
            for run_id in self._stored.going() if command.status == "STOP" else ():
                found += self._stop_if_killed(run_id, at_ms)
            self._write(at_ms, heard=False)
        self.tell(found)
        return found

    def _record(self, events: Sequence[Event], now_ms: int, *, heard: bool) -> list[ControlEvent]:
        at_ms = self._now_ms = max(self._now_ms, now_ms)
        found: list[ControlEvent] = []
        with self._writing():
            for event in events:
                found += self._step(event, at_ms)
                if self._kills.any:
                    found += self._stop_if_killed(event.run_id, at_ms)
            found += self._record_decisions(self._providers.pass_time(at_ms), at_ms, self._stored.position)
            self._write(at_ms, heard=heard)
        if found:
            self.tell(found)
        return found

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write everything of a block, or nothing. Raises `Unavailable` if the log cannot be written."""
        try:
            with self._stored.transaction():
                yield
        except sqlite3.Error as error:
            self._forget()
            raise Unavailable(f"the log cannot be written ({error}): make room on its disk") from error
        except BaseException:
            self._forget()
            raise

    def _stop_if_killed(self, run_id: str, at_ms: int) -> list[Decision]:
        stop = self._kills.stop(run_id, self._runs.read(run_id))
        return [] if stop is None else self._step(stop, at_ms)

    def way_on(self, run_id: str) -> str:
        state = self._runs.read(run_id)
        if state is not None and self._kills.of(run_id, state) is not None:
            return "It stays stopped until `streamproc clear` lifts the kill."
        return super().way_on(run_id)

    def spawn_refusal(self, session_id: str, parent: str, prompt: str, pending: int, now_ms: int) -> str:
        state = self._runs.read(parent) or self._runs.read(session_id)
        if state is not None and self._kills.of(session_id, state) is not None:
            return "The session is killed, and may start no other run."
        rules = self.policy.rules("", "", "") if state is None else self._engine.rules_of(state)
        asked = content(prompt, self.key).norm if prompt else 0
        tree = rules.accounts.tree
        if tree is None:
            return ""
        entry = TreeEntry("", -1, now_ms, WORKING, born=True, parent=parent, prompt=asked)
        return self._accounts.spawn_refusal(session_id, entry, tree, pending)

    def expire(self, now_ms: int) -> list[ControlEvent]:
        """Decide on the runs whose deadline is reached, for instance because nothing was heard of them."""
        events: list[Event] = []
        for run_id in self._stored.due(now_ms, DUE_MAX):
            state = self._runs.read(run_id)
            due = self._engine.next_deadline(state) if state is not None else None
            if due is not None and due.due_ms <= now_ms:
                events.append(deadline_event(run_id, due))
            else:
                self._runs.changed.add(run_id)  # by another policy; what is stored must not be found again and again
        waits = self._runs.changed or events or self._providers.is_due(now_ms)
        return self._record(events, now_ms, heard=False) if waits else []

    def forget_before(self, at_ms: int) -> None:
        """Forget the runs that were not heard of since, and what is counted for their sessions."""
        known = self._accounts.known
        old = [key for key, account in known.items() if key.startswith(OF_SESSIONS) and _last_ms(account) < at_ms]
        self._stored.forget_before(at_ms, old)
        for key in old:
            del known[key]

    def halted(self, run_id: str) -> ControlEvent | None:
        if run_id in self._new_halts:
            return self._new_halts[run_id]
        if run_id not in self._halts:
            if len(self._halts) > KEPT_MAX:
                self._halts.clear()
            run = self._stored.run(run_id)
            self._halts[run_id] = None if run is None or run.halt is None else _decode(run.halt)
        return self._halts[run_id]

    @property
    def position(self) -> int:
        return self._stored.position

    def decisions_after(self, position: int) -> list[DecisionRecord]:
        records = self._stored.records_after(position, CONTROL)
        return [DecisionRecord(one.position, one.run_id, one.value) for one in records]

    def status(self, run_id: str) -> RunStatus | None:
        """Return the status of a run; None if it is not known."""
        state = self._runs.read(run_id)
        return None if state is None else self._engine.status(state, run_id, self.halted(run_id))

    def _step(self, event: Event, at_ms: int) -> list[Decision]:
        sent = self._sent_id(event)
        if sent and self._stored.knows_id(sent):
            return []
        event.event_id = event.event_id or line_event_id(event.run_id, self._stored.position + 1)
        position = self._stored.append(TURNS, event.run_id, at_ms, encode(event))
        before = self.halted(event.run_id)
        decisions = self._accounts.step(event, at_ms, position)
        if sent and self._engine.refused is None:  # a stranger's event keeps nobody from an id
            self._stored.note_id(sent, at_ms)
        state = self._runs.read(event.run_id)
        if before is not None and state is not None and state.halted < 0:
            self._new_halts[event.run_id] = None  # it was resumed
        return self._record_decisions(decisions, at_ms, position)

    def _sent_id(self, event: Event) -> str:
        """Return what identifies an event that its sender has named; empty for others.

        A run knows its last ids itself, and a request may bring more than those again. An id that a new execution uses
        again, once the run has forgotten it, is another event.
        """
        if not event.event_id or type(event) is Deadline:  # a deadline that came early may come again
            return ""
        state = self._runs.read(event.run_id)
        return f"{event.run_id}\0{0 if state is None else state.id_reuses}\0{event.event_id}"

    def _record_decisions(self, decisions: list[Decision], at_ms: int, position: int) -> list[Decision]:
        for decision in decisions:
            set_place(decision, TURNS, 0, position)
            self._stored.append(CONTROL, decision.run_id, at_ms, encode_decision(decision))
            if decision.severity == "halt" and self.halted(decision.run_id) is None:
                self._new_halts[decision.run_id] = decision
        return decisions

    def _write(self, at_ms: int, *, heard: bool) -> None:
        """Store what the events have changed. Unless the runs were `heard` of, their deadlines were reached."""
        for run_id in self._runs.changed:
            state, halt = self._runs.read(run_id), self.halted(run_id)
            if state is None:
                continue
            before = None if heard else self._stored.run(run_id)
            due, status = self._engine.next_deadline(state), self._engine.status(state, run_id, halt)
            self._stored.put_run(StoredRun(
                run_id, self._runs.packed(run_id), encode_status(status), self._stored.position,
                None if halt is None else encode_decision(halt), at_ms if before is None else before.heard_ms,
                0 if due is None else due.due_ms,
            ))  # fmt: skip
        self._runs.changed.clear()
        self._halts |= self._new_halts
        self._new_halts.clear()
        while len(self._runs) > KEPT_MAX:
            self._runs.forget(next(iter(self._runs)))
        for account in self._accounts.changed:
            self._stored.put_account(account, dump_account(self._accounts.known[account]))
        self._accounts.written()
        for key in self._providers.changed:
            self._stored.put_account(key, dump_breaker(self._providers.known[key]))
        self._providers.changed.clear()

    def _forget(self) -> None:
        """Go back to what the log says, after a fault."""
        self._runs.drop()
        self._halts.clear()
        self._new_halts.clear()
        self._read_accounts()

    def _read_accounts(self) -> None:
        self._accounts.changed.clear()
        stored = self._stored.accounts()
        commands = [stored.pop(name) for name in list(stored) if name.startswith(COMMAND)]
        self._accounts.known = {
            name: load_account(state) for name, state in stored.items() if not name.startswith(PREFIX)
        }
        self._providers.restore(
            {name: load_breaker(state) for name, state in stored.items() if name.startswith(PREFIX)}
        )
        self._kills = Kills(self._stored, commands)

    def _stored_account(self, name: str) -> Account | None:
        state = self._stored.account(name)
        return None if state is None else load_account(state)


def _last_ms(account: Account) -> int:
    """Return when an account, or the tree in it, was last charged."""
    return max(account.at_ms, account.tree.at_ms if account.tree is not None else 0)
