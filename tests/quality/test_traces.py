"""The labelled traces: reproducible from their seeds, valid, and generated without the engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from benchmarks.quality import traces
from benchmarks.quality.catalogue import TITLES
from benchmarks.quality.traces import HONEST, LOOPS, Kind, name_of, trace_of, trees
from benchmarks.quality.traces.noise import FORMS, Noise
from benchmarks.quality.traces.script import Script
from streamproc.model.raw_events import parse_raw
from tests.syntax import syntax_of

KINDS = (*LOOPS, *HONEST)
FOLDER = Path(traces.__file__).parent


made = cache(partial(trace_of, seed=0))


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(syntax_of(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize(
    "file", sorted([*FOLDER.glob("*.py"), FOLDER.parent / "labels.py"]), ids=lambda file: file.name
)
def test_generators_of_loops_do_not_import_the_engine(file: Path) -> None:
    known = {"benchmarks.quality.labels", "benchmarks.quality.scoring"}

    assert not [name for name in imported(file) if name.split(".")[0] == "streamproc"]
    assert all(
        name in known or name.startswith("benchmarks.quality.traces") for name in imported(file) if "benchmarks" in name
    )


def test_no_two_kinds_have_one_name() -> None:
    assert len({name_of(kind) for kind in KINDS}) == len(KINDS)


def test_every_row_of_the_catalogue_is_planted() -> None:
    planted = {episode.code for kind in LOOPS for episode in made(kind).episodes}

    assert planted == set(TITLES)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_seed_reproduces_its_trace_and_another_seed_gives_another(kind: Kind) -> None:
    assert made(kind) == trace_of(kind, 0)
    assert made(kind).events != trace_of(kind, 1).events


@pytest.mark.parametrize("kind", LOOPS, ids=name_of)
def test_a_planted_loop_meets_its_thresholds_within_itself(kind: Kind) -> None:
    trace = made(kind)

    assert trace.episodes
    for episode in trace.episodes:
        assert 0 < episode.onset <= episode.due <= episode.end < len(trace.events)
        if episode.warn_at is not None and episode.halt_at is not None:
            assert episode.onset <= episode.warn_at <= episode.halt_at


@pytest.mark.parametrize("kind", HONEST, ids=name_of)
def test_healthy_work_has_no_label(kind: Kind) -> None:
    assert not made(kind).episodes


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_every_event_can_be_published(kind: Kind) -> None:
    trace = made(kind)
    of_tree = kind in (*trees.KINDS, *trees.HONEST)  # its children are runs of their own, in the session of the root

    for event in trace.events:
        raw = parse_raw(event)
        if of_tree and raw.run_id != trace.run_id:
            assert raw.run_id.startswith(f"{trace.run_id}/")
            assert raw.session_id == trace.run_id
        else:
            assert raw.run_id == trace.run_id
        assert not raw.unknown or raw.type not in ("turn", "run.started")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_noise_differs_each_time(form) -> None:
    dice = Script("noise", 1).dice
    said = [form(dice, "cannot open the old ledger of the house") for _ in range(9)]

    assert len(set(said)) > 7


def test_noise_keeps_the_words() -> None:
    assert "ledger" in Noise(Script("noise", 1).dice)("ledger")


def test_a_long_run_is_long() -> None:
    assert len(trace_of(traces.honest.long_run, 0).events) >= 500


def test_a_loop_whose_threshold_is_never_met_cannot_be_planted() -> None:
    script = Script("test", 0)
    loop = script.loop("LOOP001", halt=3)
    script.say("a", "x")
    loop.counted(1)

    with pytest.raises(AssertionError, match="never met"):
        loop.__exit__(None, None, None)
