"""``streamproc baseline``: what is usual for each workflow, for a policy to hold runs against."""

from __future__ import annotations

import typer

from streamproc.cli.inputs import Files, Lenient, opened
from streamproc.cli.terminal import examples, line

app = typer.Typer()


@app.command(
    epilog=examples(
        "streamproc baseline last-month.jsonl.gz",
        "streamproc baseline a.jsonl b.jsonl >> policy.yaml",
    )
)
def baseline(files: Files, lenient: Lenient = False) -> None:
    """Measure how long runs of each workflow take (p99) and what their turns cost, and print it as lines of a policy.

    BUDGET006 holds a run against a multiple of the p99, BUDGET011 against the cost of a usual turn.
    """
    from streamproc.replay.baseline import policy_lines, usual

    with opened(files, lenient, "measuring") as sources:
        found = list(usual(sources))
    for text in policy_lines(found):
        line(text)
