"""Every detector through the command line: its example in, its code out."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import orjson
import pytest

from streamproc.model.controls import ControlEvent
from tests.catalogue.examples import CODES, example_of, lines, policy, stuck

Controls = dict[str, list[ControlEvent]]


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Controls:
    """Return the control events of `streamproc scan` for each example, by run."""
    file: Path = tmp_path_factory.mktemp("catalogue") / "turns.jsonl"
    file.write_bytes(b"\n".join(lines(stuck())))
    rules = file.with_name("policy.yaml")
    rules.write_bytes(orjson.dumps(policy()))  # JSON is YAML
    command = [sys.executable, "-m", "streamproc", "scan", str(file), "--policy", str(rules), "--format", "jsonl"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr.decode()
    reported: Controls = defaultdict(list)
    for line in done.stdout.splitlines():
        control = ControlEvent.model_validate(orjson.loads(line))
        reported[example_of(control.run_id)].append(control)
    return reported


@pytest.mark.parametrize("code", CODES)
def test_scan_reports_it(scanned: Controls, code: str) -> None:
    runs = {run_id: example for run_id, (of, example) in stuck().items() if of == code}
    assert runs
    for run_id, example in runs.items():
        reported = [(control.code, control.severity) for control in scanned[run_id]]
        assert (code, example.severity) in reported, f"{run_id} ({example.title}): {reported}"


@pytest.mark.parametrize("code", CODES)
def test_its_decision_can_be_acted_on(scanned: Controls, code: str) -> None:
    [control, *_] = [control for run_id in stuck() for control in scanned[run_id] if control.code == code]
    assert len(control.message.split()) > 3
    assert control.evidence is not None
    assert control.policy is not None
    assert control.trigger.event_id
    if control.halts:
        assert control.halt_reason
        assert control.terminal_status
        assert control.suggested_actions[0] == control.action


def test_nothing_is_reported_twice(scanned: Controls) -> None:
    ids = [control.id for controls in scanned.values() for control in controls]
    assert len(ids) == len(set(ids))
