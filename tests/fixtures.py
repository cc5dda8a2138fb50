"""Fixtures for tests of any room: a Kafka with logins, workers, commands, an unused address, a browser."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner

from deploy.local.chromium import ARGUMENTS, MISSING, find
from streamproc.cli import build
from streamproc.kafka.acls import ROLES
from streamproc.settings import Settings
from tests.notify.receiver import Receiver
from tests.secured.broker import SecureBroker
from tests.secured.endpoint import TokenEndpoint
from tests.worker.running import Way, WorkerProcess, environment_of

ATTACKERS = ("writes-control", "writes-runs", "writes-commands", "writes-turns")
USERS = ("stranger", "narrow", *ATTACKERS, *(role.name for role in ROLES))

# Else each command that a test runs builds all of them again, which takes longer than most of them do.
typer.testing._get_command = cache(typer.main.get_command)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A Kafka with TLS, logins and ACLs, which all tests share; `admin` may do everything, `stranger` nothing."""
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


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address on this machine where nothing listens during the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running web server, which notifications are sent to."""
    receiver = Receiver().start()
    yield receiver
    receiver.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium; without one the test is skipped."""
    path = find()
    if path is None:
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts workers; none outlives the test."""
    started: list[WorkerProcess] = []

    def start(
        settings: Settings, path: Way = "batch", *, give_up_after_s: float | None = None, before: str = ""
    ) -> WorkerProcess:
        worker = WorkerProcess(settings, tmp_path / f"worker-{len(started)}.log", path, before)
        started.append(worker)
        return worker.start(give_up_after_s)

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
