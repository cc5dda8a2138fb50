"""One secured broker for all tests of this folder; the machine's own settings are hidden from them."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.kafka.acls import ROLES
from streamproc.settings import Settings
from tests.security.broker import SecureBroker
from tests.security.endpoint import TokenEndpoint
from tests.worker.running import WorkerProcess, environment_of

ATTACKERS = ("writes-control", "writes-runs", "writes-commands", "writes-turns")
USERS = ("stranger", "narrow", *ATTACKERS, *(role.name for role in ROLES))


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A Kafka with TLS, logins and ACLs; `admin` may do everything, `stranger` nothing."""
    broker = SecureBroker(tmp_path_factory.mktemp("secured") / "kafka", USERS)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def endpoint(secured: SecureBroker) -> Iterator[TokenEndpoint]:
    """A token endpoint whose tokens the broker accepts."""
    with TokenEndpoint(secured.issuer) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _alone(nobodys_settings: None) -> None:
    """Hide the machine's settings from all tests of this folder."""


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Start workers that are killed at the end of the test."""
    started: list[WorkerProcess] = []

    def start(settings: Settings, before: str = "") -> WorkerProcess:
        started.append(WorkerProcess(settings, tmp_path / f"worker-{len(started)}.log", before=before))
        return started[-1].start()

    yield start
    for worker in started:
        worker.end(signal.SIGKILL)


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command with settings from the environment. Returns its output."""
    app = build()

    def run(settings: Settings, *words: object, code: int = 0) -> str:
        with monkeypatch.context() as patch:
            for name, value in environment_of(settings).items():
                patch.setenv(name, value)
            result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.fixture
def nowhere() -> str:
    """An address on this machine where no broker listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
