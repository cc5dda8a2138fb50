"""What runs said last is kept in the process, within bounds, and leaves it redacted and only if workers ask."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamproc.client import HaltListener, TurnPublisher, recent_texts
from streamproc.client.recent_texts import RecentTexts
from streamproc.errors import Halted
from streamproc.kafka import topics as kafka_topics
from streamproc.model.guard_report import EXCERPTS, is_guard_report
from streamproc.policy import load_policy
from streamproc.read_model.model import ReadModel
from streamproc.read_model.one_run import read_run
from streamproc.report.writing import report_text
from streamproc.settings import Settings, load_settings
from tests.client.records import turns_on
from tests.waiting import until
from tests.worker.running import WorkerProcess

SECRET = "sk-proj-" + "Zx9" * 16
CALL = {"name": "shell", "args": {"cmd": "pytest -q", "token": SECRET}, "result": f"2 failed; key={SECRET}"}


@pytest.fixture
def settings() -> Settings:
    return load_settings(topic_prefix="here")


@pytest.fixture
def texts(settings: Settings) -> RecentTexts:
    texts = RecentTexts()
    texts.want(settings, True)
    return texts


def taken(texts: RecentTexts, settings: Settings, run_id: str = "r") -> dict[str, Any]:
    text = texts.excerpts(settings, run_id)
    texts.drop(settings, run_id)
    return json.loads(text) if text else {}


def test_the_last_turns_are_given_once_and_without_secrets(settings: Settings, texts: RecentTexts) -> None:
    for number in range(20):
        texts.note(settings, "r", f"e{number}", {"output": f"try {number}", "tool_calls": [CALL]})
    text = texts.excerpts(settings, "r")
    assert texts.excerpts(settings, "r") == text  # a report may have to be sent again
    texts.drop(settings, "r")
    assert SECRET not in text
    assert list(json.loads(text)) == [f"e{number}" for number in range(19, 7, -1)]
    assert json.loads(text)["e19"]["output"] == "try 19"
    assert json.loads(text)["e19"]["tool_calls"][0]["args"].startswith("pytest -q")
    assert taken(texts, settings) == {}


def test_runs_of_another_fleet_are_not_mixed_up(settings: Settings, texts: RecentTexts) -> None:
    other = load_settings(topic_prefix="there")
    texts.note(other, "r", "e", {"output": "there"})
    texts.note(settings, "r", "e", {"output": "here"})
    assert taken(texts, other) == {}
    assert taken(texts, settings)["e"] == {"output": "here"}


def test_nothing_is_kept_where_no_worker_asks_for_it(settings: Settings, texts: RecentTexts) -> None:
    texts.want(settings, False)
    texts.note(settings, "r", "e", {"output": "here"})
    assert taken(texts, settings) == {}


def test_memory_is_bounded_by_runs_and_by_characters(
    settings: Settings, texts: RecentTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_texts, "RUNS_MAX", 10)
    monkeypatch.setattr(recent_texts, "CHARS_MAX", 5_000)
    for number in range(50):
        texts.note(settings, f"r{number}", "e", {"output": "x" * 10})
    assert len(texts._runs) == 10
    for number in range(50):
        texts.note(settings, f"r{number}", "e", {"output": "x" * 1_000})
    assert texts._chars <= 5_000
    for run_id in [run_id for _, run_id in texts._runs]:
        assert taken(texts, settings, run_id)
    assert texts._chars == 0


def test_a_report_is_small_whatever_the_turns_say(settings: Settings, texts: RecentTexts) -> None:
    calls = [{"name": "t" * 400, "args": "ä" * 900, "result": "ß" * 900}] * 50
    for number in range(20):
        texts.note(
            settings, "r", f"e{number}", {"output": "ö" * 9_000, "artifact": {"a": "x" * 900}, "tool_calls": calls}
        )
    assert 0 < len(texts.excerpts(settings, "r").encode()) < recent_texts.BYTES_MAX + 1_024


@pytest.mark.parametrize("asked", [True, False])
async def test_a_halted_runs_report_shows_its_words_where_the_policy_asks_for_them(
    brokers: str, topic_prefix: str, nobodys_settings: None, tmp_path: Path, asked: bool
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"name": "fleet", "evidence_excerpts": asked}))
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, policy=str(policy))
    await kafka_topics.apply(settings)
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    try:
        await worker.ready()
        async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings) as halts:
            await until(lambda: halts.state.name == "watching", 30, "a heartbeat")
            with pytest.raises(Halted):
                await _work(turns, halts)
            await until(lambda: halts.reports.sent >= 1, 30, "the guard's report")
    finally:
        worker.end(signal.SIGKILL)
    reports = [event for event in await turns_on(settings) if is_guard_report(event)]
    assert [EXCERPTS in (event.labels or {}) for event in reports if (event.labels or {})["guard"] == "stopped"] == [
        asked
    ]
    model = ReadModel()
    recording = await read_run(settings, load_policy(settings.policy), "stuck", model=model)
    model.close()
    text = report_text(recording, "stuck", settings.policy, format_="md")
    assert SECRET not in text
    assert ("pytest -q" in text, "2 failed" in text) == (asked, asked)


async def _work(turns: TurnPublisher, halts: HaltListener) -> None:
    async with halts.guard("stuck"):
        while True:
            await turns.turn(run_id="stuck", node="coder", tool_calls=[CALL])
            await asyncio.sleep(0.05)
