"""``python -m benchmarks.quality``: score the engine on labelled traces and print one table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.machine import ROOT, header
from benchmarks.quality.catalogue import TITLES
from benchmarks.quality.faults import faults
from benchmarks.quality.grafts import grafted
from benchmarks.quality.real import real_runs, runs_in
from benchmarks.quality.rows import Row, rows
from benchmarks.quality.table import explanation, markdown
from benchmarks.quality.tally import tallies
from benchmarks.quality.traces import HONEST, LOOPS, Kind, all_traces, name_of, trace_of
from benchmarks.quality.watchers import OURS, SIMPLE_RULES, breaker
from docs import generate
from docs.tables import write_between_marks
from streamproc.errors import InvalidPolicy
from streamproc.policy import load_policy

SEEDS: Final = 25  # of each kind: more than three thousand runs, in about a minute

EXIT_OK: Final = 0
EXIT_MISSED: Final = 1
EXIT_UNUSABLE: Final = 2


def main() -> int:
    """Measure, print and write the table; the exit code shows whether the targets were met."""
    options = _options()
    try:
        if options.dump:
            return _dump(options.dump)
        policy = load_policy(options.policy)
        real = runs_in(options.data) if options.data else real_runs()
    except (InvalidPolicy, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return EXIT_UNUSABLE
    began = time.monotonic()
    traces = [*all_traces(options.seeds, _kinds(options.only)), *grafted(real)]
    found = tallies({OURS: breaker(policy), **SIMPLE_RULES}, traces, real)
    machine = header(None, f"Measured in {time.monotonic() - began:.0f} s by `make quality`.")
    table = rows(found, TITLES)
    text = markdown(table, explanation(found[OURS], len(traces), policy.name, machine))
    print(text)
    if options.faults:
        print(*faults(found[OURS]), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([row.figures() for row in table], indent=1), "utf-8")
    if options.readme:
        write_between_marks(ROOT / "docs" / "quality.md", "quality", text)
        generate.main()  # the README shows figures of this table
    return _verdict(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="traces of each kind (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds whose names contain this")
    parser.add_argument("--policy", metavar="P", help="a preset or a policy file (standard)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="read real runs from here instead of the repository")
    parser.add_argument("--faults", action="store_true", help="print every miss and every false alarm")
    parser.add_argument("--dump", metavar="KIND/SEED", help="print one synthetic run as JSONL, and its labels")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, unrounded")
    parser.add_argument("--readme", action="store_true", help="write docs/quality.md and the README's figures")
    return parser.parse_args()


def _kinds(only: str) -> list[Kind]:
    return [kind for kind in (*LOOPS, *HONEST) if only in name_of(kind)]


def _dump(run_id: str) -> int:
    """Print one synthetic run: events on standard output, ready for `streamproc scan -`; labels on standard error."""
    name, _, seed = run_id.rpartition("/")
    kinds = {name_of(kind): kind for kind in (*LOOPS, *HONEST)}
    if name not in kinds or not seed.isdecimal():
        raise ValueError(f"{run_id} is not KIND/SEED; kinds are: {', '.join(kinds)}")
    trace = trace_of(kinds[name], int(seed))
    for event in trace.events:
        print(json.dumps(event))
    for episode in trace.episodes:
        print(episode, file=sys.stderr)
    return EXIT_OK


def _verdict(table: list[Row]) -> int:
    """Print the missed targets and return the exit code; the simple rules have no targets."""
    missed = [fault for row in table if not row.simple_rule for fault in row.missed_targets()]
    for fault in missed:
        print(f"missed: {fault}", file=sys.stderr)
    return EXIT_MISSED if missed else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
