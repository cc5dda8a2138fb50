"""No streamproc process accepts connections, and local Kafka and Redis accept only local ones."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from deploy.local.redis import Server
from streamproc.client import HaltListener, TurnPublisher
from streamproc.kafka import topics
from tests.cli.conftest import command
from tests.listening import address_of, listening, public
from tests.secured.broker import SecureBroker
from tests.waiting import until
from tests.worker.running import environment_of

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]


@pytest.mark.parametrize(("host", "is_public"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_listening_sockets_are_found(host: str, is_public: bool) -> None:
    with socket.socket() as server:
        server.bind((host, 0))
        assert host not in listening(os.getpid())
        server.listen()
        assert host in listening(os.getpid())
        assert (host in public(os.getpid())) == is_public


def test_addresses_in_kernel_format_are_parsed() -> None:
    assert address_of("0100007F") == "127.0.0.1"
    assert address_of("00000000000000000000000001000000") == "::1"


async def test_an_agent_and_a_notifier_do_not_listen(secured: SecureBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Nor does a worker: test_content_stays.py checks one."""
    settings = secured.by_certificate("admin", topic_prefix=topic_prefix)
    await topics.apply(settings)
    before = listening(os.getpid())
    log = tmp_path / "notify.log"
    with log.open("wb") as file:
        notifier = command("notify", "--to", "json://localhost:1", output=file, **environment_of(settings))
    try:
        async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings):
            await turns.turn(run_id="r1", node="coder")
            await turns.flush()
            await until(lambda: "partitions=" in log.read_text(), what="the notifier")

            assert listening(notifier.pid) == set()
            assert listening(os.getpid()) == before
    finally:
        notifier.send_signal(signal.SIGKILL)
        notifier.wait()


def test_local_kafka_and_redis_accept_only_local_connections(secured: SecureBroker, own_redis: Server) -> None:
    for pid in (secured.pid, own_redis.start().pid):
        assert listening(pid)
        assert not public(pid)
