"""A subscriber is told what has changed, in sets that do not grow with the number of events."""

from __future__ import annotations

import asyncio

from streamproc.read_model.reader import ChangeSubscription
from streamproc.read_model.rows import Changes


async def test_what_happens_between_two_answers_is_one_answer() -> None:
    closed: list[ChangeSubscription] = []
    subscription = ChangeSubscription(closed.append, every_s=0)
    for number in range(1_000):
        subscription.add(Changes(run_ids={f"run-{number % 3}"}, decisions=number == 7))

    assert await subscription.changed() == {"run-0", "run-1", "run-2"}
    assert (subscription.last.decisions, subscription.last.commands) == (True, False)

    waiting = asyncio.ensure_future(subscription.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    subscription.add(Changes(commands=True))
    assert await waiting == set()
    assert subscription.last.commands
    subscription.close()
    assert closed == [subscription]


async def test_an_answer_waits_until_the_last_one_is_old_enough() -> None:
    subscription = ChangeSubscription(lambda _: None, every_s=3_600)
    subscription.add(Changes(run_ids={"a"}))
    subscription._answered_s = -3_600.0
    assert await subscription.changed() == {"a"}

    subscription.add(Changes(run_ids={"b"}))
    waiting = asyncio.ensure_future(subscription.changed())
    for _ in range(10):  # all that can go on without time passing
        await asyncio.sleep(0)
    subscription.add(Changes(run_ids={"c"}))

    assert not waiting.done()
    assert subscription._changes.run_ids == {"b", "c"}
    waiting.cancel()


async def test_an_answer_that_is_given_is_not_changed_afterwards() -> None:
    subscription = ChangeSubscription(lambda _: None, every_s=0)
    subscription.add(Changes(run_ids={"a"}))
    first = await subscription.changed()
    subscription.add(Changes(run_ids={"b"}))
    assert first == {"a"}
