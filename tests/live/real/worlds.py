"""An empty home for one or more sessions: settings with someone else's hooks, `streamproc protect`, and what is found
afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from streamproc.live import client
from streamproc.live.places import LivePlaces
from tests.live.real.clis import RealCli, odd_settings
from tests.live.real.packages import ROOT
from tests.live.real.scenarios import FILES
from tests.waiting import wait_until

SESSION_TIMEOUT_S: Final = 90
COMMAND_TIMEOUT_S: Final = 60

# Someone else's hook: it keeps what it is told, a line for each event. With a second file, it sends the agent on, as
# often as that file has lines.
OTHER: Final = """#!/bin/sh
trap '' INT TERM HUP
event=$(cat)
printf '%s\\n' "$event" >> "$1"
if [ -s "$2" ]; then
    sed -i.before 1d "$2"
    cat "$3"
fi
"""


class Failure(Exception):
    """Something is not as expected."""


@dataclass(frozen=True, slots=True)
class Done:
    """A session that has ended."""

    code: int
    output: str
    ms: int


@dataclass(slots=True)
class World:
    """A home with its settings. `programs` is the folder of the CLIs."""

    folder: Path
    programs: Path
    before: dict[str, bytes] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The home of the user."""
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """Where sessions work."""
        return self.folder / "work"

    @property
    def places(self) -> LivePlaces:
        """The files of this user's `streamproc up`."""
        return LivePlaces(self.folder / "data")

    def environ(self) -> dict[str, str]:
        """Return the environment of all that runs here."""
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "STREAMPROC_CORE") if name in os.environ}
        path = os.pathsep.join((str(self.programs), os.environ.get("PATH", "")))
        return kept | {
            "PATH": path, "HOME": str(self.home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1",
            "STREAMPROC_HOME": str(self.places.folder),
        }  # fmt: skip

    def set_up(self, cli: RealCli, address: str, *, sends_on: int = 0) -> None:
        """Write the settings of a CLI, with someone else's hook on every event that we use."""
        self.work.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (self.work / name).write_text(text)
        other = self.folder / "hook of another.sh"
        other.write_text(OTHER)
        other.chmod(0o700)
        (self.folder / "go-on.json").write_text(json.dumps(cli.go_on))
        (self.folder / "go-on").write_text("again\n" * sends_on)
        told = [str(other), str(self._told(cli))]
        hooks = dict.fromkeys(cli.events, shlex.join(told))
        hooks[cli.ended] = shlex.join([*told, str(self.folder / "go-on"), str(self.folder / "go-on.json")])
        settings = self.home / cli.settings
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(odd_settings(cli, hooks), encoding="utf-8")
        self.before[cli.name] = settings.read_bytes()
        cli.set_up(self.home, address)

    def streamproc(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        """Run a command of ours, and return what it prints. Raises `Failure` for another exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "streamproc", *arguments], cwd=self.work, env=self.environ(), capture_output=True,
            text=True, check=False, timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode not in codes:
            raise Failure(f"streamproc {' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def session(self, command: Sequence[str], variables: Mapping[str, str]) -> Done:
        """Run a session, through `streamproc protect run`."""
        began = time.monotonic()
        run = [sys.executable, "-m", "streamproc", "protect", "run", "--", *command]
        with subprocess.Popen(
            run, cwd=self.work, env=self.environ() | dict(variables), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=SESSION_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise Failure(f"{command[0]} ran for more than {SESSION_TIMEOUT_S} s") from None
        (self.folder / f"output-{command[0]}.txt").write_text(output)
        return Done(process.returncode, output, round(1000 * (time.monotonic() - began)))

    def status(self, cli: RealCli) -> dict[str, Any]:
        """Return what `protect status` says of a CLI."""
        rows = json.loads(self.streamproc("protect", "status", "--json", codes=(0, 1)))["clis"]
        return next(row for row in rows if row["cli"] == cli.name)

    def told(self, cli: RealCli) -> list[dict[str, Any]]:
        """Return the events that someone else's hook was told."""
        try:
            lines = self._told(cli).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.strip()]

    def ran(self, cli: RealCli) -> int:
        """Return how many calls have ended, as someone else's hook was told."""
        kinds = Counter(event["hook_event_name"] for event in self.told(cli))
        return sum(kinds[name] for name in cli.ran)

    def transcripts(self, cli: RealCli) -> list[Path]:
        """Return the transcripts of all sessions here."""
        return sorted(self.home.glob(cli.transcripts))

    def sessions(self, cli: RealCli) -> list[dict[str, Any]]:
        """Return what `streamproc up` knows of the sessions of a CLI."""
        found = client.get(self.places.socket, "/v1/sessions")["sessions"]
        return [one for one in found if one["cli"] == cli.name]

    def decisions(self, run_id: str) -> list[dict[str, Any]]:
        """Return the decisions on a run."""
        found: list[dict[str, Any]] = client.get(self.places.socket, f"/v1/runs/{run_id}")["decisions"]
        return found

    def faults(self) -> list[str]:
        """Return the steps that were not protected."""
        try:
            return self.places.faults.read_text().splitlines()
        except FileNotFoundError:
            return []

    def check_removal(self, cli: RealCli) -> None:
        """Take our hooks out. Raises `Failure` if the settings are not those of before."""
        self.streamproc("protect", cli.name, "--remove")
        if (self.home / cli.settings).read_bytes() != self.before[cli.name]:
            raise Failure(f"protect {cli.name} --remove leaves other settings than there were")

    def kill_up(self) -> None:
        """Kill this user's `streamproc up`, and wait until it is gone."""
        with self.places.lock.open("a") as file:
            wait_until(lambda: self._is_taken(file, signal.SIGKILL), what="the end of streamproc up")

    def end_up(self) -> None:
        """Stop this user's `streamproc up`, and be in its place until this process ends: a hook that comes late would
        start another one."""
        file = os.fdopen(os.open(self.places.lock, os.O_WRONLY | os.O_CREAT), "w", closefd=False)
        wait_until(lambda: self._is_taken(file, signal.SIGTERM), what="the end of streamproc up")

    def _is_taken(self, file: IO[str], signum: signal.Signals) -> bool:
        """Take the place of the process, or end the one that has it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(ProcessLookupError, ValueError):  # it has ended, or has not said yet who it is
                os.kill(int(self.places.lock.read_text()), signum)
            return False
        return True

    def _told(self, cli: RealCli) -> Path:
        return self.folder / f"told-{cli.name}.jsonl"


@contextmanager
def world(folder: Path, programs: Path) -> Iterator[World]:
    """Make a home that is empty; in the end, no `streamproc up` of it runs."""
    made = World(folder, programs)
    made.home.mkdir(parents=True)
    made.places.make()
    try:
        yield made
    finally:
        made.end_up()
