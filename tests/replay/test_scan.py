"""Scans of files: runs are independent, and the results are those of `Monitor`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
import pytest

from streamproc.errors import InvalidEvent
from streamproc.importers.raw_turns import line_event_id
from streamproc.monitor import Monitor
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file
from tests.feeding import STANDARD, Raw, Reported, short

AGAIN: Raw = {"node": "agent", "output": "I will try again."}
STUCK = [Reported("LOOP001", "warn", 1), Reported("LOOP001", "halt", 2)]


def write(path: Path, *events: Raw) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
    return path


def test_runs_of_one_file_are_independent(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", *(AGAIN | {"run_id": run} for _ in range(3) for run in "abc"))
    scan = Scan([Source(path)], STANDARD)
    decisions = list(scan)
    assert [decision.run_id for decision in decisions] == ["a", "b", "c", "a", "b", "c"]
    for run in "abc":
        assert [short(decision) for decision in decisions if decision.run_id == run] == STUCK
    assert (scan.turns, set(scan.runs)) == (9, {"a", "b", "c"})


def test_a_run_may_continue_in_the_next_file(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n}.jsonl", AGAIN | {"run_id": "a"}) for n in range(3)]
    ordinals: Counter[str] = Counter()
    decisions = list(Scan([Source(path, ordinals=ordinals) for path in paths], STANDARD))
    assert [short(decision) for decision in decisions] == STUCK


def test_a_decision_names_the_event_that_caused_it(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", *(AGAIN | {"run_id": "a", "at": f"2026-01-01T00:00:0{n}Z"} for n in range(3)))
    halt = list(Scan([Source(path)], STANDARD))[-1]
    assert (halt.trigger.event_id, halt.trigger.turn) == (line_event_id("a", 2), 2)
    assert halt.at == "2026-01-01T00:00:02.000Z"


def test_a_scan_and_a_monitor_give_the_same_decisions() -> None:
    monitor = Monitor()
    with trajectory_file() as path:
        scanned = [json.loads(msgspec.json.encode(decision)) for decision in Scan([Source(path)], load_policy())]
        fed = [control for line in Source(path) for control in monitor.feed(line.raw.model_dump(by_alias=True))]
    assert [control.id for control in fed] == [one["id"] for one in scanned]
    assert [control.model_dump(exclude_none=True)["evidence"] for control in fed] == [
        one["evidence"] for one in scanned
    ]


SCANNED: Final = """
import sys
import msgspec
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from tests.feeding import stored_run
scan = Scan([Source(path) for path in sys.argv[1:]], load_policy("loop-safety"))
for decision in scan:
    sys.stdout.buffer.write(msgspec.json.encode(decision))
for run_id in scan.runs:
    sys.stdout.buffer.write(stored_run(scan.runs, run_id))
"""


def test_every_process_gives_the_same_decisions(tmp_path: Path) -> None:
    """Python's set order differs between processes; the order of nodes, edges and cycles must not depend on it."""
    names = [f"node {n}" for n in range(12)]
    ring = [[names[n], names[(n + 1) % 4 + n // 4 * 4]] for n in range(12)]
    graph = {"edges": [*ring, *([name, names[(n * 5) % 12]] for n, name in enumerate(names))]}
    turns: list[Raw] = [{"node": names[n * 7 % 12], "output": f"{n % 5}"} for n in range(80)]
    observed = [turn | {"run_id": "observed"} for turn in turns]
    declared = [{"type": "run.started", "graph": graph, "run_id": "declared"}]
    path = write(tmp_path / "runs.jsonl", *observed, *declared, *(turn | {"run_id": "declared"} for turn in turns))
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCANNED, str(path)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(outputs) == 1
    assert b"loop.halted" in outputs.pop()


def test_an_invalid_line_ends_a_scan_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(AGAIN | {"run_id": "a"}) + "\n{}\n")
    with pytest.raises(InvalidEvent, match=r"runs\.jsonl:2: run_id"):
        list(Scan([Source(path)], STANDARD))
