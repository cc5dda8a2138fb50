"""Draw docs/images/tui.svg and tui_run.svg: `streamproc watch --tui` on the recorded runs that `streamproc demo` plays.

    .venv/bin/python docs/tui_picture.py

The runs are fed to the engine up to different points, as if they were at work at noon of one day.
"""
# ruff: noqa: INP001

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from aiokafka import ConsumerRecord

from streamproc import Monitor
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import RecordSigner
from streamproc.fleet.watching import Watching, watching_of
from streamproc.fleet.workers import Workers
from streamproc.model.log_time import rfc3339
from streamproc.policy import load_policy
from streamproc.read_model.model import ReadModel
from streamproc.replay.source import open_logs
from streamproc.report import Recording
from streamproc.report.building import ReportBuilder
from streamproc.report.model import RunReport
from streamproc.samples import trajectory_file
from streamproc.settings import load_settings
from streamproc.tui.app import TURNS_SHOWN, FleetApp
from streamproc.tui.host import TerminalCommands
from streamproc.tui.run_list import RunList

IMAGES: Final = Path(__file__).with_name("images")
NOON_MS: Final = 1_767_268_800_000  # 2026-01-01T12:00:00Z
SIZE: Final = (132, 40)
OPENED: Final = "kimi_k2.5/reshard-c4-data__Tyfvm3F"
USD_PER_TOKEN: Final = 0.000_002
WORKFLOWS: Final = ("nightly", "triage", "release")
USERS: Final = ("ada", "grace", "linus")
AFTER_HALT: Final = 2  # turns that a run still takes until its guard has cancelled it
EVERY_MS: Final = 9_000  # between two turns of a run
FONT: Final = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # a picture in a page cannot load any


class PictureApp(FleetApp):
    """The application at noon."""

    def now_ms(self) -> int:
        """Return noon."""
        return NOON_MS


class Played:
    """A read model that is caught up with the recorded runs, as a feed without news."""

    def __init__(self) -> None:
        self.model = ReadModel()
        self.caught_up, self.progress, self.trouble = True, 1.0, None
        self.silent_since_ms: int | None = None
        self.missing: tuple[str, ...] = ()
        self._workers = Workers(RecordSigner(Keyring(), "streamproc", required=False))
        self._offsets: defaultdict[str, int] = defaultdict(int)
        self._played: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._monitor = Monitor()
        for number, events in enumerate(recorded().values()):
            self._play(number, events)
        self.model.caught_up = True

    def subscribe(self) -> Played:
        """Return itself: there are no news."""
        return self

    def watching(self) -> Watching:
        """Know of no worker, which is no alarm."""
        return watching_of(self._workers, 0.0, lag_warn_s=1)

    async def changed(self) -> set[str]:
        """Wait for ever."""
        await asyncio.Event().wait()
        return set()

    def _play(self, number: int, events: list[dict[str, Any]]) -> None:
        """Feed the first part of a run; the last event is some seconds before noon."""
        run_id, halted = events[0]["run_id"], -1
        end = max(4, len(events) * (number % 5 + 3) // 7)
        for place, event in enumerate(events[:end]):
            if halted >= 0 and place > halted + AFTER_HALT:
                break
            at_ms = NOON_MS - 700 * (number * number % 97 + 2) - EVERY_MS * (end - place)
            raw = event | {"at": rfc3339(at_ms)}
            self._played[run_id].append(raw)
            self._write("turns", run_id, json.dumps(raw), at_ms)
            for control in self._monitor.feed(raw):
                self._write("control", run_id, control.model_dump_json(exclude_none=True), at_ms + 11)
                halted = place if control.halts and halted < 0 else halted
        status = self._monitor.status(run_id)
        if status is not None:
            self._write("runs", run_id, status.model_dump_json(exclude_none=True), at_ms + 12)

    async def report(self, run_id: str) -> RunReport | None:
        """Return the report of a run."""
        recording = Recording(load_policy(), only=run_id)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "turns.jsonl"
            path.write_text("".join(json.dumps(event) + "\n" for event in self._played[run_id]), encoding="utf-8")
            sources, _ = open_logs([str(path)])
            for _ in recording.read(sources):
                pass
        return ReportBuilder(recording).run(recording.histories[run_id], TURNS_SHOWN)

    def _write(self, role: str, run_id: str, value: str, at_ms: int) -> None:
        offset = self._offsets[role]
        self._offsets[role] += 1
        key, content = run_id.encode(), value.encode()
        record = ConsumerRecord(f"streamproc.{role}", 0, offset, at_ms, 1, key, content, None, 0, 0, ())
        self.model.apply(role, [record])


def recorded() -> dict[str, list[dict[str, Any]]]:
    """Return the events of the recorded runs, with a start that has a scope."""
    runs: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    with trajectory_file() as path, gzip.open(path, "rt", encoding="utf-8") as lines:
        for event in map(json.loads, lines):
            runs[event["run_id"]].append(event)
    for number, (run_id, events) in enumerate(runs.items()):
        scope = {"workflow": WORKFLOWS[number % 3], "user": USERS[number % 3], "tenant": "acme"}
        for event in events:
            tokens = sum((event.get("usage") or {}).get(name, 0) for name in ("input_tokens", "output_tokens"))
            event["usage"] = (event.get("usage") or {}) | {"cost_usd": round((tokens or 4_000) * USD_PER_TOKEN, 4)}
        events.insert(0, {"type": "run.started", "run_id": run_id, **scope, "budgets": {"maxSteps": 60}})
    return runs


async def drawn() -> dict[str, str]:
    """Return the pictures by name, as SVG."""
    played = Played()
    commands = TerminalCommands(load_settings(brokers="kafka-1:9092", command_key="ops:" + "0" * 32), "ada")
    app = PictureApp(played.model, played, commands, played.report, place="streamproc on kafka-1:9092")
    pictures = {}
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        pictures["tui"] = picture(app)
        app.screen.query_one(RunList).choose(OPENED)
        await pilot.press("enter")
        while not app.screen.query_one("#repeats").display:
            await pilot.pause(0.05)
        await pilot.pause(0.2)
        pictures["tui_run"] = picture(app)
    return pictures


def picture(app: FleetApp) -> str:
    """Return the screen as SVG that loads nothing."""
    return FONT.sub("", app.export_screenshot(title="streamproc watch --tui"))


def main() -> None:
    """Draw the pictures."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name, text in asyncio.run(drawn()).items():
        path = IMAGES / f"{name}.svg"
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path} ({path.stat().st_size} bytes)\n")


if __name__ == "__main__":
    main()
