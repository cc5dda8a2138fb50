"""``streamproc demo``: the whole path live, with nothing installed but Python packages."""

from __future__ import annotations

from typing import Annotated

import typer

from streamproc.cli.terminal import complain, examples, line, out

app = typer.Typer()

NEXT = """\
What to do next:
  streamproc scan YOURFILE.jsonl          the same engine over your own agents' turns, with no broker
  streamproc explain LOOP003              what a detector sees, when it is wrong, how to tune it
  make test                               every test, on a real Apache Kafka
  docker compose up                       Kafka, Redis and two workers on this machine"""

Speed = Annotated[float, typer.Option(min=0.5, max=200, help="Turns a second of each agent.")]


@app.command(epilog=examples("streamproc demo", "streamproc demo --turns-per-second 3"))
def demo(turns_per_second: Speed = 10.0) -> None:
    """Watch recorded agents run, some of them stuck, and get halted: broker, worker and guards on this machine.

    Needs no Kafka, and ends by itself. Exit 0: everything expected happened.
    """
    from streamproc.demo.display import audience, halts_table
    from streamproc.demo.scenario import run_demo
    from streamproc.demo.summary import sentences

    console = out()
    try:
        outcome = run_demo(audience(console), 1 / turns_per_second)
    except KeyboardInterrupt:
        line("stopped; the broker and the worker are gone, too")
        raise typer.Exit(130) from None
    line("")
    console.print(halts_table([play for play in outcome.plays if play.halt is not None]))
    line("")
    for text in sentences(outcome):
        line(text)
    surprises = outcome.surprises()
    for surprise in surprises:
        complain(surprise)
    if surprises:
        raise typer.Exit(1)
    line("")
    line(NEXT)
