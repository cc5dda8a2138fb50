"""``streamproc demo``: the whole path live; Python packages are all it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamproc.cli.terminal import complain, examples, line, out, paint, say

if TYPE_CHECKING:
    from streamproc.demo.scenario import DemoOutcome

app = typer.Typer()

NEXT_STEPS = (
    ("streamproc scan YOURFILE.jsonl", "run the same engine over your own agents' turns"),
    ("streamproc explain LOOP003", "read what a detector sees, and how to tune it"),
    ("make test", "run every test against a real Apache Kafka"),
    ("docker compose up", "start Kafka, Redis and two workers"),
)
PAGE_STEPS = (
    "Fleet: demo/flaky-test gets stuck again and again; open a halted run to read why.",
    "Charts: a bar leads to its runs or decisions.",
    "What if: try another policy on these runs.",
    "To halt an agent from the page, use a real Kafka: docker compose up.",
)
COMMAND_WIDTH = 34  # columns
CODE_WIDTH = 11  # columns

Speed = Annotated[float, typer.Option(min=0.5, max=200, help="Turns per second of each agent.")]

Page = Annotated[
    bool,
    typer.Option("--page", help="Open the page on the demo's fleet, with agents that go on until you press Ctrl-C."),
]


@app.command(epilog=examples("streamproc demo", "streamproc demo --page", "streamproc demo --turns-per-second 3"))
def demo(turns_per_second: Speed = 10.0, page: Page = False) -> None:
    """Replay recorded agents live, halt those that are stuck, and explain each halt.

    Everything runs on this machine, without Kafka, and ends by itself.

    Exit 0: every run was halted or left alone as expected; 1: at least one was not; 2: the demo cannot run.
    """
    from streamproc.demo.display import display_for
    from streamproc.demo.scenario import run_demo

    try:
        outcome = run_demo(display_for(out()), 1 / turns_per_second, _show_with_page if page else None)
    except KeyboardInterrupt:
        outcome = None
    if outcome is None:
        line("stopped, together with the embedded broker and the worker")
        raise typer.Exit(130)
    if not page:
        _show(outcome)
    surprises = outcome.surprises()
    for surprise in surprises:
        complain(surprise)
    if surprises:
        raise typer.Exit(1)
    line("")
    line("What to do next:")
    for command, purpose in NEXT_STEPS:
        say(f"  {command:<{COMMAND_WIDTH}}{purpose}", hang=COMMAND_WIDTH + 2)


def _show(outcome: DemoOutcome) -> None:
    from streamproc.demo.summary import sentences

    line("")
    for run in outcome.runs:
        if run.halt is not None:
            code = paint(f"{run.halt.code:<{CODE_WIDTH}}", "red")
            say(f"{code}{run.run_id}, halted at turn {run.halted_at} of {run.total}", hang=CODE_WIDTH)
            say(f"{'':{CODE_WIDTH}}{run.halt.message}", hang=CODE_WIDTH)
    line("")
    for text in sentences(outcome):
        say(text)


def _show_with_page(outcome: DemoOutcome, address: str) -> None:
    _show(outcome)
    line("")
    line(f"The page stays open: {address}")
    for text in PAGE_STEPS:
        say(f"  {text}", hang=2)
    line("Ctrl-C ends the page, the agents, the worker and the embedded broker.")
