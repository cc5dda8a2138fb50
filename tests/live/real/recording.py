"""The events of real sessions, kept for tests that need no CLI: short, and without the paths and ids of a machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.live.real.clis import RealCli
from tests.live.real.worlds import World

EVENTS_MAX: Final = 60  # of a session
HOME: Final = "/home/ann"
WORK: Final = "/srv/app"
TIMED: Final = {"timestamp": "2026-01-01T00:00:00.000Z", "duration_ms": 10}
UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NUMBER: Final = re.compile(r"(?P<kind>\b(?:call_|toolu_|PGID: ))\d+")  # ids of calls and processes
# In the names of transcripts.
SHORT_ID: Final = re.compile(r"-[0-9a-f]{8}(?=\.jsonl)")
MINUTE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d(?:-\d\d(?!\w))?")
DAY: Final = re.compile(r"/\d{4}/\d\d/\d\d/")


def record(folder: Path, versions: Mapping[str, str], here: World, cli: RealCli, scenario: str) -> None:
    """Keep the events of a session that has ended. The same session gives the same file."""
    naming = _Naming(f"{cli.name}-{scenario}")
    lines = []
    for event in here.told(cli)[:EVENTS_MAX]:
        text = json.dumps({**event, **{name: value for name, value in TIMED.items() if name in event}})
        text = text.replace(str(here.home), HOME).replace(str(here.work), WORK)
        text = text.replace(_slug(here.work), _slug(Path(WORK)))
        text = NUMBER.sub(naming.number, UUID.sub(naming.name, text))
        lines.append(DAY.sub("/2026/01/01/", MINUTE.sub("2026-01-01T00-00", SHORT_ID.sub("", text))))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{cli.name}-{versions[cli.name]}-{scenario}.jsonl").write_text("".join(f"{line}\n" for line in lines))


class _Naming:
    """Names ids in the order in which they come. The first one is that of the session."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._known: dict[str, str] = {}

    def name(self, found: re.Match[str]) -> str:
        """Return the name of a UUID."""
        return self._known.setdefault(found[0], f"{self._session}-{len(self._known)}" if self._known else self._session)

    def number(self, found: re.Match[str]) -> str:
        """Return a call or a process with a number of its own."""
        return self._known.setdefault(found[0], f"{found['kind']}{len(self._known)}")


def _slug(path: Path) -> str:
    """Return how Claude Code names the folder of a project."""
    return re.sub(r"[^a-zA-Z0-9]", "-", str(path))
