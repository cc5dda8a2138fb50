"""``streamproc explain CODE``: a detector's page."""

from __future__ import annotations

from typing import Annotated

import typer

from streamproc.cli.terminal import examples, fail, line

app = typer.Typer()

CodeArgument = Annotated[
    str | None, typer.Argument(help="A detector's code or name; without it, all are listed.", show_default=False)
]


@app.command(epilog=examples("streamproc explain LOOP002", "streamproc explain repeated_call", "streamproc explain"))
def explain(code: CodeArgument = None) -> None:
    """Say what a detector sees, why, when it is wrong and how to tune it, with examples that fire and that do not."""
    from streamproc.cli.detector_page import plain, read_page
    from streamproc.detectors import BY_CODE
    from streamproc.fleet.code_pages import PAGES

    if code is None:
        for page in (read_page(BY_CODE[known], played=False) for known in sorted(BY_CODE)):
            line(f"{page.code:<11} {page.name:<20} {page.summary}")
        for text in PAGES.values():
            known, _, rest = text.partition("\n")[0].partition(" ")
            name, _, summary = rest.partition(": ")
            line(f"{known:<11} {name:<20} {summary.rstrip('.')}")
        return
    names = {module.DETECTOR.name: known for known, module in BY_CODE.items()}
    wanted = names.get(code.lower(), code.upper())
    if wanted in PAGES:
        line(PAGES[wanted].rstrip())
        return
    if wanted not in BY_CODE:
        raise fail(f"no detector {code}; there are: {', '.join(sorted({*BY_CODE, *PAGES}))}")
    for text in plain(read_page(BY_CODE[wanted])):
        line(text)
