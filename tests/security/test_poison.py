"""A record harms only itself: one that ends the worker's process is refused, and the worker goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.kafka import topics as kafka_topics
from tests.waiting import until
from tests.worker.conftest import settings_for, start_worker
from tests.worker.running import Topics, expected_ids, gather_controls, honest_run, looping_run, turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.worker.running import WorkerProcess

__all__ = ["start_worker"]  # a fixture

LIVES_MAX = 6
EXIT_CODE = 77

# A fault in native code, say: no exception, no clean-up.
DEADLY = f"""
import os
from streamproc.core.engine import Engine
honest = Engine.step
def deadly(self, run, event, at_ms):
    if event.node == "deadly":
        os._exit({EXIT_CODE})
    return honest(self, run, event, at_ms)
Engine.step = deadly
"""


async def test_a_record_that_ends_the_process_is_refused_after_two_crashes_and_no_other_is(
    brokers: str, topic_prefix: str, start_worker: Callable[..., WorkerProcess]
) -> None:
    # A static member's partitions wait for it: each life begins at once.
    member = settings_for(brokers, topic_prefix, instance="worker-0", session_timeout_s=120)
    await kafka_topics.apply(member)
    topics = Topics(member)
    loop, others = looping_run("r", 6), honest_run("honest", 20)
    await topics.send([*loop[:2], *others[:10], turn("r", "deadly"), *loop[2:], *others[10:]])

    codes: list[int] = []
    while len(codes) < LIVES_MAX:
        worker = start_worker(member, before=DEADLY)

        async def ended_or_done(worker: WorkerProcess = worker) -> bool:
            return not worker.running or await topics.lag() == 0

        await until(ended_or_done, 90, "the worker to end or to commit everything", every_s=0.2)
        if worker.running:
            break
        codes.append(worker.end())

    assert codes == [EXIT_CODE] * 3, "one of many, and twice by itself"
    await gather_controls(topics, expected_ids([*loop, *others]))
    [refused] = await topics.read("dead-letter")
    assert b"was in hand when the worker crashed twice" in dict(refused.headers)["reason"]
    assert b'"deadly"' in refused.value
    assert worker.end() == 0
