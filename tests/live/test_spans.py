"""OTLP into `streamproc up`: an agent that is only traced, by its own instrumentation, is judged and halted."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from streamproc.errors import Unavailable
from streamproc.live.judge import Judge
from streamproc.live.spans import JudgedTurns
from streamproc.live.store import LiveLog
from streamproc.policy import load_policy
from tests.live.conftest import Up, call
from tests.otel.traced_agent import FAILING, traced_run
from tests.waiting import until, wait_until

TOKEN = {"Authorization": "Bearer s3cret-token"}


def get(url: str, headers: dict[str, str]) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return json.load(answer)


def test_an_agent_that_is_only_traced_is_halted(
    up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    monkeypatch.setenv("STREAMPROC_OTEL_TOKEN", "s3cret-token")
    up.start("--otlp", "127.0.0.1:0")
    found = re.search(r"http://127\.0\.0\.1:\d+", up.output())
    assert found is not None
    url = found[0]
    traced_run(OTLPSpanExporter(f"{url}/v1/traces", headers=TOKEN), [FAILING] * 4, "r/1")
    wait_until(lambda: get(f"{url}/halted/r/1", TOKEN)["halted"], what="the run is halted")
    assert up.ask("POST", "/v1/decide", {"run_id": "r/1"})[1]["halt"]["code"] == "LOOP003"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(f"{url}/halted/r/1", {})
    traced_run(OTLPSpanExporter(f"{url}/v1/traces", headers=TOKEN), ["one", "two"], "r2", batch=True)
    assert up.stop() == 0  # with what there is of the traces
    assert "stopped spans" in up.output()
    log = LiveLog(up.places.log)
    assert {run.run_id for run in log.runs(9)} == {"r/1", "r2"}
    log.close()


def test_other_machines_need_a_token(up: Up, nobodys_settings: None) -> None:
    command = [sys.executable, "-m", "streamproc", "up", "--data", str(up.places.folder), "--otlp", "0.0.0.0:0"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "STREAMPROC_OTEL_TOKEN" in found.stderr


async def test_while_turns_cannot_be_recorded_no_spans_are_taken(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.live.spans.RETRY_S", 0.01)
    log = LiveLog(up.places.log)
    judge = Judge(load_policy("standard"), log)
    turns = JudgedTurns(judge)
    assert await turns.send({"run_id": "r1"}) == ""  # invalid: logged, and counted
    assert turns.invalid == 1
    feed, full = judge.feed, [True]

    def limited(*given: Any) -> Any:
        if full[0]:
            raise Unavailable("the log cannot be written")
        return feed(*given)

    monkeypatch.setattr(judge, "feed", limited)
    sending = asyncio.create_task(turns.send(call("ls", "a", "e1")))
    await until(lambda: turns.trouble, what="it knows that turns cannot be recorded")
    assert turns.waiting > 0
    assert not await turns.flush()
    full[0] = False
    assert await sending == "e1"
    assert turns.waiting == 0
    log.close()
