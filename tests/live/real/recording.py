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
WORK: Final = "/work/app"
UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIMED: Final = {"timestamp": "2026-01-01T00:00:00.000Z", "duration_ms": 10}


def record(folder: Path, versions: Mapping[str, str], here: World, cli: RealCli, scenario: str) -> None:
    """Keep the events of a session that has ended."""
    ids: dict[str, str] = {}
    lines = []
    for event in here.told(cli)[:EVENTS_MAX]:
        text = json.dumps({**event, **{name: value for name, value in TIMED.items() if name in event}})
        text = text.replace(str(here.home), HOME).replace(str(here.work), WORK)
        text = text.replace(_slug(here.work), _slug(Path(WORK)))
        for found in UUID.findall(text):
            ids.setdefault(found, f"{cli.name}-{scenario}" if not ids else f"{cli.name}-{scenario}-id-{len(ids)}")
        lines.append(UUID.sub(lambda found: ids[found[0]], text))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{cli.name}-{versions[cli.name]}-{scenario}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _slug(path: Path) -> str:
    """Return how Claude Code names the folder of a project."""
    return re.sub(r"[^a-zA-Z0-9]", "-", str(path))
