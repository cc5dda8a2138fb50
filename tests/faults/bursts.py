"""Bursts of the largest and costliest records, a record that ends the process, and `kill -9` in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import Any, Final

import msgspec

from streamproc.client import HaltListener
from streamproc.fingerprint import read_event
from streamproc.kafka.reading import log_time
from streamproc.policy import load_policy
from tests.faults.scenario import PATIENCE_S, Scenario
from tests.faults.verdict import source
from tests.faults.workload import sent
from tests.waiting import until
from tests.worker.bursts import BATCH_RECORDS, COSTLIEST, DEADLY, EXIT_CODE, run_on, send_burst
from tests.worker.maximal import CASES, SIZE, maximal
from tests.worker.running import turn

BURST: Final = "burst"  # run ids of bursts begin with it
QUIET: Final = 1  # the partition without bursts, in which halts are timed
HALT_S_MAX: Final = 1.0  # of half of the timed halts
STALL_S_MAX: Final = 60.0
LIVES_MAX: Final = 8


async def burst(scenario: Scenario) -> None:
    """Time halts beside bursts of the costliest records. Then send bursts of every type, kill the worker in the midst
    of them, and send a record that ends it again and again."""
    copies, halts, cases, turns = scenario.size((8, 3, 6, 500), (400, 30, len(CASES), 15_000))
    scenario.aside = BURST.encode()
    scenario.before = DEADLY
    async with scenario.open():
        worker = await scenario.started_worker("worker-0")
        sending = asyncio.create_task(scenario.send(turns))
        await _send(scenario, COSTLIEST, copies)
        took_s = await _halts(scenario, halts)
        scenario.result.halt_s = max(took_s)

        everything = asyncio.create_task(_send(scenario, scenario.rng.sample(list(CASES), cases), BATCH_RECORDS))
        await scenario.random_moment(turns // 50)
        await scenario.kill(worker)
        worker = scenario.start("worker-0")
        await asyncio.gather(everything, sending)
        # A careful worker takes 64 records at a time: behind all of the bursts, this would take minutes.
        await scenario.caught_up()
        sending = asyncio.create_task(scenario.send(turns // 10))
        await scenario.topics.send([turn(f"{BURST}-deadly", "deadly")])
        await _until_refused(scenario)
        await sending
        await scenario.finish()
        await _check(scenario)
    if scenario.long:
        assert median(took_s) < HALT_S_MAX, f"halts beside a burst took {took_s} s"
    assert scenario.result.stall_s < STALL_S_MAX, f"nothing was committed for {scenario.result.stall_s:.0f} s"


async def _send(scenario: Scenario, cases: Sequence[str], copies: int) -> None:
    """Send a burst of each case, in turn to each partition but the quiet one."""
    places = [number for number in range(scenario.settings.partitions) if number != QUIET]
    for number, case in enumerate(cases):
        place = places[number % len(places)]
        run_id = run_on(place, scenario.settings.partitions, f"{BURST}-{number % 7}")
        await send_burst(scenario.settings, place, run_id.encode(), maximal(case, run_id, SIZE), copies)
        scenario.result.times += copies


async def _halts(scenario: Scenario, count: int) -> list[float]:
    """Let runs in the quiet partition loop; return the seconds from each one's last turn to its halt at a listener."""
    took_s = []
    async with (
        HaltListener(settings=scenario.settings, start_timeout_s=PATIENCE_S) as listener,
        scenario.producer() as send,
    ):
        for number in range(count):
            run_id = run_on(QUIET, scenario.settings.partitions, f"neighbour-{number}")
            for place in range(3):
                raw = {
                    "run_id": run_id, "event_id": f"{run_id}/{place}", "node": "coder", "output": "I will try again.",
                }  # fmt: skip
                scenario.load.by_id[raw["event_id"]] = raw
                one = sent(raw)
                began_s = time.monotonic()
                await send([(one.key, one.value, None)])
            await until(lambda run_id=run_id: listener.halted(run_id), PATIENCE_S, "a halt", every_s=0.002)
            took_s.append(time.monotonic() - began_s)
    return took_s


async def _until_refused(scenario: Scenario) -> None:
    """Start the worker again whenever the deadly record ends it, until it is refused."""
    deaths = 0
    while True:
        [worker] = scenario.workers

        async def ended_or_refused(worker: Any = worker) -> bool:
            return not worker.running or worker.said("was in hand when the worker crashed twice")

        await until(ended_or_refused, PATIENCE_S, "the deadly record to be refused", every_s=0.1)
        if worker.running:
            break
        assert await asyncio.to_thread(worker.end) == EXIT_CODE, worker.text[-2000:]
        scenario.workers.remove(worker)
        deaths += 1
        assert deaths < LIVES_MAX
        scenario.start("worker-0")
    assert deaths >= 2


async def _check(scenario: Scenario) -> None:
    """Compare the dead letters and the decisions of the bursts with those of an engine in this process."""
    refused, wanted = await asyncio.to_thread(_expected, scenario, await scenario.topics.read("turns"))
    letters = [one for one in await scenario.topics.read("dead-letter") if (one.key or b"").startswith(scenario.aside)]
    found = {tuple(map(int, source(one)[1:])) for one in letters}
    assert found == refused, f"{len(refused - found)} refused records are missing, {len(found - refused)} are made up"
    controls = [one for one in await scenario.topics.read("control") if (one.key or b"").startswith(scenario.aside)]
    ids = {msgspec.json.decode(one.value)["id"] for one in controls}
    assert ids == wanted, f"{len(wanted - ids)} decisions about bursts are missing, {len(ids - wanted)} are made up"


def _expected(scenario: Scenario, records: list[Any]) -> tuple[set[tuple[int, int]], set[str]]:
    """Return the places of the burst records that are refused, and the ids of the decisions about the others."""
    engine = load_policy(scenario.settings.policy).engine()
    states: dict[bytes, Any] = {}
    refused, ids = set(), set()
    for record in sorted(records, key=lambda one: (one.partition, one.offset)):
        if not (record.key or b"").startswith(scenario.aside):
            continue
        event = _read(record.value)
        if event is None or getattr(event, "node", "") == "deadly":
            refused.add((record.partition, record.offset))
            continue
        outcome = engine.step(states.get(record.key, b""), event, log_time(record))
        states[record.key] = outcome.kept
        if outcome.refused is not None:
            refused.add((record.partition, record.offset))
        else:
            ids |= {decision.id for decision in outcome.decisions}
    return refused, ids


@cache
def _read(value: bytes) -> Any:
    try:
        return read_event(value)
    except Exception:  # noqa: BLE001 (whatever a reader raises, the record is refused)
        return None
