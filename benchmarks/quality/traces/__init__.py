"""Labelled traces, generated from seeds. Nothing here imports the engine: generators compute the thresholds themselves.

A kind of trace is a function that writes to a `Script`. `LOOPS` hide a loop among healthy work, `HONEST` is work that
looks like one. To add a kind, write its function and add it to the tuple at the end of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from benchmarks.quality.labels import Trace
from benchmarks.quality.traces import (
    between_turns,
    boards,
    budgets,
    disguised,
    endless,
    failures,
    framing,
    hand_overs,
    honest,
    no_progress,
    oscillation,
    others_words,
    presets,
    repeated_call,
    repeated_output,
    requests,
    stagnation,
    talking,
    teamwork,
    trees,
    unfinished,
    work,
)
from benchmarks.quality.traces.script import Script

Kind = Callable[[Script], None]


def _hidden(loop: Kind) -> Kind:
    def write(script: Script) -> None:
        honest.before(script)
        loop(script)
        honest.after(script)

    write.__module__, write.__name__ = loop.__module__, loop.__name__
    return write


LOOPS: Final[tuple[Kind, ...]] = (
    *(
        _hidden(loop)
        for module in (
            repeated_output, oscillation, repeated_call, stagnation, hand_overs, no_progress, unfinished, failures,
            disguised, boards, endless, framing, talking, others_words, requests, between_turns,
        )
        for loop in module.KINDS
    ),
    *budgets.KINDS,
    *trees.KINDS,
    *presets.KINDS,
    *between_turns.ENDINGS,
)  # fmt: skip
HONEST: Final[tuple[Kind, ...]] = (
    work.plain_steps, work.talk, budgets.within_every_limit,
    *map(honest.around, (
        *honest.FRAGMENTS, *requests.FRAGMENTS, *teamwork.APART, *between_turns.FRAGMENTS,
    )), honest.mixed_day, honest.long_run,
    *presets.HONEST, *trees.HONEST, *between_turns.HONEST,
)  # fmt: skip


def name_of(kind: Kind) -> str:
    """Return the file and function of a kind, such as ``repeated_call.in_a_row``. It seeds the traces, so keep it."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def trace_of(kind: Kind, seed: int) -> Trace:
    """Return the trace of a kind and a seed, which is always the same."""
    script = Script(name_of(kind), seed)
    kind(script)
    return script.trace()


def all_traces(seeds: int, kinds: Iterable[Kind] = (*LOOPS, *HONEST)) -> Iterator[Trace]:
    """Yield `seeds` traces of each kind."""
    for kind in kinds:
        for seed in range(seeds):
            yield trace_of(kind, seed)
