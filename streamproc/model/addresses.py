"""Addresses: of the page of a run and of its trace, for people; of brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from streamproc.errors import InvalidSettings, shown

LOCAL: Final = "local:"  # before the file of a `streamproc up`, in place of brokers
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


def local_log(brokers: str) -> Path | None:
    """Return the log of a `streamproc up` that stands in for brokers, as ``local:FILE``; None: these are brokers."""
    return Path(brokers.removeprefix(LOCAL)) if brokers.startswith(LOCAL) else None


def need_kafka(brokers: str) -> None:
    """Raise `InvalidSettings` for the log of a `streamproc up`."""
    if local_log(brokers) is not None:
        raise InvalidSettings(
            f"brokers: {shown(brokers)} is the log of `streamproc up`, and this needs Kafka: name brokers as HOST:PORT "
            "(or send turns to `streamproc up` by HTTP)"
        )


def check_brokers(value: str) -> None:
    """Check a list of brokers, each HOST or HOST:PORT, or ``local:FILE``. Raises `ValueError`."""
    if local_log(value) is not None:
        return
    named = [server for server in value.split(",") if server.strip()]
    for server in named or [value]:
        host, colon, port = server.strip().rpartition(":")
        if colon and not host.endswith("]") and ":" in host:
            continue  # an IPv6 address without a port
        if not (host if colon else port) or (colon and not (port.isascii() and port.isdigit())):
            example = "name at least one HOST:PORT, such as localhost:9092"
            raise ValueError(f"{shown(server)} is no address of a broker: {example}, here or with --brokers")
