"""Admission on a Redis that requires TLS and a client certificate, as a user with few rights."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from redis.asyncio import Redis

from deploy.local import redis
from deploy.local.redis import Server
from streamproc.client.admission.admission import Admission
from streamproc.errors import InvalidSettings, Unavailable
from streamproc.settings import load_settings
from tests.waiting import until

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

PAGE = Path(__file__).parents[2] / "docs" / "admission.md"
PASSWORD = "s3cr3t-of-the-agents"


class Secured(NamedTuple):
    """Its port, and the files of its authority and its client."""

    port: int
    authority: Path
    certificate: Path

    def url(self, host: str = redis.HOST, user: str = f"agents:{PASSWORD}", **options: object) -> str:
        """Return its address, without the options that are None."""
        files = {"ssl_ca_certs": self.authority, "ssl_certfile": self.certificate, "ssl_keyfile": self.certificate}
        query = "&".join(f"{name}={value}" for name, value in (files | options).items() if value is not None)
        return f"rediss://{user}@{host}:{self.port}/0?{query}"


@contextlib.asynccontextmanager
async def tls_in_front(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Terminate TLS in front of a server: not every local Redis is built with TLS."""
    streams: set[asyncio.StreamWriter] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(redis.HOST, port)
        streams.update((writer, behind_writer))
        await asyncio.gather(copy(reader, behind_writer), copy(behind_reader, writer))

    server = await asyncio.start_server(serve, redis.HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for stream in streams:
            stream.close()


@pytest.fixture
async def secured_redis(own_redis: Server, tmp_path: Path) -> AsyncIterator[Secured]:
    """A Redis behind TLS. Its user `agents` has the documented rights."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("server", "client"):
        authority.issue_cert(redis.HOST).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tmp_path / "server.pem")
    documented = re.search(r"^ACL SETUSER agents on >secret (.+)$", PAGE.read_text(), re.MULTILINE)
    assert documented is not None
    port = own_redis.start().port
    async with Redis(port=port) as administrator:
        await administrator.execute_command("ACL", "SETUSER", "agents", "on", f">{PASSWORD}", *documented[1].split())
        await administrator.execute_command("ACL", "SETUSER", "default", "off")
    async with tls_in_front(port, context) as front:
        yield Secured(front, tmp_path / "ca.pem", tmp_path / "client.pem")


def admission(url: str) -> Admission:
    return Admission(settings=load_settings(redis=url), limits={"run": {"cost_usd": 1}}, timeout_s=5)


async def test_a_user_with_few_rights_spends_over_tls(secured_redis: Secured) -> None:
    async with admission(secured_redis.url()) as ours:
        async with ours.payer("r1").reserve(cost_usd="0.60") as hold:
            hold.settle(cost_usd="0.10")

        await until(lambda: not ours.unbooked)
        assert ours.granted == 1
        assert [one.spent_usd_micro for one in await ours.balances(ours.payer("r1"))] == [100_000]


@pytest.mark.parametrize(("wrong", "says"), [
    ({"user": "agents:another"}, "invalid username-password pair.*check user and password in STREAMPROC_REDIS"),
    ({"user": ""}, "check user and password in STREAMPROC_REDIS"),
    ({"ssl_ca_certs": None}, "CERTIFICATE_VERIFY_FAILED.*name the authority that signed its certificate"),
    ({"host": "localhost"}, "Hostname mismatch.*use the host name of its certificate in STREAMPROC_REDIS"),
    ({"ssl_certfile": None, "ssl_keyfile": None}, "STREAMPROC_REDIS, and whether it needs rediss://, ssl_certfile"),
], ids=lambda value: " ".join(value) if isinstance(value, dict) else "")  # fmt: skip
async def test_the_error_about_a_rejected_login_names_the_setting_and_no_password(
    wrong: dict[str, object], says: str, secured_redis: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")

    with pytest.raises(Unavailable, match=says) as problem:
        await admission(secured_redis.url(**wrong)).start()

    assert "another" not in str(problem.value) + caplog.text
    assert PASSWORD not in str(problem.value) + caplog.text


async def test_a_client_without_tls_gets_an_error_that_names_rediss(
    secured_redis: Secured, run_cli: Callable[..., str], nowhere: str
) -> None:
    url = f"redis://agents:{PASSWORD}@{redis.HOST}:{secured_redis.port}/0"
    says = "requires TLS, and redis:// is without"

    with pytest.raises(Unavailable, match=f"{says}: write rediss:// in STREAMPROC_REDIS") as problem:
        await admission(url).start()
    examined = await asyncio.to_thread(run_cli, load_settings(redis=url, brokers=nowhere), "doctor", code=1)

    assert f"{says}. To fix it: write rediss:// in STREAMPROC_REDIS" in examined
    assert PASSWORD not in str(problem.value) + examined


async def test_a_client_with_tls_gets_an_error_that_says_that_the_port_has_none(own_redis: Server) -> None:
    url = f"rediss://agents:{PASSWORD}@{redis.HOST}:{own_redis.start().port}/0"

    with pytest.raises(
        Unavailable, match="speaks no TLS on this port, and rediss:// requires it: use its TLS"
    ) as problem:
        await Admission(settings=load_settings(redis=url), limits={"run": {"cost_usd": 1}}, timeout_s=2).start()

    assert PASSWORD not in str(problem.value)


@pytest.mark.parametrize(
    "url", [f"redis://agents:a/{PASSWORD}@host", f"redis://agents:1{PASSWORD}#@host", "cache:6379"]
)
def test_the_error_about_an_invalid_address_does_not_show_its_password(
    url: str, run_cli: Callable[..., str], nowhere: str
) -> None:
    settings = load_settings(redis=url, brokers=nowhere)

    with pytest.raises(InvalidSettings, match=r"STREAMPROC_REDIS must be .* write / as %2F") as problem:
        admission(url)
    output = run_cli(settings, "config") + run_cli(settings, "config", "--json") + run_cli(settings, "doctor", code=1)

    assert "write / as %2F" in output
    assert PASSWORD not in output + str(problem.value) + repr(settings)
    assert "agents:a/" not in output


def test_passwords_in_options_of_the_address_are_not_shown(run_cli: Callable[..., str]) -> None:
    url = f"rediss://host:1/0?ssl_certfile=c.pem&ssl_password={PASSWORD}&password={PASSWORD}&ssl_keyfile=k.pem"

    output = run_cli(load_settings(redis=url), "config", "--json")

    assert "rediss://host:1/0?ssl_certfile=c.pem&ssl_password=********&password=********&ssl_keyfile=k.pem" in output
    assert PASSWORD not in output
