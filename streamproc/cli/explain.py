"""``streamproc explain CODE``: the page of a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamproc.cli.options import Policy
from streamproc.cli.terminal import examples, fail, say
from streamproc.errors import shown

if TYPE_CHECKING:
    from streamproc.policy.plugin_detector import PluginDetector

app = typer.Typer()

SUMMARY_COLUMN = 33  # where the summaries of the list begin

CodeArgument = Annotated[
    str | None, typer.Argument(help="Code or name of a detector. Without it, list all.", show_default=False)
]


@app.command(epilog=examples("streamproc explain LOOP002", "streamproc explain repeated_call", "streamproc explain"))
def explain(code: CodeArgument = None, policy: Policy = None) -> None:
    """Explain what a detector sees, why, its false alarms and its tuning, with examples.

    Plug-ins are those of the policy.
    """
    from difflib import get_close_matches

    from streamproc.cli.detector_page import plain, read_page, read_plugin_page
    from streamproc.detectors import BY_CODE
    from streamproc.fleet.code_pages import PAGES

    if code is None:
        for page in (read_page(BY_CODE[known], played=False) for known in sorted(BY_CODE)):
            _list(page.code, page.name, page.summary)
        for text in PAGES.values():
            known, _, rest = text.partition("\n")[0].partition(" ")
            name, _, summary = rest.partition(": ")
            _list(known, name, summary.rstrip("."))
        for plugin in _plugins(policy).values():
            page = read_plugin_page(plugin)
            _list(page.code, page.name, page.summary.rstrip("."))
        return
    if "/" in code:
        plugins = _plugins(policy)
        if code not in plugins:
            raise fail(f"no plug-in {code} in the policy; there are: {', '.join(plugins) or 'none'}")
        for one in plain(read_plugin_page(plugins[code])):
            say(one.text, one.hang, prose=one.prose)
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
        close = [names.get(one, one) for one in get_close_matches(wanted, [*BY_CODE, *PAGES], n=3)]
        close += [names[one] for one in get_close_matches(code.lower(), names, n=1)]
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise fail(f"no detector is called {shown(code)}: {meant}`streamproc explain` lists all codes")
    for one in plain(read_page(BY_CODE[wanted])):
        say(one.text, one.hang, prose=one.prose)


def _plugins(policy: str | None) -> dict[str, PluginDetector]:
    """Return the plug-ins of a policy by code. Raises `InvalidPolicy`."""
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    return {plugin.code: plugin for plugin in load_policy(load_settings(policy=policy).policy).plugins}


def _list(code: str, name: str, summary: str) -> None:
    say(f"{code:<11} {name:<20} {summary}", hang=SUMMARY_COLUMN)
