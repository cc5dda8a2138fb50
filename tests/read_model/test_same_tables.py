"""The same topics give the same tables: in any chunks, interleaved in any way, with repeats, and with restarts."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import yaml
from hypothesis import given, settings, strategies as st

from streamproc.model import wire
from streamproc.model.fleet_command import FleetCommand, encode_command
from streamproc.model.guard_report import GuardState, encode_guard_report
from streamproc.read_model.model import ReadModel
from tests.read_model.deployment import NOON_MS, Deployment, spend, turn
from tests.read_model.tables import rows_of

POLICY = {"name": "accounts", "budgets": {"maxTenantTokensPerDay": 1_000, "maxSessionTokens": 400}}
REPORTS: dict[str, tuple[GuardState, ...]] = {
    "a": ("watching", "stopped"), "b": ("watching", "left"), "c": ("watching",),
}  # fmt: skip


@lru_cache(maxsize=1)
def everything() -> Deployment:
    """Topics with all that a read model knows of."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.yaml"
        path.write_text(yaml.safe_dump(POLICY))
        made = Deployment(str(path))
    runs = [f"run-{number}" for number in range(12)]
    for number, run_id in enumerate(runs):
        scope = {"workflow": f"w{number % 3}", "tenant": f"t{number % 2}", "session_id": f"s{number % 4}"}
        made.send(wire.RunStarted(w=1, run_id=run_id, event_id=f"{run_id}/s", user=f"u{number % 5}", **scope))
    for number in range(70):
        for place, run_id in enumerate(runs[: 3 if number > 12 else 12]):
            looping = place % 4 == 1 and number >= place
            made.send(turn(run_id, number, "I will try again." if looping else "", usage=spend(7, 1_000 * place)))
        if number == 9:
            made.send(wire.OperatorResume(w=1, run_id="run-1", event_id="resume", by="ada"))
            made.turn(b"run-2", b'{"run_id": "run-2", "node": 7}')
            made.turn(b"run-3", b"no JSON")
            made.send(wire.OperatorStop(w=1, run_id="run-6", event_id="kill-6", by="ada", reason="wrong"))
            made.send(wire.OperatorStop(w=1, run_id="run-7", event_id="kill-u@12", by="ada", reason="wrong"))
    for run_id in runs[4:8]:
        for host, states in REPORTS.items():
            for state in states:
                made.turn(run_id.encode(), encode_guard_report(run_id, f"{run_id}/{host}/{state}", state, host))
    for run_id in runs[8:10]:
        made.send(wire.RunFinished(w=1, run_id=run_id, event_id=f"{run_id}/f", status="done"))
    made.write("runs", b"run-9", None)
    for number, (scope, status) in enumerate(
        [("fleet", "STOP"), ("user:u1", "STOP"), ("fleet", "CLEAR"), ("run:run-6", "STOP"), ("user:u1", "CLEAR")]
    ):
        one = FleetCommand(w=1, id=f"c{number}", status=status, scope=scope, at=NOON_MS + number, by="ada", why="test")
        made.write("commands", scope.encode(), encode_command(one))
    late = FleetCommand(w=1, id="late", status="STOP", scope="fleet", at=NOON_MS - 1)
    made.write("commands", b"fleet", encode_command(late))
    made.write("commands", b"fleet", b"{}")
    for role in ("control", "runs", "accounts", "spend"):
        made.write(role, b"run-0", b"{" * 500)
    again = made.records("control")[0]  # a worker that crashed publishes once more
    made.write("control", again.key, again.value, partition=again.partition)
    return made


@lru_cache(maxsize=1)
def expected() -> dict[str, list[object]]:
    model = ReadModel()
    for (role, _), log in everything().log.items():
        model.apply(role, log)
    found = rows_of(model)
    assert all(found.values()), [name for name, rows in found.items() if not rows]  # else nothing is compared
    return found


PLACES = st.integers(0, 10_000)


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(PLACES, st.integers(1, 400), st.integers(-1, 40)), max_size=60),
    restarts=st.sets(st.integers(0, 60), max_size=3),
    in_file=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_the_tables_depend_on_the_topics_only(steps, restarts, in_file, order) -> None:
    log = everything().log
    places = sorted(log)
    read: dict[tuple[str, int], int] = defaultdict(int)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.db") if in_file or restarts else None
        model = ReadModel(path)
        order.shuffle(places)
        steps = steps + [(number, 10_000, 5) for number in range(len(places))]
        for number, (which, count, back) in enumerate(steps):
            place = places[which % len(places)]
            first = max(0, read[place] - max(0, back))
            chunk = log[place][first : read[place] + count]
            model.apply(place[0], chunk)
            read[place] = min(len(log[place]), read[place] + count)
            if number in restarts:
                model.close()
                model = ReadModel(path)
        assert rows_of(model) == expected()
        model.close()
