"""Policies side by side over one log: halts, savings, shared accounts, and the same result with any processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamproc.policy import load_policy
from streamproc.replay import backtest as module
from streamproc.replay.backtest import LEFT_OUT, Candidate, PolicyResult, RunHalt, backtest, partition
from streamproc.replay.comparison import best, compared
from streamproc.replay.outcomes import RunLabel
from streamproc.replay.spool import Spool, SpooledRun, in_time_order, spooled
from tests.feeding import event_of

AGAIN = {"node": "coder", "output": "I will try again."}


def spool_of(path: Path, raws: Iterable[dict[str, Any]]) -> Spool:
    with Spool(path) as spool:
        for number, raw in enumerate(raws):
            event = event_of({"event_id": f"e{number}", "node": "coder", **raw})
            spool.add(event, event.at)
    return spool


def tried(spool: Spool, *candidates: Candidate, **options: Any) -> list[PolicyResult]:
    return backtest(spool.path, spool.runs, candidates or (Candidate(None),), events=spool.events, **options)


def stuck(run_id: str, turns: int = 6, **fields: Any) -> list[dict[str, Any]]:
    return [{"run_id": run_id, **AGAIN, **fields} for _ in range(turns)]


def honest(run_id: str, turns: int = 6, **fields: Any) -> list[dict[str, Any]]:
    return [{"run_id": run_id, "output": f"step {number}", **fields} for number in range(turns)]


def test_a_halt_has_its_turn_and_what_came_after_it(tmp_path: Path) -> None:
    usage = {"total_tokens": 100, "cost_usd": "0.02"}
    spool = spool_of(tmp_path / "s", [*stuck("r", usage=usage), *honest("h", usage=usage)])

    [result] = tried(spool)

    assert result.halts == {"r": RunHalt("LOOP001", 2, 3, 300, 60_000)}
    assert (result.tokens, result.micro_usd) == (1_200, 240_000)


def test_what_a_resumed_run_does_is_not_saved(tmp_path: Path) -> None:
    resume = {"run_id": "r", "type": "operator.resume", "by": "ada"}
    spool = spool_of(tmp_path / "s", [*stuck("r", 5), resume, *honest("r", 7)])

    [result] = tried(spool)

    assert result.halts["r"].turns_after == 2


def test_a_run_counts_if_it_is_chosen_and_others_only_for_what_they_share(tmp_path: Path) -> None:
    spend = {"user": "ada", "usage": {"cost_usd": "0.60"}}
    spool = spool_of(tmp_path / "s", [*honest("a", 2, **spend), *honest("b", 2, **spend), *stuck("c")])
    policy = Candidate(None, {"budgets.maxUserCostUsdPerDay": 2})

    [alone] = tried(spool, policy, chosen={"b"})

    assert set(alone.halts) == {"b"}
    assert alone.tokens == 0
    assert alone.micro_usd == 1_200_000


@pytest.mark.parametrize("processes", [2, 3])
def test_any_number_of_processes_decides_alike(tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spend = {"usage": {"cost_usd": "0.30", "total_tokens": 10}}
    runs = [
        *(raw for n in range(6) for raw in honest(f"u{n}", 3, user=f"user-{n % 2}", **spend)),
        *(raw for n in range(4) for raw in honest(f"s{n}", 3, session_id="s0", **spend)),
        *(raw for n in range(6) for raw in stuck(f"r{n}", 4 + n)),
    ]
    spool = spool_of(tmp_path / "s", sorted(runs, key=lambda raw: str(raw.get("output"))))
    base = {"budgets.maxUserCostUsdPerDay": 1, "budgets.maxSessionTokens": 50}
    policies = [Candidate(None, base), Candidate(None, base | {"detectors.LOOP001.halt": 5}), Candidate("planner")]
    monkeypatch.setattr(module, "INLINE_STEPS", 0)

    for candidates in (policies, policies[:1]):
        one = tried(spool, *candidates, processes=1)
        several = tried(spool, *candidates, processes=processes)

        assert [result.halts for result in several] == [result.halts for result in one]
        assert several == one
    assert {"u4", "s3", "r5"} <= tried(spool, policies[0])[0].halts.keys()


def test_runs_that_share_an_account_are_in_one_part() -> None:
    runs = [
        SpooledRun("a", 5, user="ada"), SpooledRun("b", 5, user="ada", session="s"), SpooledRun("c", 5, session="s"),
        SpooledRun("s", 5), SpooledRun("e", 9), SpooledRun("f", 1, tenant="acme"), SpooledRun("g", 1, tenant="acme"),
    ]  # fmt: skip

    parts = partition(runs, 2)

    assert len({*parts[:4]}) == len({*parts[5:]}) == 1
    assert set(parts) == {0, 1}
    apart = partition(runs, 7, owners=False)
    assert apart[0] != apart[1] == apart[2] == apart[3]
    assert apart[5] != apart[6]
    assert list(partition(runs, 2, chosen={"c"})) == [0, 0, 0, 0, LEFT_OUT, LEFT_OUT, LEFT_OUT]


def test_a_policy_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    spool = spool_of(tmp_path / "s", stuck("r"))
    path = tmp_path / "policy.yaml"
    path.write_text("name: one\n")
    loaded = load_policy(str(path))
    path.write_text("name: two\n")
    job = module._Job(spool.path, [Candidate(str(path))], [loaded.hash], partition(spool.runs, 1), 0, ["r"])

    with pytest.raises(RuntimeError, match="two has changed"):
        module._work(job)


# The spool.


def test_a_spool_keeps_events_times_and_order(tmp_path: Path) -> None:
    at_ms, half = 1_769_860_800_000, "é\ud800"
    events = [event_of({"event_id": f"e{n}", **raw}) for n, raw in enumerate(stuck("r", 3))]
    events[2] = msgspec.structs.replace(events[2], run_id=half)  # half a surrogate pair, which a file may have
    with Spool(tmp_path / "s") as spool:
        for event, at in zip(events, (at_ms, at_ms, None), strict=True):
            spool.add(event, at)

    found = list(spooled(spool.path))

    assert [one.run for one in found] == [0, 0, 1]
    assert [one.at_ms for one in found] == [at_ms, at_ms, None]
    assert [one.event for one in found] == events
    assert [(run.run_id, run.turns) for run in spool.runs] == [("r", 2), (half, 1)]


def test_partitions_are_merged_by_time_and_keep_their_own_order(tmp_path: Path) -> None:
    for name, times in (("a", (10, 40, 20)), ("b", (15, 30, 50))):
        spool_of(tmp_path / name, [{"run_id": name, "at": 1_769_860_800_000 + at} for at in times])

    merged = [(one.event.run_id, one.at_ms) for one in in_time_order([tmp_path / "a", tmp_path / "b"])]

    assert [(run, (at or 0) - 1_769_860_800_000) for run, at in merged] == [
        ("a", 10), ("b", 15), ("b", 30), ("a", 40), ("a", 20), ("b", 50),
    ]  # fmt: skip


# The comparison.


def halted(**turns: int) -> PolicyResult:
    return PolicyResult({run: RunHalt("LOOP001", turn, 10 - turn, 0, 0) for run, turn in turns.items()})


REF = load_policy().ref


def test_runs_are_halted_earlier_later_never_and_newly() -> None:
    results = [halted(a=3, b=3, c=3, d=3), halted(a=3, b=2, c=5, e=1)]
    turns = dict.fromkeys("abcdef", 10)

    first, second = compared([(REF, {})] * 2, results, turns, {"e": RunLabel("solved"), "zz": RunLabel("solved")})

    assert [one.change for one in second.changed] == ["same", "earlier", "later", "never", "new"]
    assert [one.change for one in first.changed] == ["same"] * 4
    assert (first.turns_after, second.turns_after) == (28, 7 + 8 + 5 + 9)
    assert (first.false_halts, second.false_halts) == ([], ["e"])
    assert second.as_json()["healthy_runs"] == 1
    assert second.cost_after is None


def test_no_other_policy_beats_the_best() -> None:
    labels = {"x": RunLabel("solved"), "y": RunLabel("solved")}
    results = [halted(a=5), halted(a=3), halted(a=3, x=9), halted(a=1, x=9), halted(a=1, x=9), halted(x=9, y=9)]

    rows = compared([(REF, {})] * 6, results, dict.fromkeys("axy", 10), labels)

    assert best(rows) == [1, 3]
