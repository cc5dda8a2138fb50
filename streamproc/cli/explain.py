"""``streamproc explain CODE``: the page of a detector."""

from __future__ import annotations

from typing import Annotated

import typer

from streamproc.cli.terminal import examples, fail, say

app = typer.Typer()

SUMMARY_COLUMN = 33  # where the summaries of the list begin

CodeArgument = Annotated[
    str | None, typer.Argument(help="Code or name of a detector. Without it, list all.", show_default=False)
]


@app.command(epilog=examples("streamproc explain LOOP002", "streamproc explain repeated_call", "streamproc explain"))
def explain(code: CodeArgument = None) -> None:
    """Explain what a detector sees, why, its false alarms and its tuning, with examples."""
    from streamproc.cli.detector_page import plain, read_page
    from streamproc.detectors import BY_CODE
    from streamproc.fleet.code_pages import PAGES

    if code is None:
        for page in (read_page(BY_CODE[known], played=False) for known in sorted(BY_CODE)):
            _list(page.code, page.name, page.summary)
        for text in PAGES.values():
            known, _, rest = text.partition("\n")[0].partition(" ")
            name, _, summary = rest.partition(": ")
            _list(known, name, summary.rstrip("."))
        return
    names = {module.DETECTOR.name: known for known, module in BY_CODE.items()}
    wanted = names.get(code.lower(), code.upper())
    if wanted in PAGES:
        head, *paragraphs = PAGES[wanted].rstrip().split("\n\n")
        say(head)
        for paragraph in paragraphs:
            say("")
            say(paragraph, prose=True)
        return
    if wanted not in BY_CODE:
        raise fail(f"no detector {code}; the codes are {', '.join(sorted({*BY_CODE, *PAGES}))}")
    for one in plain(read_page(BY_CODE[wanted])):
        say(one.text, one.hang, prose=one.prose)


def _list(code: str, name: str, summary: str) -> None:
    say(f"{code:<11} {name:<20} {summary}", hang=SUMMARY_COLUMN)
