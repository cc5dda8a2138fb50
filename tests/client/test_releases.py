"""Who can release a halted run: only a worker, and only with an operator's signed resume."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from streamproc.client import HaltListener
from streamproc.client.halt_records import ControlNews, Halt
from streamproc.fleet.keyring import Keyring, new_keys
from streamproc.fleet.record_signing import RESUME_HEADER, LogPlace
from streamproc.fleet.signing import AGE_MS_MAX, CommandSigner
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.controls import ControlEvent, UnverifiedControlEvent
from streamproc.model.fleet_command import encode_command
from streamproc.model.log_time import rfc3339
from streamproc.model.wire import OperatorResume, OperatorStop, encode
from streamproc.settings import Settings, load_settings
from tests.fleet.signing import (
    NOON_MS,
    OPERATOR,
    OPERATOR_PUBLIC,
    OPERATORS,
    PREFIX,
    WORKER_PUBLIC,
    record,
    signed,
)

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

if TYPE_CHECKING:
    pass

MINUTE_MS = 60_000
Read = "ConsumerRecord[Any, Any]"


def settings_of(**options: Any) -> Settings:
    """A listener on a machine of agents: it has only public keys."""
    keys = {"command_key": OPERATOR_PUBLIC.line(), "control_key": WORKER_PUBLIC.line()}
    return load_settings(**(keys | options))


def listener(**options: Any) -> HaltListener:
    return HaltListener(settings=settings_of(**options))


def feed(halts: HaltListener, *records: Read) -> bool:
    """Give records to a listener as its consumer does. Returns whether run r1 is halted then."""
    for one in records:
        apply = halts._consumer._apply_control if one.topic.endswith("control") else halts._consumer._apply_status
        apply(one)
    return halts._halts.runs.get("r1") is not None


def decision(kind: str = "loop.halted", at_ms: int = NOON_MS, control_id: str = "") -> bytes:
    severity = "halt" if kind == "loop.halted" else "info"
    return msgspec.json.encode(
        ControlEvent(
            id=control_id or f"{kind}@{at_ms}", type=kind, run_id="r1", code="LOOP001", severity=severity, message="m",
            at=rfc3339(at_ms),
        )
    )  # fmt: skip


def halted(offset: int = 100, at_ms: int = NOON_MS) -> Read:
    """The control event of a halt, as a worker publishes it."""
    return signed("control", b"r1", decision(at_ms=at_ms), LogPlace(0, offset, at_ms))


def resume_of(
    at_ms: int, run_id: str = "r1", by: CommandSigner = OPERATORS, halt: str = f"loop.halted@{NOON_MS}"
) -> OperatorResume:
    """An operator's resume, which lifts the halt of noon."""
    event = OperatorResume(w=1, run_id=run_id, event_id=f"e{at_ms}", by="ada", grant={"maxSteps": 10}, halt=halt)
    by.sign_event(event, at_ms)
    return event


def resumed(offset: int, at_ms: int, event: Any = None, topic: str = "control") -> Read:
    """The release of the run, as a worker publishes it."""
    headers = [(RESUME_HEADER, encode(resume_of(at_ms) if event is None else event))]
    return signed(topic, b"r1", RELEASES[topic], LogPlace(0, offset, at_ms), headers=headers)


EVE = CommandSigner(Keyring(new_keys("eve", ed25519=True)[:1]), PREFIX, required=True)
RUNNING = b'{"run_id":"r1","status":"running","severity":"info"}'
HALTED = b'{"run_id":"r1","status":"halted","severity":"halt"}'
RELEASES = {"control": decision("run.resumed"), "runs": RUNNING}
LATER_MS = NOON_MS + MINUTE_MS


@pytest.mark.parametrize("topic", ["control", "runs"])
def test_a_worker_with_an_operators_resume_releases_a_run(topic: str) -> None:
    halts = listener()
    assert feed(halts, halted())

    assert not feed(halts, resumed(120, LATER_MS, topic=topic))
    assert halts.unverified == 0


FORGED = {
    "an unsigned resume": record("control", b"r1", RELEASES["control"], at_ms=LATER_MS),
    "an unsigned status": record("runs", b"r1", RUNNING, at_ms=LATER_MS),
    "an unsigned tombstone": record("runs", b"r1", None, at_ms=LATER_MS),
    "a signed status without a resume": signed("runs", b"r1", RUNNING, LogPlace(0, 120, LATER_MS)),
    "a signed tombstone without a resume": signed("runs", b"r1", None, LogPlace(0, 120, LATER_MS)),
    "a signed resume without the operator's": signed(
        "control", b"r1", RELEASES["control"], LogPlace(0, 120, LATER_MS)
    ),
    "the resume of another run": resumed(120, LATER_MS, resume_of(LATER_MS, "r2")),
    "an unsigned operator's resume": resumed(120, LATER_MS, OperatorResume(w=1, run_id="r1", by="eve", at=LATER_MS)),
    "a resume by an unknown operator": resumed(
        120, LATER_MS, resume_of(LATER_MS, by=EVE)
    ),
    "a resume for another deployment": resumed(
        120, LATER_MS, resume_of(LATER_MS, by=CommandSigner(Keyring([OPERATOR]), "staging", required=True))
    ),
    "an operator's stop": resumed(120, LATER_MS, OperatorStop(w=1, run_id="r1", by="ada", at=LATER_MS)),
    "an operator's resume from before the halt": resumed(120, LATER_MS, resume_of(NOON_MS - 2 * MINUTE_MS)),
    "an operator's resume of another halt": resumed(120, LATER_MS, resume_of(LATER_MS, halt="another")),
    "an operator's resume that names no halt": resumed(120, LATER_MS, resume_of(LATER_MS, halt="")),
    "a release in another partition": signed(
        "runs", b"r1", RUNNING, LogPlace(1, 120, LATER_MS), headers=[(RESUME_HEADER, encode(resume_of(LATER_MS)))]
    ),
    "a worker's release from before the halt": resumed(90, LATER_MS, resume_of(LATER_MS)),
    "a worker's status from before the halt": resumed(90, LATER_MS, resume_of(LATER_MS), "runs"),
    "a worker's release by the event that has halted it": resumed(100, LATER_MS, resume_of(LATER_MS)),
    "a record of one run under the key of another": signed(
        "runs", b"r2", RUNNING, LogPlace(0, 120, LATER_MS), headers=[(RESUME_HEADER, encode(resume_of(LATER_MS)))]
    ),
    "a release that was recorded long ago": signed(
        "runs", b"r1", RUNNING, LogPlace(0, 120, LATER_MS), at_ms=LATER_MS + AGE_MS_MAX + 1,
        headers=[(RESUME_HEADER, encode(resume_of(LATER_MS)))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_nothing_else_releases_a_halted_run(forged: Read) -> None:
    halts = listener()
    assert feed(halts, halted())

    assert feed(halts, forged)


def test_a_resume_lifts_the_halts_before_it_and_none_after_it() -> None:
    halts = listener()
    first, again = halted(100, NOON_MS), halted(150, NOON_MS + 10 * MINUTE_MS)
    release = resumed(120, NOON_MS + MINUTE_MS, topic="runs")

    assert [feed(halts, one) for one in (first, release, again, release)] == [True, False, True, True]
    with_a_stolen_workers_key = resumed(170, NOON_MS + 11 * MINUTE_MS, resume_of(NOON_MS + MINUTE_MS), "runs")
    assert feed(halts, with_a_stolen_workers_key)
    of_noon = resume_of(NOON_MS + 12 * MINUTE_MS)
    assert feed(halts, resumed(180, NOON_MS + 12 * MINUTE_MS, of_noon, "runs"))
    of_again = resume_of(NOON_MS + 13 * MINUTE_MS, halt=f"loop.halted@{NOON_MS + 10 * MINUTE_MS}")
    assert not feed(halts, resumed(190, NOON_MS + 13 * MINUTE_MS, of_again, "runs"))


def test_a_recorded_halt_does_not_halt_a_resumed_run_again() -> None:
    halts = listener()
    status = signed("runs", b"r1", HALTED, LogPlace(0, 100, NOON_MS))
    feed(halts, halted(), status, resumed(120, LATER_MS))

    assert not feed(halts, status)
    sent_again = signed("runs", b"r1", HALTED, LogPlace(0, 100, NOON_MS), at_ms=LATER_MS + MINUTE_MS)
    assert not feed(halts, sent_again)
    halts = listener()
    assert not feed(halts, signed("runs", b"r1", HALTED, LogPlace(0, 100, NOON_MS), at_ms=NOON_MS + AGE_MS_MAX + 1))


def test_an_unsigned_halt_halts_nothing_and_does_not_hide_the_genuine_one() -> None:
    halts = listener()
    genuine = halted()

    assert not feed(halts, record("control", b"r1", genuine.value), record("runs", b"r1", HALTED))
    assert feed(halts, genuine)


def test_where_operators_need_not_sign_a_workers_signature_is_enough() -> None:
    halts = listener(command_key="", command_auth="channel")
    feed(halts, halted())

    assert feed(halts, FORGED["an unsigned status"])
    assert not feed(halts, FORGED["a signed status without a resume"])


def test_without_signatures_everything_is_believed_as_before() -> None:
    halts = listener(control_auth="off")
    feed(halts, record("control", b"r1", decision()))

    assert feed(halts, record("runs", b"r1", None, at_ms=LATER_MS)), "a tombstone releases nothing"
    assert not feed(halts, record("runs", b"r1", RUNNING, at_ms=LATER_MS))


def test_subscribers_get_unsigned_events_only_if_they_ask_and_marked() -> None:
    halts = listener()
    plain, marked = halts.subscribe(), halts.subscribe(unverified=True)

    feed(halts, record("control", b"r1", decision()), halted())

    assert [type(one) is UnverifiedControlEvent for one in marked._events] == [True, False]
    assert [one.id for one in plain._events] == [f"loop.halted@{NOON_MS}"]


def test_a_resume_that_names_no_halt_is_accepted_only_where_a_setting_says_so() -> None:
    halts = listener(unnamed_resumes=True)
    feed(halts, halted())

    assert not feed(halts, resumed(120, LATER_MS, resume_of(LATER_MS, halt="")))


def test_a_resume_that_has_lifted_one_halt_lifts_no_other() -> None:
    """A kill has no decision of the workers that a resume could name, so the resume itself must be new."""
    halts = listener()
    used = resume_of(LATER_MS)
    feed(halts, halted(), resumed(120, LATER_MS, used))
    kill = Halt(b"", "FLEET001", LATER_MS, LATER_MS, id="kill")
    halts._halts.control(ControlNews("r1", LATER_MS + 1, "kill", kill, resumes=False))

    assert feed(halts, resumed(130, LATER_MS + MINUTE_MS, used, "runs"))
    assert not feed(halts, resumed(140, LATER_MS + MINUTE_MS, resume_of(LATER_MS + MINUTE_MS), "runs"))


# Faults that `tests/client/test_halts_property.py` has found.


def start_with(halts: HaltListener, *records: Read) -> bool:
    """Let a listener start where these records are on `runs`. Returns whether run r1 is halted then."""
    for one in records:
        halts._consumer._apply_run(one)
    halts._consumer._snapshot()
    return "r1" in halts._halts.runs


def kill(halts: HaltListener, at_ms: int) -> None:
    """Let an operator's command to stop the run arrive, which no worker obeys."""
    command = OPERATORS.sign(new_command(Fleet(), "STOP", "run:r1", "ada", "", now_ms=at_ms))
    halts.dispatcher.command(b"run:r1", encode_command(command), at_ms)


def running(offset: int, at_ms: int, *headers: tuple[str, bytes]) -> Read:
    return signed("runs", b"r1", RUNNING, LogPlace(0, offset, at_ms), headers=headers)


def test_a_later_copy_of_a_halt_does_not_make_the_operators_resume_too_old() -> None:
    halts, status = listener(), signed("runs", b"r1", HALTED, LogPlace(0, 100, NOON_MS))

    feed(halts, status, replace(status, partition=1, timestamp=NOON_MS + 4 * MINUTE_MS))

    assert not feed(halts, resumed(120, LATER_MS, resume_of(LATER_MS)))


def test_a_resume_that_was_added_to_an_older_status_is_not_used_up_by_it() -> None:
    halts = listener()
    kill(halts, NOON_MS)
    resume = (RESUME_HEADER, encode(resume_of(LATER_MS)))
    halted_status = signed("runs", b"r1", HALTED, LogPlace(0, 100, NOON_MS))

    assert not start_with(halts, running(90, NOON_MS - 1, resume), halted_status, running(120, LATER_MS, resume))


@pytest.mark.parametrize("added", [(), ((RESUME_HEADER, b"{}"),)])
def test_a_copy_without_the_operators_resume_does_not_keep_a_killed_run_halted(added: Any) -> None:
    halts = listener()
    kill(halts, NOON_MS)
    resume = (RESUME_HEADER, encode(resume_of(LATER_MS)))

    assert not start_with(halts, running(120, LATER_MS, resume), running(120, LATER_MS, *added))


def test_a_resume_from_before_a_kill_does_not_lift_it_for_listeners_that_start_between_them() -> None:
    halts = listener()
    resume = (RESUME_HEADER, encode(resume_of(LATER_MS)))
    assert not start_with(halts, running(120, LATER_MS, resume))

    kill(halts, LATER_MS + 20_000)

    assert feed(halts, running(120, LATER_MS, resume), resumed(120, LATER_MS))
    copy = signed("runs", b"r1", RUNNING, LogPlace(0, 120, LATER_MS), at_ms=LATER_MS + MINUTE_MS, headers=[resume])
    assert feed(halts, copy)


def test_a_copy_of_a_resumed_status_does_not_hide_a_kill_that_arrives_after_it() -> None:
    halts = listener()
    resume = (RESUME_HEADER, encode(resume_of(LATER_MS)))
    start_with(halts, running(120, LATER_MS, resume))
    feed(
        halts, signed("runs", b"r1", RUNNING, LogPlace(0, 120, LATER_MS), at_ms=LATER_MS + MINUTE_MS, headers=[resume])
    )

    kill(halts, LATER_MS + 20_000)

    assert "r1" in halts._halts.runs


def test_a_recorded_halt_does_not_halt_a_resumed_run_for_listeners_that_start_after_the_resume() -> None:
    halts = listener()
    assert not start_with(halts, running(120, LATER_MS, (RESUME_HEADER, encode(resume_of(LATER_MS)))))

    assert not feed(halts, halted(100, NOON_MS))


def test_a_resume_names_the_first_halt_whatever_decision_is_known() -> None:
    halts = listener()
    feed(halts, signed("runs", b"r1", HALTED, LogPlace(0, 100, NOON_MS)))  # a status that says no reason
    feed(halts, signed("control", b"r1", decision(control_id="another"), LogPlace(0, 105, NOON_MS)))

    assert not feed(halts, resumed(120, LATER_MS))


def test_a_status_says_what_a_resume_must_name_if_another_resume_was_missed() -> None:
    halts, second = listener(), decision(at_ms=NOON_MS + 10_000, control_id="second")
    feed(halts, halted())

    feed(
        halts,
        signed("runs", b"r1", b'{"run_id":"r1","status":"halted","halt":%s}' % second, LogPlace(0, 150, LATER_MS)),
    )

    assert not feed(halts, resumed(180, LATER_MS, resume_of(LATER_MS, halt="second")))
