"""``python -m benchmarks.quality.sources NAME=PATH``: halts and warnings by source of logs.

Each path goes through ``streamproc scan --json`` and the importer that it chooses. Without paths, the runs of the
repository do. ``--outcomes`` maps a run id to an object whose `outcome` or `solved` is true, or 1, if the run was
solved; a sub-agent has the outcome of its session. ``GROUP: NAME=PATH`` puts a source into the total of its group.

Shares have Wilson's interval. Rates per 1 000 turns have the exact interval of a Poisson count, which is somewhat too
narrow where several warnings are about one run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.quality.planted import planted
from benchmarks.quality.real import is_solved, real_runs
from benchmarks.quality.scoring import rate, wilson
from benchmarks.quality.traces import all_traces

SOLVED, OTHER, UNLABELLED, NOT_FAILED = "solved", "not solved", "no label", "solved or no label"

HEADINGS: Final = (
    "source", "label", "runs", "turns", "runs halted (95 %)", "halts per 1 000 turns (95 %)",
    "warnings per 1 000 turns (95 %)", "warnings by detector",
)  # fmt: skip

Labels = dict[str, bool]


@dataclass(slots=True)
class Figures:
    """What was found in the runs of a source that have one label."""

    turns: Counter[str] = field(default_factory=Counter)  # by run
    halts: list[dict[str, Any]] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)  # by detector

    def __add__(self, other: Figures) -> Figures:
        return Figures(self.turns + other.turns, self.halts + other.halts, self.warnings + other.warnings)

    def cells(self, name: str, label: str) -> tuple[str, ...]:
        """Return the row of these figures."""
        halted, turns = len({halt["run_id"] for halt in self.halts}), self.turns.total()
        low, high = wilson(halted, len(self.turns))
        by_detector = ", ".join(f"{code} {count}" for code, count in sorted(self.warnings.items()))
        return (
            name, label, f"{len(self.turns)}", f"{turns}", f"{halted} ({low:.1%} to {high:.1%})",
            rate(len(self.halts), turns), rate(self.warnings.total(), turns), by_detector,
        )  # fmt: skip


def figures(path: str, labels: Labels, policy: str) -> dict[str, Figures]:
    """Return the figures of a path by label. Ends the program if a command cannot read it."""
    found: defaultdict[str, Figures] = defaultdict(Figures)

    def of(run_id: str) -> Figures:
        solved = labels.get(run_id, labels.get(run_id.partition("/")[0]))
        return found[UNLABELLED if solved is None else SOLVED if solved else OTHER]

    for event in printed("convert", path):
        if event.get("type", "turn") == "turn":
            of(event["run_id"]).turns[event["run_id"]] += 1
    for control in printed("scan", "--json", "--policy", policy, path):
        if control["severity"] == "halt":
            of(control["run_id"]).halts.append(control)
        elif control["severity"] == "warn":
            of(control["run_id"]).warnings[control["code"]] += 1
    return dict(found)


def printed(*arguments: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that a command of streamproc prints, a line each."""
    command = [sys.executable, "-m", "streamproc", *arguments, "--quiet"]
    with tempfile.TemporaryFile() as lines:
        ended = subprocess.run(command, stdout=lines, stderr=subprocess.PIPE, check=False, text=True)
        if ended.returncode not in (0, 1):  # 1: a run was halted
            raise SystemExit(f"{' '.join(command)}: {ended.stderr.strip()}")
        lines.seek(0)
        yield from map(json.loads, lines)


def report(sources: dict[str, dict[str, Figures]]) -> Iterator[str]:
    """Yield the table, with the totals of groups and of all, and each halt of a run that is not labelled as failed."""
    totals: defaultdict[str, list[Figures]] = defaultdict(list)
    honest = {name: [one for label, one in found.items() if label != OTHER] for name, found in sources.items()}
    rows = []
    for name, found in sources.items():
        rows += [found[label].cells(name, label) for label in (SOLVED, UNLABELLED, OTHER) if label in found]
        for total in {name.partition(": ")[0], "all"}:
            totals[total] += honest[name]
    for total in sorted(totals, key=lambda name: (name == "all", name)):
        if totals[total] and total not in sources:
            rows.append(sum(totals[total], Figures()).cells(f"**{total}**", NOT_FAILED))
    for row in (HEADINGS, ("---",) * len(HEADINGS), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""
    kept = [(name, halt) for name, ones in honest.items() for one in ones for halt in one.halts]
    for name, halt in kept:
        yield f"- {name}: `{halt['run_id']}`, turn {halt['trigger']['turn']}, {halt['code']}: {halt['message']}"
    if not kept:
        yield "No run was halted that was solved or has no label."


def main() -> int:
    """Print the figures of the sources that were named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.sources", description=__doc__)
    parser.add_argument("sources", nargs="*", metavar="NAME=PATH", help="a name and its logs (the repository's)")
    parser.add_argument("--outcomes", action="append", default=[], type=Path, metavar="FILE", help="repeatable")
    parser.add_argument("--policy", default="standard", metavar="P", help="a preset or a policy file (%(default)s)")
    parser.add_argument("--planted", type=int, default=0, metavar="SEEDS", help="also scan synthetic runs")
    options = parser.parse_args()
    labels = {run: is_solved(known) for file in options.outcomes for run, known in json.loads(file.read_text()).items()}
    with tempfile.TemporaryDirectory() as directory:
        named = [source.partition("=")[::2] for source in options.sources] or _repository(Path(directory), labels)
        sources = {name: figures(path, labels, options.policy) for name, path in named}
    print(*report(sources), sep="\n")
    if options.planted:
        print("", *planted(list(all_traces(options.planted)), options.policy, printed), sep="\n")
    return 0


def _repository(directory: Path, labels: Labels) -> list[tuple[str, str]]:
    """Write the real runs of the repository, and return their names and paths."""
    files: dict[str, Path] = {}
    for run in real_runs():
        labels[run.run_id] = run.solved
        file = files.setdefault(run.source, directory / f"{run.source}.jsonl")
        with file.open("a", encoding="utf-8") as lines:
            lines.writelines(json.dumps(event) + "\n" for event in run.events)
    return [(name, str(path)) for name, path in files.items()]


if __name__ == "__main__":
    sys.exit(main())
