"""Signatures of workers' records: which are believed, and which keys can make them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from streamproc.cli import watch
from streamproc.core.deadlines import Due, deadline_event
from streamproc.errors import InvalidEvent, InvalidSettings
from streamproc.fleet.keyring import Keyring, new_keys
from streamproc.fleet.record_signing import HEADER, LogPlace, RecordSigner, check_log_event, record_signer
from streamproc.fleet.signing import AGE_MS_MAX, command_signer
from streamproc.kafka import topics
from streamproc.model.signing_keys import read_signing_keys
from streamproc.model.wire import BudgetReached, Event, OperatorResume, OperatorStop, encode
from streamproc.policy import load_policy
from streamproc.replay.log import LogReplay
from streamproc.settings import load_settings
from streamproc.worker.publishing import OutgoingRecord, Publisher
from tests.client.records import read_all
from tests.fleet.signing import (
    AGENTS,
    NOON_MS,
    OPERATOR_PUBLIC,
    OPERATORS,
    PREFIX,
    READERS,
    TRUSTED_CHANNEL,
    WORKER,
    WORKER_PUBLIC,
    record,
    signed,
)

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

PLACE = LogPlace(2, 7, NOON_MS)
VALUE = b'{"id":"c1"}'

# Keys.


def test_a_new_key_can_be_set_as_it_is_printed() -> None:
    for ed25519 in (False, True):
        for key in new_keys("ops", ed25519=ed25519):
            assert read_signing_keys(key.line()) == (key,)


def test_a_public_key_verifies_and_cannot_sign() -> None:
    private, public = new_keys("ops", ed25519=True)
    signing, verifying = Keyring([private]), Keyring([public])

    signature = signing.sign("ops", b"stop")

    assert verifying.verifies("ops", b"stop", signature)
    assert not verifying.verifies("ops", b"clear", signature)
    assert verifying.signer() is None
    assert private.secret not in public.line().encode()


def test_the_first_key_that_can_sign_signs_and_all_verify() -> None:
    _, public = new_keys("first", ed25519=True)
    old, new = new_keys("new", ed25519=False)[0], new_keys("old", ed25519=False)[0]
    rotating = Keyring([public, new, old])

    assert rotating.signer() == "old"
    assert rotating.signer("new") == "new"
    assert rotating.verifies("new", b"x", Keyring([old]).sign("new", b"x"))


@pytest.mark.parametrize("key", [
    "ops:ed25519:s3cret", "ops:ed25519-public:c2hvcnQ=", "ops:ed25519:!!!!", "ops:ed25519:\u00e9", "ops:short",
    "s3cret", "a:b,a:b",
])  # fmt: skip
def test_an_unusable_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidSettings, match=r"STREAMPROC_CONTROL_KEY.*(streamproc keys new|NAME:SECRET)") as refused:
        load_settings(control_key=key)
    assert "s3cret" not in str(refused.value)


def test_signing_without_a_key_and_a_worker_that_can_only_verify_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_CONTROL_KEY is not set"):
        record_signer(load_settings(control_auth="signed"))
    with pytest.raises(InvalidSettings, match="only verify"):
        record_signer(load_settings(control_key=WORKER_PUBLIC.line())).must_sign()
    with pytest.raises(InvalidSettings, match="only verify"):
        command_signer(load_settings(command_key=WORKER_PUBLIC.line())).must_sign()


@pytest.mark.parametrize(("settings", "required"), [
    ({}, False), ({"control_key": WORKER.line()}, True),
    ({"control_key": WORKER.line(), "control_auth": "signed"}, True),
    ({"control_key": WORKER.line(), "control_auth": "off"}, False),
])  # fmt: skip
def test_records_are_signed_if_a_key_is_set_and_signing_is_not_off(settings: dict[str, str], required: bool) -> None:
    assert record_signer(load_settings(**settings)).required is required


# Records.


@pytest.mark.parametrize("value", [VALUE, b"", None, b"\xff\x00\n"])
def test_a_signed_record_is_believed_and_names_its_place(value: bytes | None) -> None:
    assert READERS.check("runs", signed("runs", b"r1", value, PLACE)) == PLACE


def test_a_signature_covers_topic_key_value_and_deployment() -> None:
    good = signed("control", b"r1", VALUE, PLACE)
    tombstone = signed("control", b"r1", None, PLACE)
    staging = RecordSigner(Keyring([WORKER]), "staging", required=True)
    forged = [
        replace(good, key=b"r2"), replace(good, key=None), replace(good, value=VALUE + b" "), replace(good, value=None),
        replace(tombstone, value=b""), signed("control", b"r1", VALUE, PLACE, by=staging),
        signed("runs", b"r1", VALUE, PLACE),
    ]  # fmt: skip
    assert READERS.check("control", good) == PLACE

    for one in forged:
        with pytest.raises(InvalidEvent, match="is not that of workers"):
            READERS.check("control", one)


@pytest.mark.parametrize("change", [{"at": NOON_MS + 1}, {"offset": 8}, {"partition": 3}, {"signature": "00" * 64}])
def test_a_signature_covers_its_time_and_place(change: dict[str, object]) -> None:
    good = signed("control", b"r1", VALUE, PLACE)
    header = msgspec.json.decode(dict(good.headers)[HEADER]) | change

    with pytest.raises(InvalidEvent, match="is not that of workers"):
        READERS.check("control", replace(good, headers=((HEADER, msgspec.json.encode(header)),)))


def test_a_record_without_one_readable_signature_of_a_known_key_is_not_believed() -> None:
    good = signed("control", b"r1", VALUE, PLACE)
    stranger = RecordSigner(Keyring(new_keys("eve", ed25519=True)[:1]), PREFIX, required=True)
    same_name = RecordSigner(Keyring(new_keys("workers", ed25519=True)[:1]), PREFIX, required=True)

    for headers, why in (
        ((), "it is not signed"),
        ((*good.headers, *good.headers), "it is not signed"),
        (((HEADER, b"nonsense"),), "signature"),
        (((HEADER, b"[" * 9_000),), "signature"),
        (((HEADER, b'{"%s":1}' % (b"x" * 9_000)),), "signature"),
        ((stranger.sign("control", b"r1", VALUE, PLACE),), "'eve' is not known"),
        ((same_name.sign("control", b"r1", VALUE, PLACE),), "is not that of workers"),
    ):
        with pytest.raises(InvalidEvent, match=why) as refused:
            READERS.check("control", replace(good, headers=headers))
        assert len(str(refused.value)) < 1_000, "a log does not quote a whole record"


@pytest.mark.parametrize("off_ms", [AGE_MS_MAX + 1, -AGE_MS_MAX - 1])
def test_a_recorded_record_that_is_sent_again_later_is_not_believed(off_ms: int) -> None:
    good = signed("control", b"r1", VALUE, PLACE)
    READERS.check("control", replace(good, timestamp=NOON_MS + AGE_MS_MAX))

    with pytest.raises(InvalidEvent, match="off the broker's time"):
        READERS.check("control", replace(good, timestamp=NOON_MS + off_ms))


def test_a_later_event_of_the_log_is_newer_whenever_it_was_signed() -> None:
    halt = LogPlace(0, 100, NOON_MS)

    assert halt.before(LogPlace(0, 120, NOON_MS + 10))
    assert halt.before(LogPlace(0, 120, NOON_MS - 10))  # another worker, whose clock is behind
    assert not LogPlace(0, 120, NOON_MS - 10).before(halt)
    assert not halt.before(halt)


def test_a_topic_that_was_created_again_begins_a_newer_log() -> None:
    old, new = LogPlace(0, 100_000, NOON_MS), LogPlace(0, 3, NOON_MS + 3_600_000)

    assert old.before(new)
    assert not new.before(old)


# Events that workers add to the turns topic.

DEADLINE = deadline_event("r1", Due(NOON_MS, "STALL007", NOON_MS - 60_000))
REACHED = BudgetReached(
    w=1, run_id="r1", event_id="b1", account="user:eve", rung="exceeded", unit="tokens", used=5, limit=5
)
STOP = OperatorStop(w=1, run_id="r1", event_id="s1", by="ada")


@pytest.mark.parametrize("event", [DEADLINE, REACHED], ids=["deadline", "budget.reached"])
def test_an_event_of_a_worker_is_accepted_only_from_a_worker(event: Event) -> None:
    value = encode(event)
    check_log_event(event, signed("turns", b"r1", value, PLACE), AGENTS, READERS)
    check_log_event(event, record("turns", b"r1", value), AGENTS, RecordSigner(Keyring(), PREFIX, required=False))

    for forged in (record("turns", b"r1", value), signed("runs", b"r1", value, PLACE)):
        with pytest.raises(InvalidEvent, match="signature"):
            check_log_event(event, forged, AGENTS, READERS)


def test_a_worker_may_stop_a_run_and_may_not_resume_one() -> None:
    resume = OperatorResume(w=1, run_id="r1", event_id="e1", by="ada")
    check_log_event(STOP, signed("turns", b"r1", encode(STOP), PLACE), AGENTS, READERS)

    with pytest.raises(InvalidEvent, match="it is not signed"):
        check_log_event(resume, signed("turns", b"r1", encode(resume), PLACE), AGENTS, READERS)
    with pytest.raises(InvalidEvent, match="it is not signed"):
        check_log_event(STOP, record("turns", b"r1", encode(STOP)), AGENTS, READERS)


def test_an_operators_event_needs_the_brokers_time_except_in_an_imported_log() -> None:
    stop = OperatorStop(w=1, run_id="r1", event_id="s1", by="ada")
    OPERATORS.sign_event(stop, NOON_MS)
    by_sender = record("turns", b"r1", encode(stop), timestamp_type=0)
    check_log_event(stop, record("turns", b"r1", encode(stop)), AGENTS, READERS)
    importing = command_signer(load_settings(command_key=OPERATOR_PUBLIC.line(), timestamp_type="CreateTime"))
    check_log_event(stop, by_sender, importing, READERS)
    check_log_event(OperatorStop(w=1, run_id="r1"), by_sender, TRUSTED_CHANNEL, READERS)

    with pytest.raises(InvalidEvent, match=r"its sender's time .CreateTime."):
        check_log_event(stop, by_sender, AGENTS, READERS)


def test_a_replay_refuses_the_same_events_as_a_worker() -> None:
    started = record("turns", b"r1", b'{"type":"run.started","run_id":"r1","node":"n"}')
    reached = encode(REACHED)
    forged = [started, record("turns", b"r1", reached, offset=1)]
    genuine = [started, signed("turns", b"r1", reached, PLACE, offset=1)]

    def replay(records: list[object]) -> tuple[int, int]:
        log = LogReplay(engine(), event_bytes_max=9_999, authority=AGENTS, record_signer=READERS)
        return len(list(log.decide(records))), log.refused  # type: ignore[arg-type]

    assert replay(forged) == (0, 1)
    assert replay(genuine) == (1, 0)


def engine() -> Any:
    return load_policy("standard").engine()


# Publishing, and tools that show decisions.


async def test_a_record_that_was_stored_long_after_it_was_signed_is_signed_and_sent_again(
    brokers: str, topic_prefix: str
) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=1, control_key=WORKER.line())
    await topics.apply(settings)
    publisher = Publisher(settings, {}, {})
    await publisher.start()
    publisher._ahead_ms = -2 * AGE_MS_MAX  # as if the broker had been away for ten minutes since
    try:
        await publisher.publish(
            0, [OutgoingRecord("runs", b"r1", VALUE, offset=7), OutgoingRecord("spend", b"a", b"b")]
        )
    finally:
        await publisher.stop()

    late, again = await read_all(settings, "runs")
    signer = record_signer(settings)
    with pytest.raises(InvalidEvent, match="off the broker's time"):
        signer.check("runs", late)
    assert signer.check("runs", again)[:2] == (0, 7)
    assert len(await read_all(settings, "spend")) == 1


def test_watch_marks_a_decision_that_no_worker_has_signed() -> None:
    value = b'{"id":"c1","type":"loop.halted","run_id":"r1","code":"X","severity":"halt","message":"m"}'

    genuine = watch._read(READERS, signed("control", b"r1", value, PLACE))
    forged = watch._read(READERS, record("control", b"r1", value))

    assert watch._message(genuine) == "m"
    assert watch._message(forged) == "UNVERIFIED (no worker has signed it): m"
    assert '"verified":false' in forged.model_dump_json()
