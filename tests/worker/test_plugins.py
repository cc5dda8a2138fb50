"""A worker with the detector of docs/extending.md, from an installed distribution, decides as a scan does."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from streamproc.kafka import topics as kafka_topics
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.settings import load_settings
from tests.docs.distribution import install
from tests.docs.pages import ROOT, blocks
from tests.worker.running import Topics, WorkerProcess, gather_controls


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page, installed here and found from here."""
    for block in blocks(ROOT / "docs" / "extending.md"):
        if block.mark.startswith("file: "):
            (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
    install((tmp_path / "pyproject.toml").read_text(), tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


async def test_a_worker_decides_as_a_scan_does(brokers: str, package: Path) -> None:
    policy = package / "policy.yaml"
    scanned = list(Scan([Source(package / "mails.jsonl")], load_policy(policy)))
    assert [(one.code, one.severity) for one in scanned] == [("acme/many-mails", "warn"), ("acme/many-mails", "halt")]
    prefix = f"plugins-{uuid.uuid4().hex[:8]}"
    settings = load_settings(brokers=brokers, topic_prefix=prefix, policy=str(policy))
    await kafka_topics.apply(settings)
    path = f"import sys; sys.path.insert(0, {str(package)!r})"
    worker = WorkerProcess(settings, package / "worker.log", before=path).start()
    try:
        await worker.ready()
        async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
            for line in (package / "mails.jsonl").read_bytes().splitlines():
                await producer.send_and_wait(settings.topic("turns"), line, key=orjson.loads(line)["run_id"].encode())
        controls = await gather_controls(Topics(settings), {one.id for one in scanned})
    finally:
        worker.end(signal.SIGKILL)
    own = [one for one in controls if one["code"] == "acme/many-mails"]
    assert [(one["severity"], one["evidence"]["details"], one["action"]) for one in own] == [
        ("warn", {"last_node": "agent"}, "warn"),
        ("halt", {"last_node": "agent"}, "ask_human"),
    ]
