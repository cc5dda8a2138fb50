"""Compare the topics with a scan of the same log: no decision may be lost or made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from streamproc.kafka.topics import changelog_topic
from streamproc.model.controls import ControlEvent
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.worker.codec import decode_run
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from tests.faults.workload import SESSION, Raw, line
from tests.feeding import Feed, stored_run
from tests.states import shown
from tests.worker.running import Topics

PLACE: Final = {"partition", "offset"}  # position of a run's last record; a scan has none
OF_ACCOUNTS: Final = "BUDGET009"  # the only account budget that the workload declares
OF_WORKERS: Final = {"budget.reached", "deadline", "operator.stop"}  # events that workers append to the log


class Identified(msgspec.Struct):
    """The compared fields of a record of the turns topic."""

    type: str = "turn"
    event_id: str = ""


_identify: Final = msgspec.json.Decoder(Identified).decode


def identity(value: bytes | None) -> Identified | None:
    """Return type and id of an event, or None for a record that is not an event."""
    try:
        return _identify(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class Log:
    """The final contents of the turns topic, and the raw events of the users."""

    records: list[Any]
    by_id: Mapping[str, Raw]

    def write(self, path: Path) -> int:
        """Write it as JSONL: each event as its user wrote it, in the order and with the time of the log; other records
        unchanged. Return the number of lines that are not events."""
        bad = 0
        with path.open("wb") as file:
            for record in sorted(self.records, key=lambda one: (one.partition, one.offset)):
                found = identity(record.value)
                raw = self.by_id.get(found.event_id) if found is not None else None
                if raw is not None:
                    file.write(line(raw, record.timestamp))
                elif found is None or found.type not in OF_WORKERS:
                    text = (record.value or b"?").translate(None, b"\r\n")
                    file.write((text if text.strip() else b"?") + b"\n")
                    bad += 1
        return bad


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts: turns in the log; published decisions; decisions that were lost, made up (missing in the scan), and
    published more than once."""

    turns: int
    controls: int
    lost: int
    made_up: int
    duplicates: int


class Scanned:
    """The result of `streamproc scan` on a log."""

    def __init__(self, log: Log, path: Path, policy: Any) -> None:
        bad = log.write(path)
        source = Source(path, lenient=True)
        scan = Scan([source], policy)
        self.decisions: list[ControlEvent] = list(scan)
        assert source.bad == bad, "scan must refuse exactly the records that are not events"
        self.bad = bad
        self.runs = {run_id: Feed(stored=stored_run(scan.runs, run_id)).state for run_id in scan.runs}
        self.turns = scan.turns


def is_aside(record: Any, prefix: bytes) -> bool:
    """Return whether a fault checks this record itself."""
    return bool(prefix) and (record.key or b"").startswith(prefix)


async def check_results(topics: Topics, log: Log, scanned: Scanned, aside: bytes = b"") -> Verdict:
    """Compare the control topic, the dead-letter topic and the changelog with the scan. Raises `AssertionError`."""
    controls = [record for record in await topics.read("control") if not is_aside(record, aside)]
    lost, made_up, duplicates = compare_controls(controls, scanned, log)
    dead = {source(record) for record in await topics.read("dead-letter") if not is_aside(record, aside)}
    assert len(dead) == scanned.bad, f"{len(dead)} records in the dead-letter topic, {scanned.bad} are not events"
    compare_states(await topics.read_topic(changelog_topic(topics.settings)), scanned, log)
    return Verdict(scanned.turns, len(controls), lost, made_up, duplicates)


def compare_controls(controls: Iterable[Any], scanned: Scanned, log: Log) -> tuple[int, int, int]:
    """Check ids against the scan, copies against each other, and each trigger against its record. Return the numbers
    of lost, made-up and repeated decisions."""
    wanted = {decision.id: decision for decision in scanned.decisions}
    assert len(wanted) == len(scanned.decisions), "ids of decisions are unique"
    places = {(record.partition, record.offset): record for record in log.records}
    published: dict[str, bytes] = {}
    count = 0
    for record in controls:
        control = msgspec.json.decode(record.value)
        count += 1
        assert published.setdefault(control["id"], record.value) == record.value, f"two versions of {control['id']}"
        trigger = control["trigger"]
        cause = identity(places[trigger["partition"], trigger["offset"]].value)
        assert cause.event_id == trigger["event_id"], "a decision names the position of its trigger"
    lost = wanted.keys() - published.keys()
    made_up = {one for one in published.keys() - wanted.keys() if not _preceded_the_account(published[one], scanned)}
    assert not lost, f"{len(lost)} of {len(wanted)} decisions were lost: {_some(wanted[one] for one in lost)}"
    assert not made_up, f"{len(made_up)} decisions were made up: {[published[one] for one in sorted(made_up)[:3]]}"
    return len(lost), len(made_up), count - len(published)


def _preceded_the_account(control: bytes, scanned: Scanned) -> bool:
    """Return whether the scan halted this run earlier because of its account. In a worker, the account's breach reaches
    the run later than in a scan; until then the run is evaluated normally."""
    published = msgspec.json.decode(control)
    return any(
        one.run_id == published["run_id"] and one.code == OF_ACCOUNTS and one.severity == "halt"
        and published["trigger"]["turn"] >= one.trigger.turn
        for one in scanned.decisions
    )  # fmt: skip


def compare_states(changelog: Iterable[Any], scanned: Scanned, log: Log) -> None:
    """Check that a worker that recovers now gets the scan's state of each run, up to its last record."""
    cases: dict[int, Runs] = {}
    for record in changelog:
        runs = cases.setdefault(record.partition, Runs(record.partition, RunLimits()))
        runs.restore(record.key, record.value, record.offset)
    ends = {record.key: (record.partition, record.offset) for record in log.records if _is_event(record, log)}
    behind: Counter[str] = Counter()
    for run_id, wanted in scanned.runs.items():
        key = run_id.encode()
        partition, offset = ends[key]
        raw = cases[partition].raw(key) if partition in cases else None
        if raw is None:
            behind["missing"] += 1
            continue
        found = decode_run(raw)[0]
        behind["at an old offset"] += found.offset < offset
        # The moment at which an account's breach reaches its run is random.
        one, other = shown(found), shown(wanted)
        compared = {"turns"} if wanted.scope.workflow == SESSION else one.keys() - PLACE
        behind.update(name for name in compared if one[name] != other[name])
    assert not +behind, f"of {len(scanned.runs)} runs in the changelog: {dict(behind)}"


def _is_event(record: Any, log: Log) -> bool:
    found = identity(record.value)
    return found is not None and (found.event_id in log.by_id or found.type in OF_WORKERS)


def source(record: Any) -> tuple[bytes, ...]:
    """Return the place that a dead letter names: topic, partition, offset."""
    headers = dict(record.headers)
    return headers["source.topic"], headers["source.partition"], headers["source.offset"]


def _some(decisions: Iterable[ControlEvent]) -> list[str]:
    shown = [f"{one.run_id} {one.code} {one.severity} {one.trigger}" for one in decisions]
    return shown[:5]
