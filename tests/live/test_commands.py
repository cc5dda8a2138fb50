"""The commands of a fleet, and the page, on the log of `streamproc up`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from streamproc.errors import InvalidSettings, Unavailable
from streamproc.kafka.reading import open_topic
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import ModelReader
from streamproc.read_model.rows import DecisionFilter
from streamproc.settings import Settings
from streamproc.web.commands import PageCommands
from streamproc.web.layout import bars
from streamproc.web.views.health import local_judge
from tests.live.conftest import Run, Up, call
from tests.waiting import until


@pytest.fixture
def stuck(up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None) -> Up:
    """Return a process that has halted one run of two."""
    monkeypatch.setenv("STREAMPROC_HOME", str(up.places.folder))
    up.start()
    up.ask("POST", "/v1/turns", [call("cat x", "no such file")] * 4)
    up.ask("POST", "/v1/turns", call("ls", "a b") | {"run_id": "r2"})
    return up


def test_the_commands_of_a_fleet_find_the_log_of_this_machine(stuck: Up, run: Run) -> None:
    rows = [json.loads(line) for line in run("runs", "--json").splitlines() if line.startswith("{")]
    assert [(row["run_id"], row["status"]) for row in rows] == [("r1", "halted"), ("r2", "running")]
    assert "the log of `streamproc up`" in run("runs")
    assert "HALTED  r1" in run("status", "r1", code=1)
    assert "2 identical; 0 missing; 0 extra" in run("replay", "--all", "--diff")
    assert "HALTED: `r1`" in run("report", "r1", "--format", "md", "-o", "-")
    assert "LOOP003" in run("stats")
    assert "standard" in run("backtest", "--all", "--policy", "standard")
    assert "halt  r1" in run("watch", "--since", "1h", "--count", "2")


def test_a_person_resumes_and_halts_runs(stuck: Up, run: Run) -> None:
    assert "r1: acknowledged" in run("acknowledge", "r1", "--by", "ann", "--why", "on it")
    assert "is not halted" in run("acknowledge", "r2", "--by", "ann", "--why", "on it", code=1)
    assert "Resumed by ann: once more" in run("resume", "r1", "--by", "ann", "--why", "once more")
    assert stuck.ask("POST", "/v1/decide", {"run_id": "r1"})[1]["allowed"] is True
    assert "is not halted" in run("resume", "r1", code=1)
    assert "Stopped by ann: wrong branch" in run("kill", "r2", "--by", "ann", "--why", "wrong branch")
    assert stuck.ask("POST", "/v1/decide", {"run_id": "r2"})[1]["allowed"] is False
    assert "has refused it" in run("kill", "r2", "--by", "ann", "--why", "wrong branch", code=1)
    stuck.stop()
    assert "does not answer" in run("kill", "r1", "--why", "wrong branch", code=2)


def test_a_person_kills_a_session_and_clears_it(stuck: Up, run: Run) -> None:
    stuck.ask("POST", "/v1/turns", [{"type": "run.started", "run_id": name, "session_id": "s"} for name in ("a", "b")])
    told = run("kill", "--session", "s", "--by", "ann", "--why", "it starts agents without end")
    assert "Session s is stopped by ann: it starts agents without end." in told
    assert "stopped 2 runs: a, b" in told
    assert [stuck.ask("POST", "/v1/decide", {"run_id": one})[1]["allowed"] for one in ("a", "r2")] == [False, True]
    assert "halt  *" in run("watch", "--since", "1h", "--count", "3")
    assert "4 identical; 0 missing; 0 extra" in run("replay", "--all", "--diff")
    cleared = run("clear", "--session", "s", "--by", "ann", "--why", "fixed")
    assert "is cleared by ann" in cleared
    assert "stopped" not in cleared
    stuck.ask("POST", "/v1/turns", {"type": "run.started", "run_id": "c", "session_id": "s"})
    assert stuck.ask("POST", "/v1/decide", {"run_id": "c"})[1]["allowed"] is True
    killed = json.loads(run("kill", "--user", "bob", "--by", "ann", "--why", "abuse", "--json").splitlines()[-1])
    assert (killed["run_id"], [one["code"] for one in killed["decisions"]]) == ("*", ["FLEET001"])
    assert "name one, or --brokers" in run("clear", "--by", "ann", "--why", "fixed", code=2)


def test_named_brokers_win(stuck: Up, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_BROKERS", "127.0.0.1:1")
    assert "127.0.0.1:1" in run("runs", code=2)
    assert "r1" in run("runs", "--brokers", "local")


def test_a_log_that_is_named_is_read_and_its_process_takes_the_commands(
    stuck: Up, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STREAMPROC_HOME", str(tmp_path))
    monkeypatch.setenv("STREAMPROC_BROKERS", f"local:{stuck.places.log}")
    assert "HALTED  r1" in run("status", "r1", code=1)
    assert "Resumed by ann: once more" in run("resume", "r1", "--by", "ann", "--why", "once more")
    assert stuck.ask("POST", "/v1/decide", {"run_id": "r1"})[1]["allowed"] is True


@pytest.mark.parametrize(
    "command", ["worker", "topics apply", "publish turns.jsonl", "notify --to json://127.0.0.1:1", "doctor", "otel"]
)
def test_what_needs_kafka_says_so_of_a_log(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nobodys_settings: None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.jsonl").write_text(json.dumps(call("ls", "a")))
    monkeypatch.setenv("STREAMPROC_BROKERS", f"local:{tmp_path / 'live.db'}")
    assert "name brokers" in " ".join(run(*command.split(), code=2).split())


def local(up: Up) -> Settings:
    return Settings(brokers=f"local:{up.places.log}", control_auth="off", command_auth="channel")


async def test_the_page_follows_it(stuck: Up) -> None:
    model = ReadModel()
    reader = ModelReader(local(stuck), model, since_ms=0)
    await reader.start()
    await until(
        lambda: reader.caught_up and len(model.decisions(DecisionFilter())) == 2, what="both decisions are read"
    )
    halted = model.run("r1")
    assert halted is not None
    assert (halted.status, halted.turns) == ("halted", 4)
    await asyncio.to_thread(stuck.ask, "POST", "/v1/turns", call("ls", "c") | {"run_id": "r3"})
    await until(lambda: model.run("r3"), what="a new run is read")
    assert reader.trouble is None
    await reader.stop()
    model.close()


async def test_the_page_says_whether_it_runs(stuck: Up) -> None:
    model = ReadModel()
    reader = ModelReader(local(stuck), model, since_ms=0, up_socket=stuck.places.socket)
    await reader.start()
    await until(lambda: reader.caught_up, what="the log is read")
    said = "streamproc up does not run"
    assert (said in bars(reader), said in local_judge(bool(reader.up_runs))) == (False, False)
    stuck.kill()  # its socket stays
    assert (said in bars(reader), said in local_judge(bool(reader.up_runs))) == (True, True)
    stuck.places.socket.unlink()
    assert said in bars(reader)
    await reader.stop()
    model.close()


async def test_the_page_of_a_log_takes_no_commands_and_denies_none(stuck: Up) -> None:
    with pytest.raises(InvalidSettings, match="streamproc kill"):
        PageCommands(local(stuck), ReadModel(), lambda: True, enabled=True)
    assert "is not known" in PageCommands(local(stuck), ReadModel(), lambda: True).unknown


async def test_the_page_follows_the_log_that_takes_the_place_of_a_damaged_one(stuck: Up) -> None:
    model = ReadModel()
    reader = ModelReader(local(stuck), model, since_ms=0)
    await reader.start()
    await until(lambda: model.run("r1") and model.run("r2"), what="the runs are read")
    stuck.kill()
    for ending in ("-wal", "-shm"):  # the first of them still has all that was written
        stuck.places.log.with_name(f"{stuck.places.log.name}{ending}").unlink(missing_ok=True)
    stuck.places.log.write_bytes(b"no database at all" * 1_000)
    await asyncio.to_thread(stuck.start)
    assert "was damaged" in stuck.output()
    await asyncio.to_thread(stuck.ask, "POST", "/v1/turns", call("ls", "c") | {"run_id": "r3"})
    await until(lambda: model.run("r3"), what="the new log is read")
    assert model.run("r1") is None
    await until(lambda: reader.caught_up, what="all of it is read")
    await reader.stop()
    model.close()


async def test_a_log_that_is_not_there_is_said(up: Up) -> None:
    with pytest.raises(Unavailable, match="start `streamproc up`"):
        async with open_topic(local(up), "turns"):
            pass
