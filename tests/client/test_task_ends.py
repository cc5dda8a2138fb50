"""Tasks that end while their run goes on, as a listener knows them: whichever order records arrive in."""

from __future__ import annotations

import asyncio
import pickle
from itertools import permutations

import msgspec
import pytest

from streamproc.client.halt_records import read_control_news, read_status_news
from streamproc.client.halts import Halts
from streamproc.errors import Halted, TaskEnded
from streamproc.model.controls import ControlTrigger
from streamproc.testing import MemoryListener, RecordingMonitor
from tests.client.records import halt_event, resume_event
from tests.core.board.test_ends import DECIDED, ENDS

AT = "2026-01-01T00:00:00Z"


def end_record(task: str, offset: int, *, kind: str = "task.ended", status: str = "blocked", **more: object) -> bytes:
    return msgspec.json.encode({
        "id": f"{task}@{offset}", "type": kind, "run_id": "r", "code": "TASK001", "severity": "warn",
        "message": "It swings.", "task_id": task, "terminal_status": status,
        "evidence": {"kind": "state_oscillation", "agent": "ada"},
        "trigger": {"partition": 0, "offset": offset}, "at": AT, **more,
    })  # fmt: skip


def status_record(offset: int, *tasks: str, partition: int = 0) -> bytes:
    ended = [{"task_id": task, "terminal_status": "blocked", "code": "TASK001", "agent": "ada"} for task in tasks]
    return msgspec.json.encode({
        "run_id": "r", "status": "running", "partition": partition, "offset": offset, "at": AT,
        "ended_tasks": ended,
    })  # fmt: skip


def error_of(halts: Halts, task: str = "", agent: str = "") -> TaskEnded | None:
    return halts.ends.error("r", {task}, {agent})


def test_a_decision_ends_a_task_and_the_work_of_its_agent_but_not_the_run() -> None:
    halts = Halts()
    news = read_control_news(end_record("T1", 5), 1)
    assert halts.control(news)
    assert "r" not in halts.runs
    found = error_of(halts, "T1")
    assert (found.run_id, found.task) == ("r", "T1")
    assert found.control is not None
    assert str(found) == "task T1 of run r has ended (TASK001): It swings."
    assert error_of(halts, agent="ada") is not None
    assert error_of(halts, "T2") is error_of(halts, agent="bob") is error_of(halts) is None
    assert not halts.control(read_control_news(end_record("T1", 6), 2))  # known already: nothing to cancel


@pytest.mark.parametrize("raw", [
    end_record("T1", 5, kind="transition.blocked"), end_record("T1", 5, status="stopped"),
    end_record("T1", 5, severity="halt"), end_record("", 5), end_record("T1", 5, task_id=None),
    end_record("T1", 5, terminal_status=None),
])  # fmt: skip
def test_other_decisions_end_no_task(raw: bytes) -> None:
    halts = Halts()
    halts.control(read_control_news(raw, 1))
    assert error_of(halts, "T1") is None


RECORDS = {  # of an end, a status with it, another end, and a status after the first was resumed
    "end T1": (read_control_news, end_record("T1", 1)),
    "status of T1": (read_status_news, status_record(1, "T1")),
    "end T2": (read_control_news, end_record("T2", 4)),
    "status of T2": (read_status_news, status_record(6, "T2")),
}


@pytest.mark.parametrize("order", list(permutations(RECORDS)), ids=" | ".join)
def test_in_every_order_the_newest_status_is_the_truth(order: tuple[str, ...]) -> None:
    halts = Halts()
    for at_ms, name in enumerate(order):
        read, raw = RECORDS[name]
        news = read(raw, at_ms)
        assert news is not None
        (halts.control if read is read_control_news else halts.status)(news)  # type: ignore[operator]
    assert error_of(halts, "T1") is None
    assert error_of(halts, "T2") is not None


@pytest.mark.parametrize("offset", [0, 1, 9])
def test_a_stranger_of_the_same_name_in_another_partition_resumes_nothing(offset: int) -> None:
    halts = Halts()
    halts.control(read_control_news(end_record("T1", 1), 1))
    stranger = read_status_news(status_record(offset, partition=1), 2)
    assert stranger is not None
    halts.status(stranger)
    resume = resume_event("r").model_copy(update={"trigger": ControlTrigger(partition=1, offset=offset), "at": AT})
    halts.control(read_control_news(resume.model_dump_json().encode(), 3))
    assert error_of(halts, "T1") is not None


def test_a_resume_of_the_run_resumes_its_tasks() -> None:
    halts = Halts()
    halts.control(read_control_news(end_record("T1", 1), 1))
    resume = resume_event("r").model_copy(update={"trigger": ControlTrigger(partition=0, offset=2), "at": AT})
    halts.control(read_control_news(resume.model_dump_json().encode(), 2))
    assert error_of(halts, "T1") is None


def test_a_resume_from_a_worker_that_names_no_place_resumes_all_of_them() -> None:
    halts = Halts()
    halts.control(read_control_news(end_record("T1", 1), 1))
    halts.control(read_control_news(resume_event("r").model_dump_json().encode(), 2))
    assert error_of(halts, "T1") is None


def test_an_end_survives_a_pickle_and_is_a_halt_for_those_who_catch_halts() -> None:
    ended = TaskEnded("r", "T1", halt_event("r"))
    copy = pickle.loads(pickle.dumps(ended))
    assert (type(copy), str(copy), copy.task, copy.control) == (TaskEnded, str(ended), "T1", ended.control)
    assert isinstance(copy, Halted)


async def test_guards_of_the_task_and_its_agent_are_cancelled_and_no_others() -> None:
    monitor = RecordingMonitor("tickets")
    async with MemoryListener(monitor) as halts:
        guards = {
            "task T1": halts.guard("r", task="T1"), "agent ada": halts.guard("r", agent="ada"),
            "run": halts.guard("r"), "task T2": halts.guard("r", task="T2"), "agent bob": halts.guard("r", agent="bob"),
        }  # fmt: skip

        over = asyncio.Event()

        async def work(name: str) -> str:
            async with guards[name]:
                await over.wait()
            return "done"

        tasks = {name: asyncio.create_task(work(name)) for name in guards}
        await asyncio.sleep(0)
        for raw in ENDS["blocked"]:
            monitor.feed({"run_id": "r", **raw})
        await asyncio.gather(tasks["task T1"], tasks["agent ada"], return_exceptions=True)
        over.set()
        found = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))

        assert {name for name, result in found.items() if isinstance(result, TaskEnded)} == {"task T1", "agent ada"}
        assert [found[name] for name in ("run", "task T2", "agent bob")] == ["done"] * 3
        with pytest.raises(TaskEnded):
            async with halts.guard("r", task="T1"):
                pass
        monitor.feed({"run_id": "r", **DECIDED})
        async with halts.guard("r", task="T1"), halts.guard("r", agent="ada"):
            pass
