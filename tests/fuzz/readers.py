"""All readers of external data: valid samples, how to read them, the allowed errors, and how the result is used."""

from __future__ import annotations

import contextlib
import random
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from streamproc.client.halt_records import ControlNews, StatusNews, read_control_news, read_status_news
from streamproc.client.halts import Halts, halted_error
from streamproc.core.accounts import (
    Account,
    Statement,
    dump_account,
    load_account,
    read_statement,
    step_account,
    write_statement,
)
from streamproc.core.charges import Charge, statements
from streamproc.core.engine import Engine
from streamproc.core.run_state import RunState, check, dump, load
from streamproc.core.status import encode_status
from streamproc.errors import InvalidEvent, InvalidPolicy
from streamproc.fingerprint import fingerprint, read_event
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.signing import CommandSigner
from streamproc.fleet.state import Fleet
from streamproc.model import wire
from streamproc.model.controls import ControlEvent, read_control
from streamproc.model.escaping import inert
from streamproc.model.fleet_command import FleetCommand, encode_command, read_command
from streamproc.model.notification import Urgency, message_of, summary_of
from streamproc.model.raw_events import parse_line
from streamproc.notify.triggers import notice_of, subject_of, trigger_of
from streamproc.policy import Policy, load_policy
from streamproc.policy.files import read_layer, read_preset
from streamproc.replay.diff import read_published
from streamproc.replay.log import LogReplay
from streamproc.worker.codec import decode_run, encode_run, peek_run
from streamproc.worker.eviction import rank_of
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.status_file import parse
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.fuzz.log_readers import LOG_READERS
from tests.fuzz.provider_readers import PROVIDER_READERS, booked_by_a_worker, restored_by_a_worker
from tests.fuzz.reader import NOTHING, Reader
from tests.fuzz.signed_readers import SIGNED_READERS
from tests.fuzz.text_readers import TEXT_READERS
from tests.laws.traces import EVENTS, START_MS
from tests.worker.records import records_of
from tests.worker.slices import difference, made_slice, sizes

PRESETS: Final = Path(wire.__file__).parents[1] / "policy" / "presets"
POLICY: Final = {"budgets": {"maxTenantTokensPerDay": 1_000, "maxUserTokensPerHour": 500, "maxSessionTokens": 700}}


@cache
def _policy() -> Policy:
    return load_policy(POLICY)


def _raws() -> list[dict[str, Any]]:
    scope = {"tenant": "acme", "user": "ann", "session_id": "s"}
    return [
        {"run_id": "r", "event_id": f"e{number}", "at": START_MS, **scope, **template}
        for number, template in enumerate(EVENTS)
    ]


@cache
def _raw_lines() -> list[bytes]:
    return [msgspec.json.encode(raw) for raw in _raws()]


@cache
def _wire_lines() -> list[bytes]:
    return [wire.encode(read_event(line)) for line in _raw_lines()]


@cache
def _stepped() -> tuple[list[RunState], list[bytes], list[bytes], list[Charge]]:
    """Return states, decisions, statuses and charges of the sample events."""
    engine = _policy().engine()
    charges: list[Charge] = []
    state, states, decisions, statuses = RunState(), list[RunState](), list[bytes](), list[bytes]()
    for number, line in enumerate(_raw_lines() * 2):
        outcome = engine.step(state, read_event(line), START_MS + number * 1_000, number)
        charges += outcome.charges
        for decision in outcome.decisions:
            decisions.append(msgspec.json.encode(decision))
            statuses.append(encode_status(engine.status(state, "r", decision)))
        if number % 5 == 0:
            states.append(load(dump(state)))
    return states, decisions, statuses, charges


def _statements() -> list[bytes]:
    return [write_statement(one) for charge in _stepped()[3] for one in statements([charge], 0)]


def _accounts() -> list[bytes]:
    found: dict[str, Account] = {}
    dumped: list[bytes] = []
    for raw in _statements():
        statement = read_statement(raw)
        account = found.setdefault(statement.account, Account())
        step_account(account, statement)
        dumped.append(dump_account(account))
    return dumped


def _commands() -> list[bytes]:
    scopes = ("fleet", "user:eve", "tenant:acme", "run:r")
    return [
        encode_command(
            FleetCommand(w=1, id="i", status=status, scope=scope, by="ada", why="because", at=START_MS, issuer="ops")
        )
        for scope in scopes
        for status in (("STOP", "PAUSE", "CLEAR") if scope == "fleet" else ("STOP",))
    ]


# How the results are used.


def _step(event: wire.Event) -> None:
    """Step the event in a new run and in one with a history; encode everything that results."""
    assert wire.decode(wire.encode(event)) == event
    engine = _policy().engine()
    charges: list[Charge] = []
    for state in (RunState(), load(dump(_stepped()[0][-1]))):
        for at_ms in (START_MS, None, event.at):
            outcome = engine.step(state, event, at_ms, 0)
            charges += outcome.charges
            for decision in outcome.decisions:
                assert msgspec.json.encode(decision)
                encode_status(engine.status(state, event.run_id, decision))
            engine.next_deadline(state)
            load(dump(state))
    for statement in statements(charges, 0):
        assert read_statement(write_statement(statement)) == statement


def _work(value: bytes) -> None:
    """Pass the record through the worker's processor and table: it is stepped or dead-lettered."""
    processor = TurnProcessor(
        _policy().engine(), "turns", event_bytes_max=1_000_000, dead_letter_bytes=4_096, version="1"
    )
    runs = Runs(0, RunLimits())
    processor.accept(runs, records_of([(b"r", value), (b"r", _wire_lines()[0])]))
    restored, changed = Runs(0, RunLimits()), len(runs.active)
    for offset, (key, raw) in enumerate(runs.take()):
        restored.restore(key, raw, offset)
    assert restored.unreadable == 0
    assert len(restored) == changed


def _account(value: bytes) -> None:
    booked_by_a_worker(b"session:s", value, _statements()[0])


def _apply(command: FleetCommand) -> None:
    fleet = Fleet()
    fleet.apply(command)
    assert read_command(encode_command(command)) == command
    assert str(command)


def _restored(raw: bytes) -> None:
    """Restore a changelog record: the worker continues with that run's state, or with a new run."""
    limits = RunLimits()
    engine = _policy().engine()
    limits.due_ms = lambda state: due.due_ms if (due := engine.next_deadline(state)) else 0
    runs = Runs(0, limits)
    runs.restore(b"r", raw, 0)
    processor = TurnProcessor(engine, "turns", event_bytes_max=1_000_000, dead_letter_bytes=4_096, version="1")
    processor.accept(runs, records_of([(b"r", line) for line in _wire_lines()[:3]], first=2**40))
    runs.stored(runs.take(), 1)


def _restored_account(raw: bytes) -> None:
    restored_by_a_worker(b"session:s", raw, _statements()[:3])


def _replayed(value: bytes) -> None:
    """Replay the record: where signatures are required, and where they are not."""
    for authority in (None, CommandSigner(Keyring(), "streamproc", required=True)):
        replay = LogReplay(_policy().engine(), event_bytes_max=1_000_000, authority=authority)
        records: Any = records_of([(b"r", value), (b"r", _wire_lines()[0])])
        for decision in replay.decide(records):
            assert msgspec.json.encode(decision)


def _booked(statement: Statement) -> None:
    account = Account()
    with contextlib.suppress(ValueError, LookupError):  # it contradicts itself: the worker refuses it
        assert all(wire.encode(event) for _, event in step_account(account, statement))
    assert load_account(dump_account(account)) == account


def _spent(account: Account) -> None:
    step_account(account, read_statement(_statements()[0]))
    load_account(dump_account(account))


def _checked_state(raw: bytes) -> RunState:
    state = load(raw)
    check(state)
    return state


@cache
def _three() -> tuple[Engine, list[wire.Event]]:
    return _policy().engine(), [wire.decode(line) for line in _wire_lines()]


def _go_on(state: RunState) -> None:
    """Apply three of the sample events, others for other states; what remains is a state again."""
    engine, events = _three()
    first = state.turns + state.duplicates
    for n in range(3):
        engine.step(state, events[(first + 5 * n) % len(events)], state.at_ms)
    engine.next_deadline(state)
    assert not engine.faults
    assert dump(_checked_state(dump(state))) == dump(state)


def _peeked(found: tuple[RunState, bytes | None]) -> None:
    state, halt = found
    raw = encode_run(state, halt)
    assert peek_run(raw) == (state.offset, rank_of(state, halt))
    again, same_halt = decode_run(raw)
    assert (encode_run(again, halt), same_halt) == (raw, halt)


def _notified(control: ControlEvent) -> None:
    """Write the notification to people: each line is one line, without mentions."""
    trigger = trigger_of(control)
    assert subject_of(control) is not None
    if trigger is not None:
        notice = notice_of(control, trigger, Urgency.HIGH).model_copy(update={"repeats": 2})
        for message in (message_of(notice), message_of(notice, as_json=True), summary_of([notice] * 3, lost=1)):
            for line in (message.title, *message.body.split("\n")):
                assert inert(line) == line or line.startswith("{")


def _followed(news: ControlNews) -> None:
    halts = Halts()
    if halts.is_new(news.id) and halts.control(news) and news.end is None:
        assert str(halted_error(news.run_id, halts.runs[news.run_id]))


def _followed_status(news: StatusNews) -> None:
    halts = Halts()
    if halts.status(news) and news.halt is not None:  # else a task has ended
        assert str(halted_error(news.run_id, halts.runs[news.run_id]))


def _resolve(layer: Any) -> None:
    rules = Policy([read_preset("standard"), layer]).rules("w", "t", "free")
    assert rules is not None


def _policies() -> list[bytes]:
    small = (
        "name: mine", "budgets: {maxSteps: 9, maxCostUsd: '2.5'}", "actions: {LOOP001: pause}",
        "detectors:", "  LOOP001: {warn: 2, halt: 4}", "tiers:", "  free: {budgets: {maxRounds: 5}}",
        "prices:", "  m: {input_per_million_usd: '1', output_per_million_usd: 2}", "",
    )  # fmt: skip
    return [(PRESETS / "loop-safety.yaml").read_bytes(), *["\n".join(small).encode()] * 9]


STATES: Final = lambda: [encode_run(state, halt, 5) for state in _stepped()[0] for halt in (None, _stepped()[1][0])]  # noqa: E731


def _raw_and_wire_lines() -> list[bytes]:
    return [*_wire_lines(), *_raw_lines()]


def _in_a_slice(raw: bytes) -> None:
    """A slice with this record among others has the effects of its records one by one."""
    rng = random.Random(raw)
    assert not (found := difference(made_slice(rng, raw), sizes(rng))), found


READERS: Final = {
    "an event, fingerprinted": Reader(_wire_lines, read_event, (InvalidEvent,), _step),
    "an event, raw": Reader(_raw_lines, read_event, (InvalidEvent,), _step),
    "an event of the wire": Reader(_wire_lines, wire.decode, (msgspec.DecodeError,), _step),
    "a raw line": Reader(_raw_lines, lambda raw: fingerprint(parse_line(raw)), (InvalidEvent,)),
    "a raw line as text": Reader(
        _raw_lines, lambda raw: fingerprint(parse_line(raw.decode("utf-8", "surrogateescape"))), (InvalidEvent,)
    ),
    "a record of the turns topic, in the worker": Reader(_wire_lines, _work, NOTHING),
    "a record of the turns topic, in a replay": Reader(_wire_lines, _replayed, NOTHING),
    "a statement": Reader(_statements, read_statement, (msgspec.DecodeError,), _booked),
    "a record of the spend topic, in the worker": Reader(_statements, _account, NOTHING),
    "a command": Reader(_commands, read_command, (InvalidEvent,), _apply),
    "a control event": Reader(lambda: _stepped()[1], read_control, (ValueError,), _notified),
    "a control event, in the listener": Reader(
        lambda: _stepped()[1], lambda raw: read_control_news(raw, 0), (ValueError,), _followed
    ),
    "a control event, in a diff": Reader(lambda: _stepped()[1], read_published, NOTHING),
    "a status, in the listener": Reader(
        lambda: _stepped()[2], lambda raw: read_status_news(raw, 0), (ValueError,), _followed_status
    ),
    "a stored run": Reader(STATES, decode_run, (msgspec.DecodeError,), _peeked, restructured=False),
    "a stored state": Reader(lambda: list(map(dump, _stepped()[0])), load, (msgspec.DecodeError,), restructured=False),
    "a stored state, then three events": Reader(
        lambda: list(map(dump, _stepped()[0])), _checked_state, (msgspec.DecodeError,), _go_on, restructured=False
    ),
    "a stored run, in the worker": Reader(STATES, _restored, NOTHING, restructured=False),
    "a slice of records": Reader(_raw_and_wire_lines, _in_a_slice, NOTHING, share=0.05),
    "a stored account": Reader(_accounts, load_account, (msgspec.DecodeError,), _spent, msgpack=True),
    "a stored account, in the worker": Reader(_accounts, _restored_account, NOTHING, msgpack=True, restructured=False),
    "a policy file": Reader(
        _policies, lambda raw: read_layer(raw.decode("utf-8", "replace"), "policy"), (InvalidPolicy,), _resolve,
        share=0.02,
    ),
    "a status file": Reader(
        lambda: [b"STOP 2026-01-01T00:00:00Z\nbecause\n# by ada\n", b"CLEAR 5\n", "\ufeffpause \n".encode()],
        lambda raw: parse(raw.decode("utf-8", "replace")), (InvalidEvent,), restructured=False,
    ),
    **LOG_READERS,
    **PROVIDER_READERS,
    **SIGNED_READERS,
    **TEXT_READERS,
}  # fmt: skip
