"""Two policies side by side: the cautious one halts sooner and too often, the permissive one later and too rarely."""

from __future__ import annotations

import re

from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.samples import outcomes, trajectory_file
from tests.examples.playing import ROOT, printed, turn_of

FOLDER = ROOT / "examples" / "two_policies"
NEVER = 10**6


def halted_at(policy: str) -> dict[str, int]:
    """The turn at which each run is halted first."""
    found: dict[str, int] = {}
    with trajectory_file() as path:
        for decision in Scan([Source(path)], load_policy(policy)):
            if decision.severity == "halt":
                found.setdefault(decision.run_id, turn_of(decision) or 0)
    return found


def test_the_cautious_policy_is_never_later_and_the_permissive_one_never_sooner() -> None:
    cautious, standard, permissive = (
        halted_at(policy) for policy in (str(FOLDER / "cautious.yaml"), "standard", str(FOLDER / "permissive.yaml"))
    )
    assert permissive.keys() < standard.keys() < cautious.keys()
    for run_id in outcomes():
        early, middle, late = (found.get(run_id, NEVER) for found in (cautious, standard, permissive))
        assert early <= middle <= late
    assert sum(cautious[run_id] < turn for run_id, turn in standard.items()) == len(standard)


def test_only_the_cautious_policy_disturbs_solved_runs() -> None:
    solved = {run_id for run_id, outcome in outcomes().items() if outcome.solved}
    assert solved & halted_at(str(FOLDER / "cautious.yaml")).keys()
    assert not solved & halted_at("standard").keys()
    assert not solved & halted_at(str(FOLDER / "permissive.yaml")).keys()


def test_the_table_adds_up() -> None:
    head, *rows = printed("two_policies").partition("\n\n")[0].splitlines()
    assert head.split() == ["run", "turns", "task", "cautious", "standard", "permissive"]
    spared = 0
    for row in rows:
        found = re.fullmatch(r"(\S+) +(\d+) +(solved|failed) +\w+ at (\d+) .*", row)
        assert found is not None
        if found[3] == "failed":
            spared += int(found[2]) - int(found[4]) - 1
    assert (
        f"cautious\n  halts 10 runs that fail anyway: {spared} turns, {spared * 5 / 100:.2f} USD spared\n"
        in printed("two_policies")
    )


def test_each_policy_has_its_own_on_stall_action() -> None:
    assert load_policy(FOLDER / "cautious.yaml").effective()["on_stall"] == "switch_to_interactive"
    assert load_policy(FOLDER / "permissive.yaml").effective()["on_stall"] == "retry_with_new_provider"
