"""The TypeScript example's listener follows the rules of Python's: who has no keys neither lifts nor hides a halt."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from streamproc.fleet.record_signing import RESUME_HEADER, LogPlace
from streamproc.model.controls import ControlEvent
from streamproc.model.log_time import rfc3339
from streamproc.model.wire import OperatorResume, encode
from tests.client.attacker import RUNS, Attacker, Life, story
from tests.examples.test_typescript import built, example
from tests.fleet.signing import NOON_MS, OPERATOR_PUBLIC, OPERATORS, WORKER_PUBLIC, signed

__all__ = ["built", "example"]

# Reads a line for each record, and answers with the runs that are halted then. A line of null: a new listener.
HARNESS = """
import { createInterface } from "node:readline";
import { HaltListener } from "./dist/listen.js";
const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
let halts;
for await (const line of createInterface({ input: process.stdin })) {
  const given = JSON.parse(line);
  if (given === null) halts = new HaltListener({ brokers: "127.0.0.1:1", prefix: "streamproc" });
  else {
    const { role, key, value, timestampMs, headers } = given;
    const named = headers.map(([name, text]) => [Buffer.from(name), bytes(text)]);
    halts.apply(role, { key: bytes(key), value: bytes(value), timestampMs, headers: named });
  }
  console.log(JSON.stringify(["r1", "r2"].filter((run) => halts.signal(run).aborted)));
}
"""


class Node:
    """A listener on Node, given records as its consumer gives them."""

    def __init__(self, folder: Path, **keys: str) -> None:
        environment = {"PATH": __import__("os").environ["PATH"], **keys}
        command = ("node", "--input-type=module", "--eval", HARNESS)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True)

    def begin(self) -> None:
        """Make a new listener."""
        assert self._ask(None) == set()

    def read(self, role: str, one: Any) -> set[str]:
        """Read one record. Returns the runs that are halted then."""
        headers = [[name, _text(value)] for name, value in one.headers]
        about = {"key": _text(one.key), "value": _text(one.value), "timestampMs": one.timestamp}
        return self._ask({"role": role, "headers": headers, **about})

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        assert self._process.wait(30) == 0

    def _ask(self, line: Any) -> set[str]:
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return set(json.loads(self._process.stdout.readline()))


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@pytest.fixture(scope="module")
def node(built: Path) -> Iterator[Node]:
    keys = {"STREAMPROC_CONTROL_KEY": WORKER_PUBLIC.line(), "STREAMPROC_COMMAND_KEY": OPERATOR_PUBLIC.line()}
    one = Node(built, **keys)
    yield one
    one.close()


@pytest.fixture(scope="module")
def trusting(built: Path) -> Iterator[Node]:
    """A listener without keys."""
    one = Node(built)
    yield one
    one.close()


def stopped(lives: list[Life]) -> set[str]:
    return {life.run_id for life in lives if life.halt}


def heard(written: list[tuple[int, str, Any]]) -> list[tuple[int, str, Any]]:
    """What it reads: a kill arrives as the halt of a worker."""
    return [one for one in written if one[1] != "commands"]


@pytest.mark.long
@hypothesis_settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
@pytest.mark.parametrize("late", [False, True])
def test_who_has_no_keys_changes_nothing(node: Node, late: bool, data: st.DataObject) -> None:
    lives, written = story(data.draw)
    attacker = Attacker(data.draw)
    node.begin()
    halted: set[str] = set()
    at_ms, queues = NOON_MS, dict[tuple[str, int], list[Any]]()
    for at_ms, role, one in heard(written):
        attacker.seen.append((role, one))
        forged = [attacker.write(at_ms) for _ in range(data.draw(st.integers(0, 3)))]
        if late:
            for to, record in [(role, one), *forged]:
                queues.setdefault((to, record.partition), []).append(record)
            continue
        halted = node.read(role, one)
        assert all(node.read(to, record) == halted for to, record in forged if to != "commands")
    while places := sorted(place for place in queues if place[0] == "runs"):  # partitions in any order
        place = data.draw(st.sampled_from(places))
        halted = node.read("runs", queues[place].pop(0))
        if not queues[place]:
            del queues[place]
    assert halted == stopped(lives)
    for life in lives:
        at_ms += 1_000
        for role, one in life.step("resume", at_ms) if life.halt else ():
            attacker.seen.append((role, one))
            halted = node.read(role, one)
            to, record = attacker.write(at_ms)
            assert to == "commands" or node.read(to, record) == halted
    assert halted == set()


# The rules one by one.

LATER_MS = NOON_MS + 60_000


def halt(partition: int = 0, offset: int = 100, at_ms: int = NOON_MS, halt_id: str = "h1") -> Any:
    decision = ControlEvent(
        id=halt_id, type="loop.halted", run_id="r1", code="LOOP001", severity="halt", message="m", at=rfc3339(at_ms)
    )
    return signed("control", b"r1", msgspec.json.encode(decision), LogPlace(partition, offset, at_ms))


def running(partition: int = 0, offset: int = 120, event: OperatorResume | None = None, at_ms: int = LATER_MS) -> Any:
    value = b'{"run_id":"r1","status":"running","severity":"info"}'
    headers = [] if event is None else [(RESUME_HEADER, encode(event))]
    return signed("runs", b"r1", value, LogPlace(partition, offset, at_ms), headers=headers)


def resume(halt_id: str = "h1", at_ms: int = LATER_MS, **fields: Any) -> OperatorResume:
    given = {"by": 'Ada "é\n\u007f\u2028', "grant": {"maxSteps": 10, "maxCostUsd": 5, "Äb": 1}} | fields
    event = OperatorResume(w=1, run_id="r1", event_id=f"resume@{at_ms}", halt=halt_id, **given)
    OPERATORS.sign_event(event, at_ms)
    return event


def test_an_operators_resume_releases_a_run_whatever_characters_it_has(node: Node) -> None:
    node.begin()
    assert node.read("control", halt()) == {"r1"}
    assert node.read("runs", running(event=resume())) == set()


@pytest.mark.parametrize(
    "record",
    [
        running(),
        running(partition=1, event=resume()),
        running(offset=100, event=resume()),
        running(event=resume("")),
        running(event=resume("another")),
        running(event=resume(at_ms=NOON_MS - 61_000)),
        replace(running(event=resume()), key=b"r2"),
        replace(running(event=resume()), timestamp=LATER_MS + 300_001),
        replace(running(event=resume()), headers=running(event=resume()).headers * 2),
        replace(running(event=resume()), value=None),
    ],
    ids=["no resume", "another partition", "the event that halts", "unnamed", "another halt", "old", "another key",
         "recorded", "twice", "tombstone"],
)  # fmt: skip
def test_nothing_else_releases_it(node: Node, record: Any) -> None:
    node.begin()
    node.read("control", halt())
    assert node.read("runs", record) == {"r1"}
    assert node.read("runs", running(event=resume())) == set(), "and it does not keep it halted"


def test_a_record_in_another_partition_neither_releases_nor_hides_a_halt(node: Node) -> None:
    node.begin()
    node.read("control", halt())
    assert node.read("control", halt(1, 500, NOON_MS + 1, "elsewhere")) == {"r1"}
    assert node.read("runs", running(1, 510, resume("elsewhere", LATER_MS))) == {"r1"}
    assert node.read("runs", running(0, 120, resume(at_ms=LATER_MS + 1))) == set()
    node.begin()
    assert node.read("runs", running(1, 900)) == set()
    assert node.read("control", halt()) == {"r1"}


def test_a_resume_that_has_lifted_one_halt_lifts_no_other(node: Node) -> None:
    node.begin()
    bare = b'{"run_id":"r1","status":"halted","severity":"halt"}'  # says no reason that a resume could name
    node.read("runs", signed("runs", b"r1", bare, LogPlace(0, 100, NOON_MS)))
    assert node.read("runs", running(event=resume())) == set()
    node.read("runs", signed("runs", b"r1", bare, LogPlace(0, 130, LATER_MS + 10)))
    assert node.read("runs", running(offset=140, event=resume(), at_ms=LATER_MS + 20)) == {"r1"}
    assert node.read("runs", running(offset=140, event=resume(at_ms=LATER_MS + 30), at_ms=LATER_MS + 40)) == set()


def test_without_keys_a_record_releases_the_halts_of_its_own_partition_only(trusting: Node) -> None:
    def status(what: str, partition: int, offset: int) -> Any:
        value = f'{{"run_id":"r1","status":"{what}","partition":{partition},"offset":{offset}}}'
        return replace(halt(), value=value.encode(), headers=())

    trusting.begin()
    assert trusting.read("runs", status("halted", 0, 10)) == {"r1"}
    assert trusting.read("runs", status("running", 1, 20)) == {"r1"}
    assert trusting.read("runs", status("running", 0, 9)) == {"r1"}
    assert trusting.read("runs", status("running", 0, 11)) == set()
    assert set(RUNS) == {"r1", "r2"}
