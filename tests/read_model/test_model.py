"""The read model without a broker: over the topics that the worker's own code has written."""

from __future__ import annotations

import msgspec

from streamproc.model import wire
from streamproc.read_model import DecisionFilter, ReadModel, RunFilter
from tests.read_model.deployment import Deployment, spend, turn

ALL = RunFilter()


def filled(model: ReadModel, deployment: Deployment) -> ReadModel:
    for (role, _), records in deployment.log.items():
        model.apply(role, records)
    return model


def busy() -> Deployment:
    """A fleet with a halted, a warned, a finished, a resumed and two honest runs."""
    made = Deployment()
    for run_id in ("halted", "warned", "finished", "resumed", "honest", "dear"):
        scope = {"workflow": "nightly", "tenant": "acme", "user": f"of-{run_id}"}
        made.send(wire.RunStarted(w=1, run_id=run_id, event_id=f"{run_id}/s", **scope))
    for number in range(6):
        for run_id in ("halted", "resumed"):
            made.send(turn(run_id, number, "I will try again.", usage=spend(10, 1_000)))
        made.send(turn("warned", number, "I will try again." if number in (1, 2) else "", usage=spend(10, 1_000)))
        made.send(turn("finished", number, usage=spend(10, 1_000)))
        made.send(turn("honest", number, usage=spend(10, 1_000)))
        made.send(turn("dear", number, usage=spend(10, 1_000_000)))
    made.send(wire.OperatorResume(w=1, run_id="resumed", event_id="resume", by="ada", reason="go on"))
    made.send(wire.RunFinished(w=1, run_id="finished", event_id="f", status="done"))
    return made


def test_runs_are_in_their_groups_the_most_urgent_first() -> None:
    model = filled(ReadModel(), busy())

    assert [row.run_id for row in model.runs("halted", ALL).rows] == ["halted"]
    assert [row.run_id for row in model.runs("others", ALL).rows][:1] == ["dear"]
    assert model.run("finished").status == "finished"
    assert model.run("resumed").status == "running"
    assert model.run("unknown") is None
    halted = model.run("halted")
    assert (halted.status, halted.severity, halted.turns, halted.code) == ("halted", "halt", 6, "LOOP002")
    print(halted, model.counts(busy().now_ms))
    print(model.decisions(DecisionFilter()))
    print(model.accounts(), model.policies(), model.names("user"), model.health())
    for row in model.decisions(DecisionFilter()):
        assert msgspec.json.decode(row.body)["id"] == row.id
