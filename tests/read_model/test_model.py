"""The read model without a broker: over the topics that the worker's own code has written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings, strategies as st

from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import RecordSigner, read_status
from streamproc.fleet.signing import CommandSigner
from streamproc.model import wire
from streamproc.model.fleet_command import FleetCommand, encode_command
from streamproc.model.guard_report import encode_guard_report
from streamproc.model.signing_keys import read_signing_keys
from streamproc.model.time_range import address_time
from streamproc.policy import load_policy
from streamproc.read_model import decision_table, run_table
from streamproc.read_model.model import ReadModel
from streamproc.read_model.rows import DecisionFilter, RunFilter
from streamproc.read_model.run_filters import SORTS, fits
from streamproc.replay.log import LogReplay
from tests.read_model.deployment import NOON_MS, Deployment, filled, spend, turn

ALL = RunFilter()
GROUPS: Any = ("halted", "warned", "others")


def start(made: Deployment, run_id: str, **scope: str) -> None:
    made.send(wire.RunStarted(w=1, run_id=run_id, event_id=f"{run_id}/s", **scope))


def busy(signer: RecordSigner | None = None) -> Deployment:
    """A fleet with a halted, a warned, a finished, a resumed and two honest runs."""
    made = Deployment(signer=signer)
    for run_id in ("halted", "warned", "finished", "resumed", "honest", "dear"):
        start(made, run_id, workflow="nightly", tenant="acme", user=f"of-{run_id}")
    for number in range(6):
        for run_id in ("halted", "resumed"):
            made.send(turn(run_id, number, "I will try again.", usage=spend(10, 1_000)))
        made.send(turn("warned", number, "I will try again." if number in (4, 5) else "", usage=spend(10, 1_000)))
        made.send(turn("finished", number, usage=spend(10, 1_000)))
        made.send(turn("honest", number, usage=spend(10, 1_000)))
        made.send(turn("dear", number, usage=spend(10, 1_000_000)))
    made.send(wire.OperatorResume(w=1, run_id="resumed", event_id="resume", by="ada", reason="go on"))
    made.send(wire.RunFinished(w=1, run_id="finished", event_id="f", status="done"))
    return made


def ids(model: ReadModel, wanted: RunFilter = ALL) -> list[list[str]]:
    return [[row.run_id for row in model.runs(group, wanted).rows] for group in GROUPS]


def test_runs_are_in_their_groups_the_most_urgent_first() -> None:
    model = filled(ReadModel(), busy())

    assert ids(model) == [["halted"], ["warned"], ["dear", "honest", "resumed", "finished"]]
    halted = model.run("halted")
    assert (halted.status, halted.severity, halted.code, halted.turns) == ("halted", "halt", "LOOP001", 6)
    assert halted.message.startswith("coder repeated the same output 3 times")
    assert (halted.workflow, halted.tenant, halted.user) == ("nightly", "acme", "of-halted")
    assert halted.halted_at_ms == next(
        row.at_ms for row in model.decisions(DecisionFilter(run_id="halted", severity="halt"))
    )
    resumed = model.run("resumed")
    assert (resumed.status, resumed.severity, resumed.code, resumed.halted_at_ms) == ("running", "info", "", 0)
    assert model.run("unknown") is None
    page = model.runs("others", ALL, limit=2, offset=1)
    assert ([row.run_id for row in page.rows], page.total) == (["honest", "resumed"], 4)


def test_it_says_what_a_replay_of_the_same_log_says() -> None:
    deployment = busy()
    model = filled(ReadModel(), deployment)
    replay = LogReplay(load_policy("standard").engine(), event_bytes_max=9_000)

    decisions = list(replay.decide(deployment.records("turns")))

    assert {row.id for row in model.decisions(DecisionFilter())} == {one.id for one in decisions}
    for row in model.decisions(DecisionFilter()):
        [decision] = [one for one in decisions if one.id == row.id]
        assert (row.run_id, row.code, row.severity) == (decision.run_id, decision.code, decision.severity)
        assert (row.partition, row.offset, row.turn) == (
            decision.trigger.partition, decision.trigger.offset, decision.trigger.turn,
        )  # fmt: skip
        assert msgspec.json.decode(row.body)["message"] == decision.message
    latest = {}
    for record in deployment.records("runs"):
        latest[record.key.decode()] = read_status(record.value)
    for run_id, turns in replay.turns.items():
        row, status = model.run(run_id), latest[run_id]
        assert (row.status, row.severity, row.turns) == (status.status, status.severity, turns)


def test_what_runs_have_spent_since_their_last_status_is_counted_from_their_turns() -> None:
    deployment = busy()
    with_turns, without = filled(ReadModel(), deployment), filled(ReadModel(turns=False), deployment)

    for model, turns, cost in ((with_turns, 6, 6_000_000), (without, 0, 0)):
        row = model.run("dear")
        assert (row.turns, row.cost_usd_micro) == (turns, cost)
        assert row.doing == ("coder" if turns else "")
    halted = with_turns.run("halted")
    assert halted.doing == ""
    dear = with_turns.run("dear")
    assert dear is not None
    assert dear.at_ms == max(one.timestamp for one in deployment.records("turns") if one.key == b"dear")


def test_what_people_and_workers_write_is_no_sign_of_life() -> None:
    deployment = busy()
    heard = deployment.now_ms
    deployment.now_ms += 60_000
    deployment.write("turns", b"honest", wire.encode(wire.Deadline(w=1, run_id="honest", about="x", due_ms=heard)))
    deployment.write("turns", b"honest", wire.encode(wire.HaltAcknowledged(w=1, run_id="honest", by="ada")))

    row = filled(ReadModel(), deployment).run("honest")

    assert row.at_ms <= heard


def test_the_strip_counts_and_rates_what_there_is() -> None:
    deployment = busy()
    model = filled(ReadModel(), deployment)

    found = model.counts(deployment.now_ms + 15_000)

    assert (found.working, found.warned, found.halted, found.stopped) == (4, 1, 1, 0)
    assert found.turns_per_second == 36 / 60
    assert found.spend_usd_micro_per_hour == 4 * (5 * 6 * 1_000 + 6 * 1_000_000)  # of a quarter of an hour
    assert found.delay_ms == 1
    assert (found.fleet_status, found.caught_up, found.read_share) == ("CLEAR", False, 0.0)
    assert model.counts(deployment.now_ms + 4_000_000).delay_ms is None


def test_filters_find_what_they_name_and_take_no_pattern() -> None:
    deployment = busy()
    start(deployment, "100%_run", workflow="other\\", user="x")
    model = filled(ReadModel(), deployment)

    assert ids(model, RunFilter(user="of-halted")) == [["halted"], [], []]
    assert ids(model, RunFilter(workflow="other\\"))[2] == ["100%_run"]
    assert ids(model, RunFilter(text="%_"))[2] == ["100%_run"]
    assert ids(model, RunFilter(text="her\\"))[2] == ["100%_run"]
    assert ids(model, RunFilter(text="_%")) == [[], [], []]
    assert ids(model, RunFilter(status="finished")) == [[], [], ["finished"]]
    assert ids(model, RunFilter(code="LOOP001")) == [["halted"], ["warned"], []]
    assert ids(model, RunFilter(text="\ud800")) == [[], [], []]
    assert model.names("workflow") == ("nightly", "other\\")
    assert len(model.names("user")) == 7
    with pytest.raises(ValueError, match="choose one of workflow"):
        model.names("state FROM runs; --")  # type: ignore[arg-type]


def test_decisions_come_newest_first_page_by_page() -> None:
    model = filled(ReadModel(), busy())
    everything = model.decisions(DecisionFilter())

    assert [row.at_ms for row in everything] == sorted((row.at_ms for row in everything), reverse=True)
    paged, before = [], ""
    while found := model.decisions(DecisionFilter(before=before), limit=2):
        paged += found
        before = found[-1].id
    assert tuple(paged) == everything
    assert {row.run_id for row in model.decisions(DecisionFilter(text="resumed by"))} == {"resumed"}
    assert model.decision(everything[0].id) == everything[0]
    assert model.decision("unknown") is None
    [policy] = model.policies()
    assert (policy.name, policy.decisions) == ("standard", len(everything))


def issue(made: Deployment, number: int, scope: str, status: Any, at: int = 0, **fields: Any) -> None:
    command = FleetCommand(w=1, id=f"c{number}", status=status, scope=scope, at=NOON_MS + (at or number), **fields)
    made.write("commands", scope.encode(), encode_command(command))


def test_commands_stand_are_replaced_or_refused() -> None:
    made = Deployment()
    start(made, "r")
    issue(made, 1, "fleet", "STOP", by="ada", why="a bad release")
    issue(made, 2, "user:eve", "STOP")
    issue(made, 3, "run:r", "STOP", by="ada")
    issue(made, 3, "run:r", "STOP", by="ada")  # twice
    made.send(wire.OperatorStop(w=1, run_id="r", event_id="c3", by="ada"))
    made.write("commands", b"fleet", b"<script>")
    model = filled(ReadModel(), made)
    assert model.counts(0).fleet_status == "STOP"
    issue(made, 4, "fleet", "CLEAR", by="bob")
    issue(made, 5, "fleet", "STOP", at=2)  # a replay
    filled(model, made)

    counts = model.counts(0)
    assert (counts.fleet_status, counts.fleet_by) == ("CLEAR", "bob")
    found = {row.id: row for row in model.commands(standing=False)}
    assert {row_id: row.state for row_id, row in found.items()} == {
        "c1": "replaced", "c2": "standing", "c3": "standing", "c4": "standing",
        "streamproc.commands[0]@4": "refused", "streamproc.commands[0]@6": "refused",
    }  # fmt: skip
    assert "older than the CLEAR" in found["streamproc.commands[0]@6"].reason
    assert found["c3"].obeyed_runs == 1
    assert {row.id for row in model.commands(standing=True)} == {"c2", "c3", "c4"}


def test_a_command_that_is_issued_again_keeps_its_time_and_overrides_no_later_one() -> None:
    made = Deployment()
    issue(made, 1, "fleet", "CLEAR")
    issue(made, 2, "fleet", "CLEAR", at=50, since=NOON_MS + 1)
    issue(made, 3, "fleet", "STOP", at=20)
    issue(made, 4, "fleet", "CLEAR", at=60, since=NOON_MS + 1)  # of another worker
    issue(made, 5, "fleet", "CLEAR", at=60, since=NOON_MS + 20)  # names the time of the stop

    found = {row.id: row for row in filled(ReadModel(), made).commands(standing=False)}

    assert {row_id: (row.state, row.at_ms - NOON_MS) for row_id, row in found.items()} == {
        "c1": ("replaced", 1), "c2": ("replaced", 1), "c3": ("standing", 20),
        "streamproc.commands[0]@3": ("refused", 1), "streamproc.commands[0]@4": ("refused", 20),
    }  # fmt: skip


def test_commands_without_a_signature_are_refused() -> None:
    made = Deployment()
    issue(made, 1, "fleet", "STOP")
    model = ReadModel()
    keys = Keyring(read_signing_keys("ops:" + "k" * 32))
    model.trust(RecordSigner(Keyring(), "", required=False), CommandSigner(keys, "streamproc", required=True))

    filled(model, made)

    [row] = model.commands(standing=False)
    assert (row.state, row.scope, row.status) == ("refused", "fleet", "")
    assert "not signed" in row.reason
    assert model.counts(0).fleet_status == "CLEAR"


def test_only_what_a_worker_has_signed_is_believed() -> None:
    signer = RecordSigner(Keyring(read_signing_keys("workers:" + "k" * 32)), "streamproc", required=True)
    deployment = busy(signer)
    expected = ids(filled(ReadModel(), deployment))
    [halt] = [one for one in deployment.records("control") if one.key == b"halted" and b'"loop.halted"' in one.value]
    forged = halt.value.replace(b'"halted"', b'"honest"').replace(b'"id":"', b'"id":"x')
    deployment.write("control", b"honest", forged)
    deployment.write("control", b"honest", forged, headers=halt.headers)
    deployment.write("runs", b"honest", b'{"run_id":"honest","status":"halted","severity":"halt"}')
    deployment.write("runs", b"halted", None)
    deployment.write("activity", b"honest", b'{"run_id":"honest","status":"running","severity":"warn","offset":99}')
    model = ReadModel()
    model.trust(signer, CommandSigner(Keyring(), "", required=False))

    filled(model, deployment)

    assert ids(model) == expected
    assert model.skipped == {"control": 2, "runs": 2, "activity": 1}


def test_an_command_hits_the_running_runs_of_its_scope() -> None:
    model = filled(ReadModel(), busy())

    running = {scope: model.runs_in_scope(scope) for scope in (
        "fleet", "tenant:acme", "user:of-halted", "user:of-dear", "member:acme/of-dear", "member:x/of-dear",
        "run:dear", "run:halted", "tenant:", "nonsense",
    )}  # fmt: skip

    assert running == {
        "fleet": 4, "tenant:acme": 4, "user:of-halted": 0, "user:of-dear": 1, "member:acme/of-dear": 1,
        "member:x/of-dear": 0, "run:dear": 1, "run:halted": 0, "tenant:": 0, "nonsense": 0,
    }  # fmt: skip


def test_accounts_show_what_is_spent_and_when_the_limit_comes(tmp_path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "budgets": {"maxTenantTokensPerDay": 1_000, "maxSessionTokens": 200}}))
    made = Deployment(str(path))
    for run_id in ("a", "b"):
        start(made, run_id, tenant="acme", session_id=f"of-{run_id}")
    for number in range(10):
        made.send(turn("a", number, usage=spend(15)))
    made.send(turn("b", 0, usage=spend(100)))
    model = filled(ReadModel(), made)

    rows = {(row.scope, row.budget): row for row in model.accounts(now_ms=made.now_ms)}

    tenant = rows["tenant:acme", "day tokens"]
    assert (tenant.spent, tenant.limit, tenant.unit, tenant.window_s, tenant.runs) == (250, 1_000, "tokens", 86_400, 2)
    assert tenant.per_hour == 250 * 60
    assert tenant.limit_at_ms is not None
    assert tenant.limit_at_ms - made.now_ms == 5 * 60_000  # 250 a minute: within the next five
    session = rows["session:of-a", "total tokens"]
    assert (session.spent, session.limit) == (150, 200)
    [first, *_] = model.accounts(now_ms=made.now_ms)
    assert first.scope == "session:of-a"  # nearest to its limit
    later = {row.scope: row for row in model.accounts(now_ms=made.now_ms + 3_600_000 * 25)}
    assert (later["tenant:acme"].spent, later["tenant:acme"].per_hour) == (0, 0)
    assert later["tenant:acme"].limit_at_ms is None


def test_a_dead_letter_is_kept_without_its_content() -> None:
    made = Deployment()
    made.turn(b"r", b'{"run_id": "r", "node": 7, "output": "hunter2"}')
    model = filled(ReadModel(), made)

    [row] = model.refused()

    assert row.field_path == "node"
    assert (row.source_topic, row.source_offset) == ("streamproc.turns", 0)
    assert "hunter2" not in repr(model._all("SELECT * FROM refused"))


ROLES = ("runs", "activity", "control", "turns", "commands", "accounts", "spend", "dead-letter")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.text() | st.sampled_from(["run_id", "id", "at", "usage"]), part),
)
VALUES = st.none() | st.binary() | JSON.map(lambda value: repr(value).encode("utf-8", "replace"))


@pytest.mark.long
@settings(max_examples=200)
@given(role=st.sampled_from(ROLES), key=st.none() | st.binary(), value=VALUES, cut=st.integers(0, 400), data=st.data())
def test_no_record_of_any_content_ends_the_model(role, key, value, cut, data) -> None:
    made = busy()
    valid = made.records(role)
    if valid and data.draw(st.booleans()):  # damaged in one place
        chosen = data.draw(st.sampled_from(valid))
        key, whole = chosen.key, chosen.value or b""
        value = whole[:cut] + data.draw(st.binary(max_size=4)) + whole[cut + 2 :]
    headers = data.draw(st.lists(st.tuples(st.text(max_size=5), st.binary() | st.none()), max_size=3))
    model = ReadModel()

    made.write(role, key, value, partition=0, headers=headers)
    filled(model, made)

    assert model.next_offset(role, 0) == len(made.log[role, 0])
    assert model.run("halted") is not None
    for answer in (ids(model), model.decisions(DecisionFilter()), model.accounts(), model.commands(standing=False)):
        assert answer is not None
    model.counts(0)
    model.refused()
    model.close()


def test_finished_runs_go_first_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.read_model.model.TRIM_EVERY", 1)
    model = ReadModel()
    model._runs = run_table.RunTable(model._db, 3)
    model._folded = (model._runs, *model._folded[1:])

    filled(model, busy())
    model.apply("commands", busy().records("commands") or [])
    for _ in range(3):  # two at most leave with a transaction
        extra = Deployment()
        start(extra, f"later-{_}")
        model.apply("dead-letter", [extra.write("dead-letter", None, b"x")])

    assert ids(model)[:2] == [["halted"], ["warned"]]
    assert "finished" not in ids(model)[2]
    assert sum(map(len, ids(model))) == 3


def test_the_oldest_decisions_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.read_model.model.TRIM_EVERY", 1)
    model, deployment = ReadModel(), busy()
    model._decisions = decision_table.DecisionTable(model._db, 2)
    model._folded = (model._folded[0], model._decisions, model._folded[2])

    filled(model, deployment)

    newest = [row.id for row in filled(ReadModel(), deployment).decisions(DecisionFilter(), limit=2)]
    assert [row.id for row in model.decisions(DecisionFilter())] == newest


def test_a_run_that_only_commands_name_is_in_no_list_until_it_publishes() -> None:
    made = busy()
    made.send(wire.OperatorStop(w=1, run_id="typo", event_id="k", by="ada"))
    model = filled(ReadModel(), made)
    assert all("typo" not in group for group in ids(model))
    assert model.run("typo") is None
    assert (model.counts(NOON_MS).halted, model.runs_in_scope("fleet")) == (1, 4)
    assert [one.code for one in model.decisions(DecisionFilter(run_id="typo"))] == ["OPERATOR001"]

    made.send(turn("typo", 0, "here I am"))
    model = filled(ReadModel(), made)
    assert ids(model)[0] == ["typo", "halted"]


def test_what_an_command_has_stopped_is_counted_in_its_scope_and_since_it_came() -> None:
    made = busy()
    for run_id, state in (("honest", "watching"), ("dear", "watching"), ("resumed", "stopped"), ("halted", "stopped")):
        made.turn(run_id.encode(), encode_guard_report(run_id, f"{run_id}/{state}", state, "box/7"))
    since_ms = made.records("turns")[-1].timestamp + 1
    made.turn(b"dear", encode_guard_report("dear", "dear/other", "watching", "box/8"))
    made.turn(b"dear", encode_guard_report("dear", "dear/stopped", "stopped", "box/7"))
    model = filled(ReadModel(), made)

    # `resumed` had stopped before; of `dear` one guard has not answered; `warned` has none that reports.
    assert str(model.stops("fleet", since_ms)) == (
        "stopped 0 of 4; 3 do not answer: dear (box/8), honest (box/7), resumed (box/7); 1 does not report"
    )
    assert str(model.stops("user:of-honest", since_ms)) == "stopped 0 of 1; 1 does not answer: honest (box/7)"
    assert str(model.stops("member:acme/of-warned", since_ms)) == "stopped 0 of 1; 1 does not report"
    assert str(model.stops("run:dear", since_ms)) == "stopped 0 of 1; 1 does not answer: dear (box/8)"
    assert str(model.stops("tenant:other", since_ms)) == "stopped 0 of 0"

    made.turn(b"dear", encode_guard_report("dear", "dear/left", "left", "box/8"))
    made.turn(b"honest", encode_guard_report("honest", "honest/stopped", "stopped", "box/7"))
    made.send(wire.RunFinished(w=1, run_id="warned", event_id="w/f"))
    model = filled(ReadModel(), made)
    assert str(model.stops("fleet", since_ms)) == "stopped 3 of 4; 1 does not answer: resumed (box/7)"


def test_made_up_guards_of_a_run_are_bounded() -> None:
    made = busy()
    for number in range(200):
        made.turn(b"dear", encode_guard_report("dear", f"g{number}", "watching", f"box/{number}"))
    model = filled(ReadModel(), made)
    assert model._one("SELECT count(*) FROM guards")[0] == 64
    made.turn(b"dear", encode_guard_report("dear", "last", "stopped", "box/3"))
    model = filled(ReadModel(), made)
    assert model._one("SELECT count(*) FROM guards WHERE stopped_ms > 0")[0] == 1


def test_any_column_sorts_the_runs_of_a_group_both_ways() -> None:
    model = filled(ReadModel(), busy())

    def sorted_by(sort: str) -> list[str]:
        return [row.run_id for row in model.runs("others", ALL, sort=sort).rows]

    assert sorted_by("run") == ["dear", "finished", "honest", "resumed"]
    assert sorted_by("-run") == sorted_by("run")[::-1]
    assert sorted_by("-cost")[0] == sorted_by("cost")[-1] == "dear"
    assert sorted_by("user") == ["dear", "finished", "honest", "resumed"]
    assert sorted_by("-heard") == sorted_by("heard")[::-1]
    for name in SORTS:
        found = model.runs("others", ALL, sort=f"-{name}").rows
        assert {row.run_id for row in found} == set(sorted_by("run"))
    assert sorted_by("run; DROP TABLE runs") == sorted_by("") == ["dear", "honest", "resumed", "finished"]


def test_a_time_range_chooses_runs_by_their_last_event() -> None:
    model = filled(ReadModel(), busy())
    last = model.run("finished")
    everything = sorted(run_id for group in ids(model) for run_id in group)
    late = RunFilter(since=datetime.fromtimestamp(last.at_ms / 1000, UTC).isoformat())
    early = RunFilter(until=address_time(last.at_ms - 60_000))

    def chosen(wanted: RunFilter) -> list[str]:
        return sorted(run_id for group in ids(model, wanted) for run_id in group)

    assert chosen(RunFilter(since="2023-01-01T00:00:00Z")) == everything
    assert chosen(RunFilter(since="1h")) == chosen(early) == []
    assert chosen(RunFilter(since="rubbish")) == everything
    assert "finished" in chosen(late) != everything
    for run_id in everything:
        run = model.run(run_id)
        assert run is not None
        assert all(fits(run, wanted) == (run_id in chosen(wanted)) for wanted in (late, early, RunFilter(since="1h")))
