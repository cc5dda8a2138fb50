"""``streamproc explain CODE``: the page of a detector."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from streamproc.cli.completion import complete_codes
from streamproc.cli.options import Json, Policy, Quiet
from streamproc.cli.terminal import examples, fail, json_row, say
from streamproc.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamproc.cli.detector_page import PageLine
    from streamproc.policy.plugin_detector import PluginDetector

app = typer.Typer()

SUMMARY_COLUMN = 33  # where the summaries of the list begin

CodeArgument = Annotated[
    str | None, typer.Argument(help="Code or name of a detector. Without it, list all.", autocompletion=complete_codes)
]


@app.command(epilog=examples("streamproc explain LOOP002", "streamproc explain repeated_call", "streamproc explain"))
def explain(code: CodeArgument = None, policy: Policy = None, as_json: Json = False, _quiet: Quiet = False) -> None:
    """Explain what a detector sees, why, its false alarms and its tuning, with examples.

    Plug-ins are those of the policy.
    """
    from streamproc.cli.detector_page import plain, read_page, read_plugin_page
    from streamproc.detectors import BY_CODE
    from streamproc.fleet.code_pages import PAGES
    from streamproc.model.printed import DetectorSummary

    show = _show_json if as_json else _show_text
    fleet = {text.partition(" ")[0]: _fleet_page(text) for text in PAGES.values()}
    if code is None:
        own = (read_page(BY_CODE[known], played=False) for known in sorted(BY_CODE))
        others = (read_plugin_page(plugin) for plugin in _plugins(policy).values())
        rows = [(page.code, page.name, page.summary) for page in own]
        rows += [page[:3] for page in fleet.values()]
        rows += [(page.code, page.name, page.summary) for page in others]
        for known, name, summary in rows:
            if as_json:
                json_row(DetectorSummary(code=known, name=name, summary=summary.rstrip(".")))
            else:
                say(f"{known:<11} {name:<20} {summary.rstrip('.')}", hang=SUMMARY_COLUMN)
        return
    names = {module.DETECTOR.name: known for known, module in BY_CODE.items()}
    wanted = names.get(code.lower(), code.upper())
    if "/" in code:
        plugins = _plugins(policy)
        if code not in plugins:
            raise fail(f"no plug-in {code} in the policy; there are: {', '.join(plugins) or 'none'}")
        page = read_plugin_page(plugins[code])
        show(page.code, page.name, page.summary, plain(page))
    elif wanted in fleet:
        show(*fleet[wanted])
    elif wanted in BY_CODE:
        page = read_page(BY_CODE[wanted])
        show(page.code, page.name, page.summary, plain(page))
    else:
        close = [names.get(one, one) for one in get_close_matches(wanted, [*BY_CODE, *PAGES], n=3)]
        close += [names[one] for one in get_close_matches(code.lower(), names, n=1)]
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise fail(f"no detector is called {shown(code)}: {meant}`streamproc explain` lists all codes")


def _fleet_page(text: str) -> tuple[str, str, str, list[PageLine]]:
    """Return code, name, summary and lines of a page that belongs to no detector."""
    from streamproc.cli.detector_page import PageLine

    head, *paragraphs = text.rstrip().split("\n\n")
    code, _, rest = head.partition(" ")
    name, _, summary = rest.partition(": ")
    lines = [PageLine(head)]
    for paragraph in paragraphs:
        lines += [PageLine(""), PageLine(paragraph, prose=True)]
    return code, name, summary, lines


def _show_text(_code: str, _name: str, _summary: str, lines: Iterable[PageLine]) -> None:
    for one in lines:
        say(one.text, one.hang, prose=one.prose)


def _show_json(code: str, name: str, summary: str, lines: Iterable[PageLine]) -> None:
    from streamproc.model.printed import DetectorSummary

    json_row(DetectorSummary(code=code, name=name, summary=summary, text="\n".join(one.text for one in lines)))


def _plugins(policy: str | None) -> dict[str, PluginDetector]:
    """Return the plug-ins of a policy by code. Raises `InvalidPolicy`."""
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    return {plugin.code: plugin for plugin in load_policy(load_settings(policy=policy).policy).plugins}
