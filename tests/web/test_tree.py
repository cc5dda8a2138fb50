"""The runs of a session on the page, and how many of them a command would hit."""

from __future__ import annotations

from streamproc.model import wire
from streamproc.read_model.model import ReadModel
from tests.read_model.deployment import Deployment, spend, turn
from tests.read_model.test_model import filled, start


def test_the_model_knows_the_runs_of_a_session_and_how_many_a_command_would_hit() -> None:
    made = Deployment()
    start(made, "root")
    for n in range(3):
        start(made, f"c{n}", session_id="root", parent_run_id="root")
        made.send(turn(f"c{n}", 0, usage=spend(10, 1_000)))
    start(made, "other", session_id="s")
    made.send(wire.RunFinished(w=1, run_id="c2", event_id="f", status="done"))
    model = filled(ReadModel(), made)

    found = model.session_runs("root", 9)
    assert sorted((one.run_id, one.parent) for one in found) == [
        ("c0", "root"),
        ("c1", "root"),
        ("c2", "root"),
        ("root", ""),
    ]
    assert (model.runs_in_scope("session:root"), model.runs_in_scope("session:s")) == (3, 1)
    assert model.runs_in_scope("session:unknown") == 0
    assert {row.scope for row in model.accounts(now_ms=made.now_ms)} == {"session:root", "session:s"}
