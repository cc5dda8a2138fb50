"""Print the Faust agents and tables of a worker by name: `python examples/worker_agents.py`.

It needs the broker in STREAMPROC_BROKERS and its topics (`streamproc topics apply`). The worker is put together as
`streamproc worker` does it, and not started, so it joins no group and moves no partition of a fleet that is at work.
"""

from __future__ import annotations

import asyncio

from streamproc.policy import load_policy
from streamproc.settings import load_settings
from streamproc.worker.composition import Worker
from streamproc.worker.readiness import wait_until_ready


async def main() -> None:
    settings = load_settings()
    ready = await wait_until_ready(settings, give_up_after_s=10)
    worker = Worker(settings, load_policy(settings.policy), ready)
    for name, agent in worker.app.agents.items():
        print(f"agent {name}: {agent.fun.__doc__}")
    for name, table in worker.app.tables.items():
        print(f"table {name}: changelog {table.changelog_topic_name}")
    await worker.publisher.stop()


if __name__ == "__main__":
    asyncio.run(main())
