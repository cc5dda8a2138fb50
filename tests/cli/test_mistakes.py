"""Mistakes of people at the command line: each gets a message that says what to do, exit code 2, and no traceback."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from streamproc.model import setting_hints
from tests.cli.conftest import honest, jsonl

TURN = {"run_id": "a", "node": "coder", "output": "hello"}
FILES = {
    "turns.jsonl": jsonl(honest()),
    "camel.jsonl": json.dumps({"runId": "a", "node": "coder"}),
    "no-node.jsonl": jsonl([TURN]) + json.dumps({"run_id": "a"}),
    "misspelt.jsonl": jsonl([TURN]) + json.dumps({"run_id": "a", "Node": "coder"}),
    "broken.jsonl": jsonl([TURN, TURN | {"output": "goodbye"}]) + '{"run_id": "a", "node": }',
    "unknown-code.yaml": "detectors: {LOOP999: true}",
    "budget-at-the-top.yaml": "maxSteps: 5",
    "unknown-key.yaml": "budgetz: {}",
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("command", "said"), [
    ("runs --brokers=", "STREAMPROC_BROKERS: '' is no address of a broker: name at least one HOST:PORT"),
    ("runs --brokers kafka:http", "'kafka:http' is no address of a broker"),
    ("runs --brokers no-such-host.invalid:9092", "the name no-such-host.invalid cannot be resolved: correct it in"),
    ("topics check --brokers FREE", "refuses connections, so nothing listens there: start Kafka, or set --brokers"),
    ("explain LOOP999", "no detector is called 'LOOP999': did you mean LOOP009? `streamproc explain` lists all"),
    ("explain repeatd_call", "did you mean LOOP003?"),
    ("policy check unknown-code.yaml", "detectors.LOOP999: no such detector (did you mean LOOP009?"),
    ("policy check budget-at-the-top.yaml", "maxSteps: unknown setting (did you mean budgets.maxSteps?)"),
    ("policy check unknown-key.yaml", "did you mean budgets? there are: detectors"),
    ("policy show nowhere.yaml", "nowhere.yaml: policy: cannot be read: No such file or directory (name a"),
    ("policy check --format csv", "Invalid value for '--format': 'csv' is not one of 'text', 'json', 'github'."),
    ("plan --runs many", "Invalid value for '--runs': expected a number, such as 10."),
    ("watch --count 0", "Invalid value for '--count': must be greater than or equal to 1"),
    ("topics apply --partitions few", "Invalid value for '--partitions': expected a whole number, such as 10."),
    ("scan camel.jsonl", "camel.jsonl: format: it has runId in place of run_id (name it run_id"),
    ("scan no-node.jsonl", "no-node.jsonl:2: node: missing (add it)"),
    ("scan misspelt.jsonl", "misspelt.jsonl:2: node: missing (the event has Node: call it node)"),
    ("scan broken.jsonl", "broken.jsonl:3: event: not JSON at column 25: unexpected character"),
    ("scan turns.jsonl --from otlp", "turns.jsonl: format: it is no log of otlp, but of raw (leave --from out)"),
    ("scan turns.jsonl --from csv", "--from: no format is named csv (choose from raw"),
    ("kill", "name a run, --session, --user, --tenant, or --user with --tenant: streamproc kill RUN --why REASON"),
    ("kill a --run b", "name the run once: streamproc kill RUN"),
    ("watch --since yesterday", "--since 'yesterday': not a time. Give an age such as 90s, 15m, 2h or 1d"),
    ("replay turns.jsonl --until tomorrow", "--until 'tomorrow': not a time."),
    ("feedback a wrong", "'wrong' is not one of 'false-alarm', 'right'"),
    ("resume a --grant maxSteps", "--grant maxSteps: expected BUDGET=AMOUNT, such as maxRuntimeMs=60000"),
    ("dlq list", "No such command 'dlq'"), ("runs --statu halted", "No such option: --statu"),
])  # fmt: skip
def test_a_mistake_gets_a_message_and_exit_code_2(run, command: str, said: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        words = [f"127.0.0.1:{free.getsockname()[1]}" if word == "FREE" else word for word in command.split()]
        result = run(*words, env={"COLUMNS": "300"})

    assert result.exit_code == 2
    assert said in result.stderr
    assert "Value error" not in result.stderr
    assert "Traceback" not in result.stderr
    assert not result.stdout


def test_a_server_that_is_no_broker_is_told_from_one_that_is_not_there(run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = run("doctor", "--brokers", address)

    assert result.exit_code == 1
    [line] = [line for line in result.stdout.splitlines() if line.startswith("fail")]
    assert f"{address} accepts connections, but does not answer as a Kafka broker" in line
    assert "streamproc doctor" not in line


def test_a_misspelt_variable_is_named_once(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting_hints, "_reported", set())
    monkeypatch.setenv("STREAMPROC_BROKER", "kafka:9092")
    for name in ("STREAMPROC_PORT", "STREAMPROC_SERVICE_HOST", "STREAMPROC_PAGE_PORT_8414_TCP"):  # set by Kubernetes
        monkeypatch.setenv(name, "10.0.0.1")

    first, second = run("config"), run("config")

    said = "streamproc: STREAMPROC_BROKER is no setting, and has no effect: did you mean STREAMPROC_BROKERS?\n"
    assert first.stderr == said
    assert second.stderr == ""


def test_the_doctor_reports_a_misspelt_variable(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting_hints, "_reported", set())
    monkeypatch.setenv("STREAMPROC_TOPICPREFIX", "fleet")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        result = run("doctor", "--brokers", f"127.0.0.1:{free.getsockname()[1]}")

    [line] = [line for line in result.stdout.splitlines() if "STREAMPROC_TOPICPREFIX" in line]
    assert line.startswith("warn STREAMPROC_TOPICPREFIX is no setting, and has no effect. To fix it: set ")
    assert line.endswith("set STREAMPROC_TOPIC_PREFIX instead")
    assert result.stderr == ""
