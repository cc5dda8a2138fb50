"""Addresses that lead people from one place to another: the page of a run, and its trace."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

UNQUOTABLE: Final = (".", "..")  # browsers take these out of a path, quoted or not
TRACE_ID: Final = "{trace_id}"  # in the template of a trace's address


def run_path(run_id: str, ending: str = "", **query: str) -> str:
    """Return the path of a run's page, or of what is below it, such as `report.html`."""
    text = quote(run_id, safe="", errors="replace")
    if run_id in UNQUOTABLE:
        return f"/run/{ending}?{urlencode({'id': run_id} | query)}"
    return f"/runs/{text}{f'/{ending}' if ending else ''}{f'?{urlencode(query)}' if query else ''}"


def trace_address(template: str, trace_id: str) -> str:
    """Return the address of a trace; empty without a template or a trace."""
    return template.replace(TRACE_ID, trace_id) if template and trace_id else ""
