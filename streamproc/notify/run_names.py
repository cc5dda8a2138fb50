"""The names of a run in the URL of a destination: which are allowed, where, and how they are filled in."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from streamproc.kafka.log_limit import LogLimit

if TYPE_CHECKING:
    from streamproc.model.notification import Notice

NAMES: Final = ("user", "tenant", "workflow")
PLACE: Final = re.compile(r"\{([^{}]*)\}")
ADDRESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,253}")  # one address: no comma, slash or space

limited = LogLimit(logging.getLogger(__name__))


def address_problem(url: str) -> str:
    """Return what is wrong with the names in a URL; nothing if it is right or has none."""
    unknown = [name for name in PLACE.findall(url) if name not in NAMES]
    if unknown:
        return f"{{{unknown[0]}}} is not known (available: {', '.join(f'{{{name}}}' for name in NAMES)})"
    scheme, _, rest = url.partition("://")
    if PLACE.search(scheme + re.split("[/?#]", rest, maxsplit=1)[0]):
        return "names a run's user, tenant or workflow before its path, where publishers would choose the host"
    return ""


def address_of(url: str, notice: Notice) -> str | None:
    """Return a URL with the names of a notification's run; None if the run lacks one, or it is no address."""
    values = {name: getattr(notice, name) for name in PLACE.findall(url)}
    for name, value in values.items():
        if not ADDRESS.fullmatch(value):
            if value:
                limited(logging.WARNING, name, "no notification to the %s of run=%s: no address", name, notice.run_id)
            return None
    return PLACE.sub(lambda place: quote(values[place[1]], safe=""), url)
