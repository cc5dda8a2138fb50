"""`GET /halted/RUN` without a broker: what is known is told, and nothing else is."""

from __future__ import annotations

import json

import aiohttp
import pytest
from yarl import URL

from streamproc.client import HaltListener
from streamproc.client.halt_records import read_control_news
from streamproc.otel import AssemblyLimits
from tests.client.records import halt_event
from tests.otel.conftest import Served

NOWHERE = "127.0.0.1:1"  # nothing listens there


async def asked(served: Served, path: str) -> tuple[int, dict[str, object], str]:
    address = URL(f"{served.url}/halted/{path}", encoded=True)
    async with aiohttp.ClientSession() as session, session.get(address) as got:
        return got.status, json.loads(await got.read()), got.headers.get("Cache-Control", "")


@pytest.mark.parametrize(
    ("run_id", "path"),
    [("r1", "r1"), ("a/b", "a/b"), ("a/b", "a%2Fb"), ("a\nb", "a%0Ab"), ("ä?", "%C3%A4%3F")],
    ids=["plain", "slash", "escaped-slash", "line-break", "umlaut"],
)
async def test_without_a_broker_known_halts_are_told_and_others_are_not_known(run_id: str, path: str) -> None:
    async with HaltListener(NOWHERE, wait=False) as halts:
        value = halt_event(run_id=run_id).model_dump_json().encode()
        halts.dispatcher.control(read_control_news(value, 1), value)
        served = Served(AssemblyLimits(), halts=halts)
        await served.start()
        try:
            status, content, cache = await asked(served, path)
            assert (status, content["run_id"], content["halted"], cache) == (200, run_id, True, "no-store")
            assert content["control"] == json.loads(halt_event(run_id=run_id).model_dump_json(exclude_none=True))
            assert (await asked(served, "other"))[:2] == (
                503,
                {"message": "halts are not received now: see the log, or run `streamproc doctor`"},
            )
            assert not halts.caught_up.is_set()
        finally:
            await served.stop()


async def test_without_the_option_nothing_is_answered(served: Served) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{served.url}/halted/r1") as got:
        assert got.status == 404


async def test_a_path_that_is_no_utf8_is_answered() -> None:
    async with HaltListener(NOWHERE, wait=False) as halts:
        served = Served(AssemblyLimits(), halts=halts)
        await served.start()
        try:
            assert (await asked(served, "%ff%fe"))[0] == 503
        finally:
            await served.stop()
