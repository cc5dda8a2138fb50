"""``streamproc schema``: JSON Schemas of inputs and outputs, from the models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamproc.cli.terminal import complain, examples, fail, line

app = typer.Typer(name="schema", no_args_is_help=True, help="Write JSON Schemas of inputs and outputs.")


@app.callback()
def _group() -> None:
    """Write JSON Schemas of inputs and outputs."""


@app.command(epilog=examples("streamproc schema export", "streamproc schema export --check"))
def export(
    directory: Annotated[Path, typer.Argument(help="Where the schemas are.")] = Path("schemas"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 where files and models differ.")
    ] = False,
) -> None:
    """Write the schemas of everything that goes in and comes out, or check those that are there."""
    from streamproc.model import schemas

    try:
        if check:
            problems = list(schemas.check(directory))
            changed: list[Path] = []
        else:
            changed = schemas.export(directory)
            problems = []
    except OSError as error:
        raise fail(f"{directory}: {error.strerror or error}. Give a directory that can be read and written") from None
    for problem in problems:
        line(problem)
    if problems:
        complain("the schemas have drifted from the models: run `streamproc schema export` and look at the change")
        raise typer.Exit(1)
    for path in changed:
        line(f"wrote {path}")
    if not changed:
        line(f"{len(schemas.KINDS)} schemas in {directory} agree with the models")
