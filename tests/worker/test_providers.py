"""The breakers of providers on a real Kafka: runs in all partitions, several workers, several listeners, crashes."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from streamproc.client import BlockingHaltListener, HaltListener
from streamproc.errors import Halted, ProviderUnavailable
from streamproc.settings import Settings
from tests.waiting import until, wait_until
from tests.worker.running import Topics, turn

MODEL = "anthropic/claude-sonnet-4-5"
LIMITS: dict[str, Any] = {"min_calls": 12, "cool_down_s": 2, "spread_s": 0.2, "probes": 2}


def with_policy(settings: Settings, folder: Path, **limits: Any) -> Settings:
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump({"name": "providers", "providers": LIMITS | limits}))
    return settings.model_copy(update={"policy": str(path)})


def called(run_id: str, **fields: Any) -> tuple[bytes, bytes]:
    said = {"type": "model.called", "run_id": run_id, "provider": "anthropic", "model": "claude-sonnet-4-5"}
    return run_id.encode(), msgspec.json.encode(said | fields)


def storm(runs: int = 16, **fields: Any) -> list[tuple[bytes, bytes]]:
    return [called(f"run-{number}", status=429, **fields) for number in range(runs)]


async def states(topics: Topics, name: str = MODEL) -> list[dict[str, Any]]:
    """The states of the breaker in their order, each once."""
    found = {
        control["id"]: control["provider"]
        for control in await topics.controls()
        if control["type"] == "provider.state" and control["run_id"] == f"provider:{name}"
    }
    return sorted(found.values(), key=lambda state: int(state["number"]))


async def until_state(topics: Topics, *names: str) -> list[dict[str, Any]]:
    async def reached() -> bool:
        return [state["state"] for state in await states(topics)][: len(names)] == list(names)

    await until(reached, 60, f"the states {names}", every_s=0.2)
    return await states(topics)


async def replay(settings: Settings, *options: str) -> str:
    """What a replay of the topics prints; it must agree with what was published."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "streamproc", "replay", *options, "--policy", settings.policy or "",
        "--brokers", settings.brokers, "--topic-prefix", settings.topic_prefix, stdout=PIPE, stderr=STDOUT,
    )  # fmt: skip
    printed, _ = await asyncio.wait_for(command.communicate(), 60)
    assert command.returncode == 0, printed.decode()
    return printed.decode()


@pytest.mark.long
async def test_a_storm_over_four_workers_opens_the_breaker_and_an_answer_closes_it(
    settings, topics, start_worker, tmp_path
) -> None:
    settings = with_policy(settings, tmp_path)
    workers = [start_worker(settings) for _ in range(4)]
    for worker in workers:
        await worker.ready()
    async with HaltListener(settings=settings) as one, HaltListener(settings=settings) as other:
        await topics.send([turn(f"run-{n}", output=f"{n}", model="claude-sonnet-4-5", provider="anthropic")
                           for n in range(6)])  # fmt: skip
        permit = await one.provider(MODEL, run_id="run-1")
        assert permit.id == ""
        await topics.send(storm())
        await until(lambda: one.providers() and other.providers(), 30, "both listeners to hear of it")

        with pytest.raises(ProviderUnavailable, match=rf"{MODEL} is open: .* calls of .* runs failed in 60 s") as info:
            await one.provider(MODEL, run_id="run-1", wait=False)
        assert info.value.provider == MODEL
        assert info.value.retry_at > datetime(2020, 1, 1, tzinfo=UTC)
        assert 0 < info.value.retry_after_s <= 2

        calling: list[str] = []
        answer = asyncio.Event()

        async def work(halts: HaltListener, number: int) -> None:
            permit = await halts.provider(MODEL, run_id=f"run-{number}")
            calling.append(permit.id)
            await answer.wait()
            permit.answered()

        waiting = [asyncio.ensure_future(work((one, other)[n % 2], n)) for n in range(16)]
        await until(lambda: len(calling) == 2, 60, "two probes")
        await until_state(topics, "open", "half_open")
        assert all(calling), "a caller went without a permit"
        assert len(set(calling)) == 2
        answer.set()
        await asyncio.gather(*waiting)
    found = await until_state(topics, "open", "half_open")
    assert [state["state"] for state in found if state["state"] != "half_open"] == ["open", "closed"]
    assert len({permit for state in found for permit in state.get("permits", ())}) == 2
    assert found[0]["runs"] >= 3
    assert found[0]["why"] == "429"
    keys = {record.key for record in await topics.read("control") if record.key.startswith(b"provider:")}
    assert keys == {f"provider:{MODEL}".encode()}
    assert not (await topics.read("dead-letter"))
    replayed = await replay(settings, "--all", "--diff", "--json")
    summary = msgspec.json.decode(replayed.splitlines()[-1])
    assert (summary["missing"], summary["extra"], summary["identical"]) == (0, 0, len(found)), replayed
    assert "0 missing; 0 extra" in await replay(settings, "--since", "2026-01-01T00:00:00Z", "--diff")


@pytest.mark.long
async def test_a_killed_worker_does_not_leave_it_open(settings, topics, start_worker, tmp_path) -> None:
    settings = with_policy(settings, tmp_path, cool_down_s=8)
    doomed = start_worker(settings)
    await doomed.ready()
    await topics.send(storm(retry_after=9))
    opened = await until_state(topics, "open")
    assert opened[0]["until_ms"] - opened[0]["since_ms"] >= 8_900  # the provider has asked for 9 s
    doomed.end(signal.SIGKILL)
    start_worker(settings)
    await until_state(topics, "open", "half_open")
    async with HaltListener(settings=settings) as halts:
        await until(halts.providers, 60, "a heartbeat of the other worker")
        permit = await halts.provider(MODEL, run_id="run-1", timeout_s=60)
        assert permit.id
        permit.failed(status=529)
        found = await until_state(topics, "open", "half_open")
        await until(lambda: any(state.level == 2 for state in halts.providers()), 60, "it to open for longer")
    again = [state for state in await states(topics) if state["state"] == "open"][-1]
    assert again["until_ms"] - again["since_ms"] >= 16_000
    assert found[0]["number"] == opened[0]["number"]


async def test_who_starts_later_knows_and_a_thread_waits_too(settings, topics, start_worker, tmp_path) -> None:
    settings = with_policy(settings, tmp_path, cool_down_s=60)
    worker = start_worker(settings)
    await worker.ready()
    await topics.send(storm())
    await until_state(topics, "open")

    def late() -> str:
        with BlockingHaltListener(settings=settings) as halts:
            # From the last heartbeat of the worker: the event on the control topic is gone by.
            wait_until(halts.providers, 30, "the last heartbeat")
            with pytest.raises(ProviderUnavailable, match="try again at"):
                halts.provider(MODEL, run_id="late", wait=False)
            with pytest.raises(ProviderUnavailable), halts.guard("guarded") as guard:
                guard.provider(MODEL, timeout_s=1)
            return halts.providers()[0].provider

    assert await asyncio.wait_for(asyncio.to_thread(late), 60) == MODEL


async def test_a_halted_run_waits_no_longer(settings, topics, start_worker, tmp_path) -> None:
    settings = with_policy(settings, tmp_path, cool_down_s=600, cool_down_max_s=600)
    worker = start_worker(settings)
    await worker.ready()
    async with HaltListener(settings=settings) as halts:
        await topics.send(storm())
        await until(halts.providers, 30, "the breaker to open")
        waiting = asyncio.ensure_future(halts.provider(MODEL, run_id="run-2"))
        other = asyncio.ensure_future(halts.provider(MODEL, run_id="run-3"))
        stop = {"type": "operator.stop", "run_id": "run-2", "by": "ada"}
        await topics.send([(b"run-2", msgspec.json.encode(stop))])
        with pytest.raises(Halted):
            await asyncio.wait_for(waiting, 60)
        assert not other.done()
    await asyncio.wait_for(other, 60)  # a closed listener holds back no caller


async def test_one_run_that_is_refused_all_the_time_holds_up_nobody(settings, topics, start_worker, tmp_path) -> None:
    settings = with_policy(settings, tmp_path)
    worker = start_worker(settings)
    await worker.ready()
    await topics.send([called("broken", status=429, retry_after=600) for _ in range(200)])
    await topics.send([called("fine") for _ in range(3)])
    await topics.done()
    assert await states(topics) == []
