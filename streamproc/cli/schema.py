"""``streamproc schema``: JSON Schemas of inputs and outputs, generated from the models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamproc.cli.terminal import complain, examples, fail, say

app = typer.Typer(name="schema", no_args_is_help=True, help="Write JSON Schemas of inputs and outputs.")


@app.callback()
def _group() -> None:
    """Write JSON Schemas of inputs and outputs."""


@app.command(epilog=examples("streamproc schema export", "streamproc schema export --check"))
def export(
    directory: Annotated[Path, typer.Argument(help="Directory of the schemas.")] = Path("schemas"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if files and models differ.")] = False,
) -> None:
    """Write the JSON Schemas of all inputs and outputs, or check the existing files."""
    from streamproc.cli import schema_files as schemas

    try:
        if check:
            problems = list(schemas.check(directory))
            changed: list[Path] = []
        else:
            changed = schemas.export(directory)
            problems = []
    except OSError as error:
        raise fail(f"{directory}: {error.strerror or error}. Name a directory that you can read and write") from None
    for problem in problems:
        say(problem, hang=2)
    if problems:
        complain("the schemas differ from the models: run `streamproc schema export` and review the change")
        raise typer.Exit(1)
    for path in changed:
        say(f"wrote {path}")
    if not changed:
        say(f"all {len(schemas.KINDS)} schemas in {directory} match the models")
