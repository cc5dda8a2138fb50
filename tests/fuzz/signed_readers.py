"""Readers of what signatures protect. An input that is accepted says exactly what was signed, however it is written."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any, Final

import msgspec

from streamproc.client.halt_records import ControlNews, Halt, read_control_news
from streamproc.client.verification import RecordVerifier
from streamproc.errors import InvalidEvent
from streamproc.fingerprint import read_event
from streamproc.fleet.issuing import apply_record
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import HEADER, RESUME_HEADER, LogPlace, RecordSigner
from streamproc.fleet.signing import CommandSigner
from streamproc.fleet.state import Fleet
from streamproc.model import wire
from streamproc.model.fleet_command import FleetCommand, encode_command
from streamproc.model.signing_keys import SigningKey, read_signing_keys
from tests.fuzz.reader import NOTHING, Reader
from tests.worker.records import NOON_MS, Record

SECRET: Final = b"0123456789abcdef0123456789abcdef"
KEYS: Final = (SigningKey("ops", "hmac", SECRET), SigningKey("edge", "ed25519", SECRET))
PLACE: Final = LogPlace(3, 70, NOON_MS)
REFUSED_KEY: Final = re.compile(
    r"key \d+ needs a unique name before a colon: NAME:SECRET"
    r"|ed25519(-public)? key \d+ is not 32 bytes in base64: make one with `streamproc keys new NAME` --ed25519"
    r"|the secret of key \d+ has fewer than 16 characters: make one with `streamproc keys new NAME`"
)


@cache
def _records(name: str) -> RecordSigner:
    return RecordSigner(Keyring(key for key in KEYS if key.name == name), "streamproc", required=True)


@cache
def _commands() -> CommandSigner:
    return CommandSigner(Keyring(KEYS), "streamproc", required=True)


ALL_RECORDS: Final = RecordSigner(Keyring(KEYS), "streamproc", required=True)


# The header of a worker's record.


def _headers() -> list[bytes]:
    return [_records(key.name).sign("control", b"r", b"{}", PLACE)[1] for key in KEYS]


def _read_header(data: bytes) -> LogPlace:
    return ALL_RECORDS.check("control", Record(1, b"r", b"{}", headers=((HEADER, data),)))


def _header_is_as_signed(place: LogPlace) -> None:
    assert place == PLACE


# The record under a valid header: no other value has the signature.


def _read_value(data: bytes) -> bytes:
    header = _records("ops").sign("control", b"r", b'{"id":"c","run_id":"r"}', PLACE)
    ALL_RECORDS.check_about("control", Record(1, b"r", data, headers=(header,)), "r")
    return data


def _value_is_as_signed(data: bytes) -> None:
    assert data == b'{"id":"c","run_id":"r"}'


# An operator's resume, which a worker sends along.


@cache
def _operator_events() -> list[wire.OperatorEvent]:
    given: dict[str, Any] = {"w": wire.WIRE_VERSION, "run_id": "r", "by": "ada", "reason": "the cause is fixed"}
    events = [
        wire.OperatorResume(event_id="e1", grant={"maxSteps": 5, "maxCostUsd": 2}, halt="c0", **given),
        wire.OperatorResume(event_id="e2", halt="c0", **given),
        wire.OperatorStop(event_id="e3", **given),
    ]
    for event in events:
        for issuer in ("ops", "edge"):
            _commands().sign_event(event, NOON_MS, issuer)
    return events


def _resumes() -> list[bytes]:
    return [wire.encode(event) for event in _operator_events() if isinstance(event, wire.OperatorResume)]


def _read_resume(data: bytes) -> tuple[bytes, ControlNews | None]:
    news = read_control_news(b'{"id":"c","type":"run.resumed","run_id":"r","severity":"info"}', NOON_MS)
    header = _records("edge").sign("control", b"r", b"{}", PLACE)
    record: Any = Record(1, b"r", b"{}", headers=(header, (RESUME_HEADER, data)))
    halts = [Halt(b"", "LOOP001", NOON_MS - 1_000)]
    return data, RecordVerifier(ALL_RECORDS, _commands()).verified("control", record, news, halts)


def _resume_is_as_signed(found: tuple[bytes, ControlNews | None]) -> None:
    data, news = found
    if news is not None:
        assert news.place == PLACE
        _event_is_as_signed(msgspec.json.decode(data, type=wire.OperatorResume))


# An operator's event on the turns topic.


def _read_operator_event(data: bytes) -> wire.Event:
    event = read_event(data)
    if isinstance(event, wire.OperatorEvent):
        _commands().check_event(event, NOON_MS)
    return event


def _event_is_as_signed(event: wire.Event) -> None:
    if isinstance(event, wire.OperatorEvent):
        assert _signed_fields(event) in map(_signed_fields, _operator_events())


def _signed_fields(event: wire.OperatorEvent) -> tuple[Any, ...]:
    grant = getattr(event, "grant", None) or {}
    return (event.type, event.run_id, event.event_id, event.by, event.reason, grant, event.at, event.issuer)


# A command, as workers and listeners apply it.


@cache
def _signed_commands() -> list[FleetCommand]:
    scopes = ("fleet", "user:eve", "tenant:acme", "member:acme/eve", "run:r")
    commands = [
        FleetCommand(w=1, id=f"i{number}", status="STOP", scope=scope, by="ada", why="because", at=NOON_MS)
        for number, scope in enumerate(scopes)
    ]
    commands.append(msgspec.structs.replace(commands[0], id="again", since=NOON_MS - 1_000))
    return [_commands().sign(command, issuer) for command in commands for issuer in ("ops", "edge")]


def _read_command(data: bytes) -> FleetCommand | None:
    try:
        scope = str(msgspec.json.decode(data)["scope"])
    except (msgspec.DecodeError, ValueError, TypeError, LookupError, RecursionError):
        scope = "fleet"
    fleet = Fleet()
    command = apply_record(fleet, _commands(), scope.encode("utf-8", "replace"), data, NOON_MS)
    assert (command is None) == (fleet.latest(scope) is None)
    return command


def _command_is_as_signed(command: FleetCommand | None) -> None:
    if command is not None:
        unsigned = msgspec.structs.replace(command, signature="")
        assert unsigned in [msgspec.structs.replace(one, signature="") for one in _signed_commands()]


# Keys, as settings have them.


def _key_lines() -> list[bytes]:
    seed = SigningKey("edge", "ed25519", random.Random(1).randbytes(32))
    public = SigningKey("seen", "ed25519-public", random.Random(2).randbytes(32))
    lines = [SigningKey("ops", "hmac", b"correct horse battery staple").line(), seed.line(), public.line()]
    return [line.encode() for line in (*lines, ",".join(lines), f" {lines[0]} ,, {lines[1]}")]


def _read_keys(data: bytes) -> tuple[SigningKey, ...]:
    try:
        return read_signing_keys(data.decode("utf-8", "replace"))  # settings refuse lone surrogates before
    except ValueError as refusal:
        if REFUSED_KEY.fullmatch(str(refusal)) is None:
            raise AssertionError(f"the message may show a secret: {refusal}") from None
        raise


def _use_keys(keys: tuple[SigningKey, ...]) -> None:
    assert read_signing_keys(",".join(key.line() for key in keys)) == keys
    ring = Keyring(keys)
    assert len(ring.names) == len(keys)
    for key in keys:
        assert "secret" not in repr(key).replace(repr(key.name), "")
        signature = ring.sign(key.name, b"content") if key.signs else "00" * 64
        assert ring.verifies(key.name, b"content", signature) == key.signs


SIGNED_READERS: Final = {
    "a signature header": Reader(_headers, _read_header, (InvalidEvent,), _header_is_as_signed),
    "a signed record": Reader(lambda: [b'{"id":"c","run_id":"r"}'], _read_value, (InvalidEvent,), _value_is_as_signed),
    "an operator's resume, in the listener": Reader(_resumes, _read_resume, NOTHING, _resume_is_as_signed),
    "a signed event of an operator": Reader(
        lambda: [wire.encode(event) for event in _operator_events()], _read_operator_event, (InvalidEvent,),
        _event_is_as_signed,
    ),
    "a signed command": Reader(
        lambda: [encode_command(command) for command in _signed_commands()], _read_command, NOTHING,
        _command_is_as_signed,
    ),
    "signing keys": Reader(_key_lines, _read_keys, (ValueError,), _use_keys, restructured=False),
}  # fmt: skip
