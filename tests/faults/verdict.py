"""Whether nothing was lost and nothing made up: what the topics hold, beside a scan of the same log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamproc.core.run_state import RunState
from streamproc.kafka.topics import changelog_topic
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.worker.codec import unpack
from streamproc.worker.tables import RunLimits, Runs
from tests.faults.workload import SESSION, line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from streamproc.core.decision import Decision
    from tests.faults.workload import Raw
    from tests.worker.running import Topics

PLACE: Final = {"partition", "offset"}  # of a run's last record in the log; a scan knows none
OF_ACCOUNTS: Final = "BUDGET009"  # the only budget of accounts that the workload declares
OF_WORKERS: Final = {"budget.reached", "deadline", "operator.stop"}  # what workers append to the log themselves


class Identified(msgspec.Struct):
    """What is looked at of a record of the turns topic."""

    type: str = "turn"
    event_id: str = ""


_identify: Final = msgspec.json.Decoder(Identified).decode


def identity(value: bytes | None) -> Identified | None:
    """Type and id of an event; None where the record is none."""
    try:
        return _identify(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class Log:
    """The turns topic as it stands at the end, and what users wrote."""

    records: list[Any]
    by_id: Mapping[str, Raw]

    def write(self, path: Path) -> int:
        """Write it as JSONL: each event as its user wrote it, at the time and in the order of the log; what is no
        event as it is. How many lines are none."""
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
    """What was found: turns in the log; decisions that were told, those that were not, those that the scan does not
    know, and those that were told again."""

    turns: int
    controls: int
    lost: int
    made_up: int
    duplicates: int


class Scanned:
    """`streamproc scan` of a log."""

    def __init__(self, log: Log, path: Path, policy: Any) -> None:
        bad = log.write(path)
        source = Source(path, lenient=True)
        scan = Scan([source], policy)
        self.decisions: list[Decision] = list(scan)
        assert source.bad == bad, "scan refuses what is no event, and nothing else"
        self.bad = bad
        self.runs: dict[str, RunState] = scan.runs
        self.turns = scan.turns


async def judge(topics: Topics, log: Log, scanned: Scanned) -> Verdict:
    """Compare the control topic, the dead letters and the changelog with the scan. Raises `AssertionError`."""
    controls = await topics.read("control")
    lost, made_up, duplicates = compare_controls(controls, scanned, log)
    letters = {_source(letter) for letter in await topics.read("dead-letter")}
    assert len(letters) == scanned.bad, f"{len(letters)} records in the dead-letter topic, {scanned.bad} are no events"
    compare_states(await topics.read_topic(changelog_topic(topics.settings)), scanned, log)
    return Verdict(scanned.turns, len(controls), lost, made_up, duplicates)


def compare_controls(controls: Iterable[Any], scanned: Scanned, log: Log) -> tuple[int, int, int]:
    """The same ids as in the scan, each always in the same words, about the record that it names. How many were lost,
    made up, and told again."""
    wanted = {decision.id: decision for decision in scanned.decisions}
    assert len(wanted) == len(scanned.decisions), "an id tells one decision from all others"
    places = {(record.partition, record.offset): record for record in log.records}
    told: dict[str, bytes] = {}
    count = 0
    for record in controls:
        control = msgspec.json.decode(record.value)
        count += 1
        assert told.setdefault(control["id"], record.value) == record.value, f"told in two ways: {control['id']}"
        trigger = control["trigger"]
        cause = identity(places[trigger["partition"], trigger["offset"]].value)
        assert cause is not None
        assert cause.event_id == trigger["event_id"], "a decision names the place of its cause"
    lost = wanted.keys() - told.keys()
    made_up = {one for one in told.keys() - wanted.keys() if not _before_its_account_spoke(told[one], scanned)}
    assert not lost, f"{len(lost)} of {len(wanted)} decisions were lost: {_some(wanted[one] for one in lost)}"
    assert not made_up, f"{len(made_up)} decisions were made up: {[told[one] for one in sorted(made_up)[:3]]}"
    return len(lost), len(made_up), count - len(told)


def _before_its_account_spoke(control: bytes, scanned: Scanned) -> bool:
    """Whether the scan has halted this run already, because its account said so: the account of a worker speaks later
    than that of a scan, and until then the run is judged as ever."""
    told = msgspec.json.decode(control)
    return any(
        one.run_id == told["run_id"] and one.code == OF_ACCOUNTS and one.severity == "halt"
        and told["trigger"]["turn"] >= one.trigger.turn
        for one in scanned.decisions
    )  # fmt: skip


def compare_states(changelog: Iterable[Any], scanned: Scanned, log: Log) -> None:
    """A successor that recovers now knows of each run what the scan does, up to its last record."""
    parts: dict[int, Runs] = {}
    for record in changelog:
        runs = parts.setdefault(record.partition, Runs(record.partition, RunLimits()))
        runs.restore(record.key, record.value, record.offset)
    ends = {record.key: (record.partition, record.offset) for record in log.records if _is_event(record, log)}
    behind: Counter[str] = Counter()
    for run_id, wanted in scanned.runs.items():
        key = run_id.encode()
        partition, offset = ends[key]
        raw = parts[partition].raw(key) if partition in parts else None
        if raw is None:
            behind["unknown"] += 1
            continue
        found = unpack(raw)[0]
        behind["of too few records"] += found.offset < offset
        # When an account speaks to its run is chance.
        compared = ("turns",) if wanted.workflow == SESSION else RunState.__struct_fields__
        behind.update(name for name in compared if name not in PLACE and getattr(found, name) != getattr(wanted, name))
    assert not +behind, f"of {len(scanned.runs)} runs in the changelog: {dict(behind)}"


def _is_event(record: Any, log: Log) -> bool:
    found = identity(record.value)
    return found is not None and (found.event_id in log.by_id or found.type in OF_WORKERS)


def _source(letter: Any) -> tuple[bytes, ...]:
    headers = dict(letter.headers)
    return headers["source.topic"], headers["source.partition"], headers["source.offset"]


def _some(decisions: Iterable[Decision]) -> list[str]:
    shown = [f"{one.run_id} {one.code} {one.severity} {one.trigger}" for one in decisions]
    return shown[:5]
