"""The common spend of runs on a real Kafka: over partitions, workers and crashes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from streamproc.model.controls import RunStatus
from streamproc.monitor import Monitor
from streamproc.settings import Settings
from tests.waiting import until
from tests.worker.running import Topics, turn

POLICY = {"name": "accounts", "budgets": {"maxTenantTokensPerDay": 1_000}}
RUNS = [f"run-{number}" for number in range(12)]  # over several of the partitions
STARTED = "2026-01-01T00:00:00Z"


def with_policy(settings: Settings, folder: Path, said: dict[str, Any] = POLICY) -> Settings:
    """The same deployment under another policy."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(said))
    return settings.model_copy(update={"policy": str(path)})


def started(run_id: str, **fields: Any) -> tuple[bytes, bytes]:
    said = {"type": "run.started", "run_id": run_id, "event_id": f"{run_id}/start", **fields}
    return run_id.encode(), msgspec.json.encode(said)


def spent(run_id: str, number: int, tokens: int, **fields: Any) -> tuple[bytes, bytes]:
    text = f"{run_id} has come to step {number}"
    return turn(run_id, event_id=f"{run_id}/{number}", output=text, usage={"total_tokens": tokens}, **fields)


async def halts(topics: Topics) -> dict[str, list[dict[str, Any]]]:
    """The halts on the control topic, by run."""
    found: dict[str, list[dict[str, Any]]] = {}
    for control in await topics.controls():
        if control["severity"] == "halt":
            found.setdefault(control["run_id"], []).append(control)
    return found


async def until_halted(topics: Topics, runs: list[str]) -> dict[str, list[dict[str, Any]]]:
    async def all_of_them() -> bool:
        return set(runs) <= set(await halts(topics))

    await until(all_of_them, 60, f"{len(runs)} runs to be halted", every_s=0.2)
    return await halts(topics)


async def test_a_tenants_limit_halts_its_runs_in_every_partition_on_every_worker(
    settings, topics, start_worker, tmp_path, path
) -> None:
    settings = with_policy(settings, tmp_path)
    workers = [start_worker(settings, path), start_worker(settings, path)]
    for worker in workers:
        await worker.ready()
    await topics.send([started(run, tenant="acme", user=f"of-{run}") for run in RUNS])
    await topics.send([started("other", tenant="other")])
    await topics.send([spent(run, 0, 80) for run in RUNS[:-1]])
    await topics.send([spent("other", number, 80) for number in range(5)])
    await topics.done()
    assert await halts(topics) == {}

    await topics.send([spent(RUNS[-1], 0, 200)])

    found = await until_halted(topics, RUNS)
    assert set(found) == set(RUNS)
    assert len({record.partition for record in await topics.read("turns")}) > 1
    for run, controls in found.items():
        assert {control["id"] for control in controls} == {controls[0]["id"]}
        assert (controls[0]["code"], controls[0]["halt_reason"], controls[0]["run_id"]) == (
            "BUDGET010", "budget_exceeded", run,
        )  # fmt: skip
        assert controls[0]["evidence"]["used"] == 1_080
    latest = {record.key: RunStatus.model_validate_json(record.value) for record in await topics.read("runs")}
    assert all(latest[run.encode()].status == "halted" for run in RUNS)
    assert latest[b"other"].status == "running"


async def test_a_run_of_an_exhausted_tenant_that_starts_later_is_halted_at_once(
    settings, topics, start_worker, tmp_path
) -> None:
    settings = with_policy(settings, tmp_path)
    start_worker(settings)
    await topics.send([started("r1", tenant="acme"), spent("r1", 0, 1_100)])
    await until_halted(topics, ["r1"])

    await topics.send([started("r2", tenant="acme")])

    [halt] = (await until_halted(topics, ["r2"]))["r2"]
    assert halt["code"] == "BUDGET010"


@pytest.mark.long
async def test_a_child_run_is_halted_by_the_sessions_limit_as_in_scan(settings, topics, start_worker) -> None:
    records = [
        started("root", session_id="s1", budgets={"maxSessionTokens": 1_000}),
        started("child", session_id="s1", parent_run_id="root"),
        *(spent("child", number, 150) for number in range(7)),
    ]
    start_worker(settings)
    for record in records:
        await topics.send([record])
        await topics.done()

    found = await until_halted(topics, ["root", "child"])

    monitor = Monitor()
    wanted = {control.id for _, value in records for control in monitor.feed(msgspec.json.decode(value))}
    assert {control["id"] for control in await topics.controls()} == wanted
    assert {control["code"] for controls in found.values() for control in controls} == {"BUDGET009"}


@pytest.mark.long
async def test_a_crash_books_nothing_twice_and_loses_nothing(settings, topics, start_worker, tmp_path) -> None:
    """Killed before it has committed, a worker reads the same turns again: were they booked twice, it would halt."""
    settings = with_policy(settings, tmp_path, {"budgets": {"maxTenantTokensPerDay": 4_000}})
    worker = start_worker(settings)
    await worker.ready()
    await topics.send([started(run, tenant="acme") for run in RUNS])
    for number in range(3):
        await topics.send([spent(run, number, 100) for run in RUNS])
        await until(lambda: topics.read("spend"), 30, "something to be spent")
        worker.end(signal.SIGKILL)
        worker = start_worker(settings)
    await topics.done()
    assert await halts(topics) == {}

    await topics.send([spent(RUNS[0], 9, 401)])

    [halt] = (await until_halted(topics, RUNS))[RUNS[1]]
    assert halt["evidence"]["used"] == 4_001
