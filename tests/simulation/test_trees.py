"""Trees that are stopped while they grow: a few schedules; `python -m tests.simulation.trees` plays thousands."""

from __future__ import annotations

import pytest

from streamproc.policy import load_policy
from tests.simulation import trees

SCHEDULES = 45


@pytest.mark.long
def test_no_run_survives_and_no_honest_run_is_halted() -> None:
    wrong = {seed: found for seed in range(SCHEDULES) if (found := trees.Schedule(seed).play())}
    assert wrong == {}
    assert {trees.Schedule(seed).kind for seed in range(SCHEDULES)} == set(trees.POLICIES)


@pytest.mark.parametrize("kind", ["kill", "stop"])
def test_it_finds_a_worker_that_forgets_births_after_the_stop(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the part that halts newborns, some survive: the schedules can fail."""
    monkeypatch.setattr(trees, "STEPS_MAX", 3_000)
    monkeypatch.setitem(trees.POLICIES, "stop", load_policy({"children": "continue"}))
    monkeypatch.setattr(trees.TurnProcessor, "_kill", lambda *_: ())
    monkeypatch.setattr(trees.FleetCommands, "_stop_known", _nothing)
    seed = next(seed for seed in range(100) if trees.Schedule(seed).kind == kind)
    assert trees.Schedule(seed).play()


async def _nothing(*_: object) -> None: ...
