"""What-if trials: a policy that takes long to read keeps only the person who wrote it waiting."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from streamproc.errors import InvalidPolicy
from streamproc.policy import Policy, load_policy
from streamproc.settings import Settings
from streamproc.web import trials
from streamproc.web.trials import TrialBusy, Trials
from tests.waiting import until


async def test_the_page_goes_on_while_a_policy_is_read_and_one_is_read_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def slow(path: Path) -> Policy:
        reading.set()
        assert go_on.wait(20)
        return load_policy(path)

    monkeypatch.setattr(trials, "load_policy", slow)
    of = Trials(Settings())
    first = asyncio.create_task(of.start("name: x\ndetectors: 7\n", ["r1"], 0))
    await until(reading.is_set)  # which this loop could not ask if it read the policy itself
    with pytest.raises(TrialBusy):
        await of.start("name: y\n", ["r1"], 0)
    go_on.set()
    for task in (first, of.start("name: z\ndetectors: 7\n", ["r1"], 0)):  # a refused policy leaves nothing behind
        with pytest.raises(InvalidPolicy):
            await task
    assert of.running is None
