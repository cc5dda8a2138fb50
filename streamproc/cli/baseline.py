"""``streamproc baseline``: usual runtime, cost and rounds per workflow, as limits for a policy."""

from __future__ import annotations

import typer

from streamproc.cli.inputs import Files, Lenient, opened
from streamproc.cli.options import Json, Quiet
from streamproc.cli.terminal import examples, json_row, line

app = typer.Typer()


@app.command(
    epilog=examples("streamproc baseline last-month.jsonl.gz", "streamproc baseline a.jsonl b.jsonl >> policy.yaml")
)
def baseline(files: Files, lenient: Lenient = False, as_json: Json = False, _quiet: Quiet = False) -> None:
    """Measure p99 runtime, median cost per turn and rounds for each workflow, and print them as lines of a policy.

    BUDGET006 compares a run with a multiple of the p99, BUDGET011 with the median cost per turn.

    maxRounds is the round in which 95 of 100 deliberations have agreed, and one more, within 5 and 15.
    """
    from streamproc.replay.baseline import policy_lines, usual

    with opened(files, lenient, "measuring") as sources:
        found = list(usual(sources))
    if as_json:
        for one in found:
            json_row(one)
        return
    for text in policy_lines(found):
        line(text)
