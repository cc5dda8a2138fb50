"""``python -m benchmarks.provider_opening``: how soon a listener hears that the breaker of a provider has opened.

On the Kafka of STREAMPROC_BROKERS, with four workers and runs in all partitions; five storms, one after the other. The
time is that from sending the call that reaches the threshold, to the state in a listener of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.worker_process import Process
from streamproc import HaltListener, TurnPublisher
from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings

WORKERS = 4
STORMS = 5
CALLS = 12  # all fail: the threshold
WAIT_S = 90.0
POLICY = f"providers: {{min_calls: {CALLS}, cool_down_s: 1, probe_timeout_s: 1, spread_s: 0}}\n"


async def until(halts: HaltListener, *, is_open: bool) -> None:
    """Wait until the listener knows an open breaker, or none that holds calls back."""
    async with asyncio.timeout(WAIT_S):
        while is_open != any(state.state == "open" for state in halts.providers()) or (
            not is_open and halts.providers()
        ):
            await asyncio.sleep(0.001)


async def storm(turns: TurnPublisher, halts: HaltListener, name: str) -> float:
    """Let calls of twelve runs fail; return the seconds from the last of them until the listener knows."""
    call = {"provider": "p", "model": name, "status": 429}
    for number in range(CALLS - 1):
        await turns.event("model.called", run_id=f"run-{number}", **call)
    await turns.flush()
    await asyncio.sleep(0.5)  # they are booked
    began_s = time.perf_counter()
    await turns.event("model.called", run_id=f"run-{CALLS}", **call)
    await until(halts, is_open=True)
    took_s = time.perf_counter() - began_s
    await until(halts, is_open=False)
    return took_s


async def measure(settings: Settings) -> list[float]:
    """Return the seconds that each storm took."""
    await topics.apply(settings)
    async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings) as halts:
        async with asyncio.timeout(WAIT_S):
            while len({one for row in halts.watch.workers.living() for one in row.partitions}) < settings.partitions:
                await asyncio.sleep(0.1)
        return [await storm(turns, halts, f"m{number}") for number in range(STORMS)]


def main() -> None:
    """Measure and print."""
    settings = load_settings(topic_prefix=f"opening-{uuid.uuid4().hex[:8]}")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        policy = Path(folder, "policy.yaml")
        policy.write_text(POLICY)
        for _ in range(WORKERS):
            stack.enter_context(Process(settings, "streamproc", "worker", STREAMPROC_POLICY=str(policy)))
        took = sorted(asyncio.run(measure(settings)))
    shown = ", ".join(f"{1000 * seconds:.0f}" for seconds in took)
    print(f"from the call that reaches the threshold to a listener, {WORKERS} workers: {shown} ms")


if __name__ == "__main__":
    main()
