"""A slice in one call has the effects of one step an event, in the order of the records, byte for byte."""

from __future__ import annotations

import random

import pytest

from tests.worker.slices import difference, difference_without_room, effects, made_slice, sizes


@pytest.mark.parametrize("seed", range(150))
def test_a_slice_has_the_effects_of_its_records_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    assert not difference(made_slice(rng), sizes(rng))


@pytest.mark.parametrize("seed", range(150))
def test_a_slice_of_more_runs_than_there_is_room_for_has_the_same_effects(seed: int) -> None:
    rng = random.Random(seed)
    assert not difference_without_room(made_slice(rng), [rng.randrange(1, 12) for _ in range(6)])


def test_the_slices_above_contain_what_they_are_about() -> None:
    """Decisions, charges, dead letters of each kind, faults of the engine, and repeated records."""
    topics, reasons, counts = set(), set(), []
    for seed in range(150):
        found = effects(made_slice(random.Random(seed)), [])
        topics |= {name for name in found if not name.startswith("status of")}
        reasons |= {headers[0][1][:9] for _, _, headers, *_ in found.get("dead-letter", ())}
        counts.append(found["counts"])
    assert topics >= {"control", "dead-letter", "session:s", "tenant:acme", "provider:p/a"}
    assert b"engine: Z" in reasons
    assert len(reasons) > 5
    for name in ("repeated", "failures", "halts"):
        assert not all(f"{name}=0" in one for one in counts), name
