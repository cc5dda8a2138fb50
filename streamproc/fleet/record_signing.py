"""Signs the records of workers, and checks that a record comes from a worker.

A header `signature` names the key, and signs the topic prefix, the topic, the record's key and exact value, when it was
signed, and the position in the turns topic of the event that it follows from. The position and the time stop replays of
recorded records: a reader ignores a record that follows from an earlier event of the run than one that it has used
(`LogPlace.before`), and one that the broker stored more than five minutes before or after it was signed. A worker that
could not reach the broker for longer signs and sends its records again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from streamproc.core.decision import Decision
from streamproc.errors import InvalidEvent, InvalidSettings, Problem
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.signing import AGE_MS_MAX, CommandSigner
from streamproc.kafka.reading import LOG_APPEND_TIME, append_time_ms
from streamproc.model.controls import RunStatus
from streamproc.model.wire import BudgetReached, Deadline, Event, Feedback, OperatorEvent, OperatorResume, OperatorStop
from streamproc.settings import Settings

HEADER: Final = "signature"
RESUME_HEADER: Final = "operator.resume"
"""The header with the operator's signed event that has lifted the last halt of a run."""
FORM: Final = 1
SHOWN_MAX: Final = 300  # characters of why a header is unreadable: it may quote as many as the sender likes
ANOTHER_LOG_MS: Final = 60_000  # workers' clocks differ by less; deleting and filling a topic again takes longer

CHECKED_TYPES: Final = frozenset({OperatorStop, OperatorResume, Feedback, Deadline, BudgetReached})
"""The types of the turns topic whose author is checked."""

UNSIGNED: Final = Problem(
    "signature", "it is not signed by a worker", "set the same STREAMPROC_CONTROL_KEY for workers and readers"
)

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class LogPlace(NamedTuple):
    """What a record follows from: an event's partition and offset on the turns topic; and when the record was signed.

    In a record that is not signed, `signed_ms` is the event's log time.
    """

    partition: int
    offset: int
    signed_ms: int

    def before(self, other: LogPlace) -> bool:
        """Return whether the other record is newer.

        Within a partition, offsets decide. A lower offset that was signed much later belongs to a turns topic that was
        deleted and created again. Records of two partitions (publishers that partition differently) have only times.
        """
        if self.partition != other.partition:
            return self.signed_ms < other.signed_ms
        if self.offset < other.offset:
            return self.signed_ms <= other.signed_ms + ANOTHER_LOG_MS
        return self.offset > other.offset and other.signed_ms > self.signed_ms + ANOTHER_LOG_MS


class Signature(msgspec.Struct, forbid_unknown_fields=True):
    """The value of the header. `signature` is hex; `at` is the broker's time in ms, as the worker estimates it."""

    key: str
    at: int
    partition: int
    offset: int
    signature: str


class SignedRecord(Protocol):
    """The fields of a consumer's record that a check needs."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def timestamp(self) -> int | None: ...

    @property
    def timestamp_type(self) -> int: ...

    @property
    def headers(self) -> Iterable[tuple[str, bytes]]: ...


_read_signature: Final = msgspec.json.Decoder(Signature).decode
_read_decision: Final = msgspec.json.Decoder(Decision).decode
_read_status: Final = msgspec.json.Decoder(RunStatus).decode


def read_decision(value: bytes | None) -> Decision | None:
    """Decode a record of the control topic; None if it is not a control event."""
    try:
        return _read_decision(value or b"")
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and so are Unicode errors
        return None


def read_status(value: bytes | None) -> RunStatus | None:
    """Decode a record of the runs topic; None if it is not a status."""
    try:
        return _read_status(value or b"")
    except (ValueError, RecursionError):
        return None


class RecordSigner:
    """Signs records of workers and checks them. If not `required`, records are neither signed nor checked."""

    def __init__(self, keys: Keyring, audience: str, *, required: bool) -> None:
        self._keys = keys
        self._audience = audience
        self.required = required

    def __repr__(self) -> str:
        return f"RecordSigner(keys={self._keys.names}, required={self.required})"

    @property
    def names(self) -> list[str]:
        """The keys whose signatures this process can check."""
        return self._keys.names

    @property
    def can_sign(self) -> bool:
        """Whether records must be signed, and this process can."""
        return self.required and self._keys.signer() is not None

    def must_sign(self) -> None:
        """Raise `InvalidSettings` if records must be signed and this process cannot sign."""
        if self.required and self._keys.signer() is None:
            raise InvalidSettings(
                "a worker must sign its decisions, and the keys of STREAMPROC_CONTROL_KEY only verify: set a key that "
                "signs (NAME:SECRET or NAME:ed25519:BASE64) for workers"
            )

    def sign(self, role: str, key: bytes | None, value: bytes | None, place: LogPlace) -> tuple[str, bytes]:
        """Return the header that signs a record of a topic, named by its role, such as ``control``."""
        name = self._keys.signer()
        assert name is not None, "must_sign was not called"
        signed = Signature(name, place.signed_ms, place.partition, place.offset, "")
        signed.signature = self._keys.sign(name, self._form(role, key, value, signed))
        return HEADER, _encode(signed)

    def check(self, role: str, record: SignedRecord) -> LogPlace:
        """Return what a record follows from. Raises `InvalidEvent` if no worker has signed it, or not at that time."""
        found = [value for name, value in record.headers if name == HEADER]
        if len(found) != 1:
            raise InvalidEvent((UNSIGNED,))
        try:
            signed = _read_signature(found[0])
        except (ValueError, RecursionError) as problem:
            raise InvalidEvent((Problem("signature", str(problem)[:SHOWN_MAX], UNSIGNED.remedy),)) from None
        if signed.key not in self._keys:
            raise InvalidEvent((Problem("signature", f"key {signed.key[:64]!r} is not known", UNSIGNED.remedy),))
        if not self._keys.verifies(signed.key, self._form(role, record.key, record.value, signed), signed.signature):
            raise InvalidEvent((Problem("signature", f"is not that of {signed.key}", UNSIGNED.remedy),))
        has_brokers_time = record.timestamp_type == LOG_APPEND_TIME  # `topics check` and `doctor` report others
        if has_brokers_time and abs((record.timestamp or 0) - signed.at) > AGE_MS_MAX:
            off_s = abs((record.timestamp or 0) - signed.at) / 1000
            what = f"is {off_s:.0f} s off the broker's time; at most {AGE_MS_MAX // 1000} s are accepted"
            raise InvalidEvent((Problem("signature", what, "a recorded record was sent again"),))
        return LogPlace(signed.partition, signed.offset, signed.at)

    def check_about(self, role: str, record: SignedRecord, run_id: str) -> LogPlace:
        """Do the same for a record about a run, whose key must be its id."""
        place = self.check(role, record)
        if record.key != run_id.encode("utf-8", "surrogatepass"):
            raise InvalidEvent((Problem("key", f"{record.key!r:.80} is not the run {run_id[:64]!r}"),))
        return place

    def accepts(self, role: str, record: SignedRecord, run_id: str | None = None) -> bool:
        """Return whether a record can be a worker's, about this run if one is named: all can if none must be signed."""
        try:
            if self.required and run_id is None:
                self.check(role, record)
            elif self.required and run_id is not None:
                self.check_about(role, record, run_id)
        except InvalidEvent:
            return False
        return True

    def _form(self, role: str, key: bytes | None, value: bytes | None, signed: Signature) -> bytes:
        """Return the bytes to sign. The first line ends at its first newline, which JSON has only as an escape."""
        place = (signed.key, signed.at, signed.partition, signed.offset)
        return _encode(("record", FORM, self._audience, role, key, value is None, *place)) + b"\n" + (value or b"")


def check_log_event(event: Event, record: SignedRecord, commands: CommandSigner, records: RecordSigner) -> None:
    """Raise `InvalidEvent` if an event of `CHECKED_TYPES` on the turns topic does not come from its author.

    An operator signs `operator.stop`, `operator.resume` and `feedback`. A worker signs the records of `deadline`,
    `budget.reached` and of the `operator.stop` with which it stops a killed user's run.
    """
    if not isinstance(event, OperatorEvent):
        if records.required:
            records.check("turns", record)
    elif records.required and not event.signature and type(event) is OperatorStop and is_signed(record):
        records.check("turns", record)
    else:
        commands.check_event(event, record.timestamp if commands.imports else append_time_ms(record))


def is_signed(record: SignedRecord) -> bool:
    """Return whether a record carries a signature, valid or not."""
    return any(name == HEADER for name, _ in record.headers)


def record_signer(settings: Settings) -> RecordSigner:
    """Return the signer that the settings of this process describe. Raises `InvalidSettings`."""
    keys = settings.control_keys()
    if settings.control_auth == "signed" and not keys:
        raise InvalidSettings(
            "STREAMPROC_CONTROL_AUTH is signed, and STREAMPROC_CONTROL_KEY is not set: set it to the workers' key "
            "(`streamproc keys new NAME`)"
        )
    required = settings.control_auth != "off" and bool(keys)
    return RecordSigner(Keyring(keys), settings.topic_prefix, required=required)
