"""Declared graphs from the publisher through a real Kafka to the decision about them."""

from __future__ import annotations

from streamproc.client import TurnPublisher
from streamproc.model.controls import ControlEvent, read_control
from tests.waiting import until
from tests.worker.running import Topics

NODES = 1_000


async def controls_of(topics: Topics, count: int) -> list[ControlEvent]:
    found: list[ControlEvent] = []

    async def all_there() -> bool:
        found[:] = [read_control(record.value) for record in await topics.read("control")]
        return len(found) >= count

    await until(all_there, 60, f"{count} decisions", every_s=0.2)
    return sorted(found, key=lambda control: control.run_id)


async def test_unsafe_and_unreadable_graphs_of_any_size_are_reported_before_a_turn(
    settings, topics, start_worker
) -> None:
    worker = start_worker(settings)
    large = [[f"node-{n}", f"node-{(7 * n + step) % NODES}"] for n in range(NODES) for step in range(1, 10)]
    async with TurnPublisher(settings=settings, on_unsafe="publish") as turns:
        await turns.run_started(run_id="a-large", graph={"edges": [*large, ["start", "END"]]})
        await turns.run_started(run_id="b-small", graph={"edges": [["a", "b"], ["b", "a"], ["c", "c"]]})
        await turns.run_started(run_id="c-safe", graph={"edges": [*large, ["node-1", "END"]]})
        await turns.turn(run_id="c-safe", node="node-1")
        assert await turns.flush(30)
        assert turns.dropped == 0
    # What another publisher may send.
    await topics.send([(b"d-unread", b'{"type":"run.started","run_id":"d-unread","graph":{"edges":[["a"]]}}')])

    big, small, unread = await controls_of(topics, 3)
    await topics.done()

    assert len(await controls_of(topics, 3)) == 3
    assert [big.code, small.code, unread.code] == ["GRAPH001", "GRAPH001", "GRAPH002"]
    assert [big.severity, small.severity, unread.severity] == ["halt", "halt", "warn"]
    assert (small.halt_reason, small.terminal_status, small.action) == ("stalled", "blocked", "halt")
    assert big.evidence.count == 1
    assert "(1000 nodes)" in big.message
    assert small.evidence.cycles == [["a", "b"], ["c"]]
    assert "graph.edges[0]" in unread.message
    assert worker.end() == 0
