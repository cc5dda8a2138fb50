"""`/metrics`, `/healthz` and `/readyz`, and that nothing listens unless it is asked to."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from streamproc.errors import InvalidSettings
from streamproc.metrics import Reading, definitions, exposing
from streamproc.metrics.server import address_of_worker
from streamproc.settings import load_settings
from streamproc.worker.supervisor import own
from tests.listening import listening
from tests.metrics.scraped import OPENMETRICS, Scraped, get, probe

pytestmark = pytest.mark.usefixtures("nobodys_settings")


def readings() -> Iterator[Reading]:
    yield Reading(definitions.EVICTED, 7)


@asynccontextmanager
async def served(missing: list[str], address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    async with exposing(load_settings(metrics=address), readings, lambda: missing) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(("accept", "content_type"), [
    ("", "text/plain; version=0.0.4; charset=utf-8"), ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
    ("application/openmetrics-text; version=new", "text/plain; version=0.0.4; charset=utf-8"),
    (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    (f"{OPENMETRICS};q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", "application/openmetrics-text; version=1.0.0"),
])  # fmt: skip
async def test_the_format_is_the_one_that_the_scraper_asks_for(accept: str, content_type: str) -> None:
    async with served([]) as url:
        status, found, text = await asyncio.to_thread(get, f"{url}/metrics", accept)
    assert status == 200
    assert found.startswith(content_type)
    is_openmetrics = "openmetrics" in content_type
    assert text.endswith("# EOF\n") == is_openmetrics
    assert Scraped(text, is_openmetrics=is_openmetrics).value("streamproc_evicted_total") == 7


async def test_ready_says_what_is_missing_and_healthy_does_not_care() -> None:
    missing = ["waiting for the broker", "reading the fleet commands"]
    async with served(missing) as url:
        assert await probe(f"{url}/readyz") == (503, "waiting for the broker\nreading the fleet commands\n")
        assert await probe(f"{url}/healthz") == (200, "ok\n")
        missing.clear()
        assert await probe(f"{url}/readyz") == (200, "ready\n")
        assert (await probe(f"{url}/"))[0] == 404
    assert await probe(f"{url}/healthz") == (0, "")


async def test_only_the_given_address_listens() -> None:
    before = listening(os.getpid())
    async with served([], "[::1]:0"):
        assert listening(os.getpid()) - before == {"::1"}
    assert listening(os.getpid()) == before


async def test_without_an_address_nothing_listens() -> None:
    before = listening(os.getpid())
    async with exposing(load_settings(), readings, list) as port:
        assert port is None
        assert listening(os.getpid()) == before


def test_without_an_address_nothing_is_imported() -> None:
    code = (
        "import asyncio, sys\n"
        "from streamproc.metrics import exposing, register_publisher\n"
        "from streamproc.settings import load_settings\n"
        "async def work():\n"
        "    async with exposing(load_settings(), list, list): pass\n"
        "asyncio.run(work())\n"
        "print(*sorted(sys.modules.keys() & {'prometheus_client', 'aiohttp', 'opentelemetry'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


@pytest.mark.parametrize("address", ["9464", "localhost", ":9464", "localhost:http", "localhost:65536", "localhost:-1"])
async def test_what_is_no_address_is_named_with_the_option_and_an_example(address: str) -> None:
    with pytest.raises(InvalidSettings, match=r"--metrics \(STREAMPROC_METRICS\) .* such as 127\.0\.0\.1:9464"):
        async with served([], address):
            pass


async def test_an_address_in_use_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidSettings) as raised:
            async with served([], address):
                pass
    assert str(raised.value).startswith(f"--metrics (STREAMPROC_METRICS) {address}: cannot listen there (")
    assert str(raised.value).endswith("choose an address of this machine and a port that is free")


def test_each_worker_has_a_port_of_its_own() -> None:
    settings = load_settings(metrics="127.0.0.1:9464")
    assert [own(settings, number, 3)["STREAMPROC_METRICS"] for number in (1, 2, 3)] == [
        "127.0.0.1:9464", "127.0.0.1:9465", "127.0.0.1:9466"
    ]  # fmt: skip
    assert own(load_settings(), 1, 3)["STREAMPROC_METRICS"] == ""
    assert address_of_worker("[::1]:9464", 2, 2) == "[::1]:9465"
    assert address_of_worker("localhost:0", 2, 2) == "localhost:0"
    assert address_of_worker("localhost:65535", 1, 1) == "localhost:65535"
    with pytest.raises(InvalidSettings, match="name one up to 65533"):
        address_of_worker("localhost:65534", 1, 3)


@pytest.mark.parametrize("command", ["worker", "notify --to json://localhost:1", "otel --listen 127.0.0.1:0"])
def test_a_command_exits_with_2_for_what_is_no_address(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamproc", *command.split(), "--metrics", "here"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--metrics (STREAMPROC_METRICS) here: name an address and a port, such as 127.0.0.1:9464" in done.stderr
    assert "Traceback" not in done.stderr
