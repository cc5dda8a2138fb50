"""Logins with a password, a token or a certificate. (A whole run over mutual TLS: test_content_stays.py; ACLs:
test_acls.py.)"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import jsonl, stuck
from tests.secured.broker import SecureBroker
from tests.secured.endpoint import TokenEndpoint
from tests.worker.running import WorkerProcess

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

STUCK_S = 60.0  # a stuck run is halted at its third turn; a worker on a busy machine may take seconds for that
TOKEN_LIVES_S = 10  # renewed at 8 s: a busy machine may take two seconds from there to the login
LOGINS_S = 12.0  # all tokens are renewed in this time, and the broker ends a login after 2 s


async def stuck_run(turns: TurnPublisher, halts: HaltListener, run_id: str) -> None:
    """Publish the same output over and over, under a guard."""
    until = time.monotonic() + STUCK_S
    async with halts.guard(run_id):
        while time.monotonic() < until:
            await turns.turn(run_id=run_id, node="coder", output="I will try again.")
            await turns.flush()


@pytest.mark.long
async def test_a_run_is_halted_while_logins_expire_and_tokens_are_renewed(
    secured: SecureBroker,
    endpoint: TokenEndpoint,
    topic_prefix: str,
    start_worker: Callable[[Settings], WorkerProcess],
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint.lives_s = TOKEN_LIVES_S
    settings = secured.by_token(topic_prefix=topic_prefix, **endpoint.options)
    assert (await topics.apply(settings)).ok
    worker = start_worker(settings)
    await worker.ready()

    async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings) as halts:
        with pytest.raises(Halted):
            await stuck_run(turns, halts, "r1")
        before = len(endpoint.given)
        until = time.monotonic() + LOGINS_S
        number = 0
        while time.monotonic() < until:  # keep publishing: a login expires when its connection is used
            await turns.turn(run_id="honest", node="coder", output=f"step {number}")
            await turns.flush()
            number += 1
        with pytest.raises(Halted):
            await stuck_run(turns, halts, "r2")
        assert (turns.dropped, turns.invalid) == (0, 0)

    assert worker.end() == 0, worker.text
    assert len(endpoint.given) >= before + 2
    assert endpoint.asked[0] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    said = worker.text + caplog.text
    assert not [token for token in endpoint.given if token in said]
    assert "not being delivered" not in said  # an expired login is not an outage
    assert said.count("receiving no halts") <= 1  # one: the machine was busy; expired logins would end each connection


def test_the_commands_log_in_and_show_no_secret(
    secured: SecureBroker,
    topic_prefix: str,
    tmp_path: Path,
    run_cli: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    settings = secured.by_password("admin", "SCRAM-SHA-256", topic_prefix=topic_prefix)
    turns = tmp_path / "turns.jsonl"
    turns.write_text(jsonl(stuck()))

    said = run_cli(settings, "topics", "apply")
    said += run_cli(settings, "doctor")
    said += run_cli(settings, "config")
    said += run_cli(settings, "publish", turns)
    said += run_cli(settings, "stop-all", "--why", "a drill", "--wait", 0)
    said += run_cli(settings, "clear", "--wait", 0)
    replayed = run_cli(settings, "replay", "--all")

    assert "HALTED  stuck" in replayed
    assert not [secret for secret in secured.secrets if secret in said + replayed + caplog.text]


async def test_the_token_in_a_file_decides_the_user_at_each_login(
    secured: SecureBroker, topic_prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    settings = secured.by_token(topic_prefix=topic_prefix, sasl_token_file=str(file))

    assert (await topics.apply(secured.by_password("admin", topic_prefix=topic_prefix))).ok
    file.write_text(secured.issuer.token("admin"))
    allowed = await topics.partitions(settings)
    file.write_text(secured.issuer.token("stranger"))

    assert f"{topic_prefix}.turns" in allowed
    assert await topics.partitions(settings) == {}


@pytest.mark.long
async def test_a_token_in_a_file_is_read_again_while_a_client_works(
    secured: SecureBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """The broker ends each login after 2 s."""
    file = tmp_path / "token"
    file.write_text(secured.issuer.token("admin"))
    settings = secured.by_token(topic_prefix=topic_prefix, sasl_token_file=str(file))
    assert (await topics.apply(secured.by_password("admin", topic_prefix=topic_prefix))).ok

    async with TurnPublisher(settings=settings) as turns:
        until = time.monotonic() + LOGINS_S
        while time.monotonic() < until:
            file.write_text(secured.issuer.token("admin"))
            await turns.turn(run_id="r1", node="coder")
            await turns.flush()
        assert (turns.dropped, turns.invalid) == (0, 0)


@pytest.mark.parametrize("password", ["", "pass-of-the-key"])
async def test_a_client_certificate_decides_the_user(
    password: str, secured: SecureBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """Its key may be encrypted."""

    def of(user: str) -> Settings:
        given = secured.by_certificate(user, topic_prefix=topic_prefix)
        if not password:
            return given
        sealed = tmp_path / f"{user}.key"
        key = serialization.load_pem_private_key((secured.directory / f"{user}.pem").read_bytes(), None)
        encryption = serialization.BestAvailableEncryption(password.encode())
        formats = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        sealed.write_bytes(key.private_bytes(*formats, encryption))
        return load_settings(**(dict(given) | {"ssl_keyfile": str(sealed), "ssl_password": password}))

    assert (await topics.apply(of("admin"))).ok
    report = await topics.check(of("stranger"))

    assert f"{topic_prefix}.turns" in report.denied
    assert not report.present
