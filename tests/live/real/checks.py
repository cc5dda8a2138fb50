"""The checks of `make live`: each plays one or more sessions, and returns what was expected and what was seen."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.live.real.clis import CODEX_TRUST, RealCli
from tests.live.real.fake_model import FakeModel
from tests.live.real.scenarios import ALL, DELEGATES, STUCK, STUCK_MAX, Play
from tests.live.real.worlds import Done, Failure, World, world

STOPPED: Final = 75
OBSERVED_CALLS: Final = 8  # of a stuck session that is only observed
KILLED_BEFORE: Final = 1  # how many results the model has when `streamproc up` is killed


class Halt(NamedTuple):
    """Where a run was halted."""

    code: str
    turn: int

    def __str__(self) -> str:
        return f"{self.code} at turn {self.turn}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check has found. It has failed if this is not what was expected."""

    expected: str
    seen: str
    ms: int

    @property
    def failed(self) -> bool:
        """Whether it is another thing than expected."""
        return self.expected != self.seen


@dataclass(frozen=True, slots=True)
class Stage:
    """Where sessions are played: the model, the folder with the CLIs, and an empty one for homes. `kept` is called
    with each world when its session has ended."""

    model: FakeModel
    programs: Path
    folder: Path
    kept: Callable[[World, RealCli, str], None] = lambda *_: None

    @contextmanager
    def world(self, name: str) -> Iterator[World]:
        """Make an empty home."""
        with world(self.folder / name, self.programs) as made:
            yield made

    def address(self, name: str, play: Play) -> str:
        """Let the model play a scenario, and return where."""
        self.model.plays[name] = play
        return f"{self.model.address}/{name}"


def scenario(stage: Stage, cli: RealCli, name: str) -> Seen:
    """Play a scenario under protection: what is stuck ends at the call where a scan of its transcript says."""
    place = f"{cli.name}-{name}"
    with stage.world(place) as here:
        address = stage.address(place, Play(name, here.work))
        here.set_up(cli, address, sends_on=STUCK_MAX if name == "says" else 0)
        here.streamproc("protect", cli.name)
        done = here.session(cli.command(address), cli.variables(address))
        ended = _outcome(here, cli, done)
        stage.kept(here, cli, name)
        own_transcript = cli.keeps_results or name not in STUCK or name == "says"
        scanned = _scanned(here, cli) if own_transcript else _scanned_when_observed(stage, cli, name)
        if not here.told(cli):
            raise Failure("someone else's hook has not run")
        if missed := _missed(here, cli):
            raise Failure(f"{missed} calls were not protected, the last: {here.faults()[-1]}")
        here.check_removal(cli)
    if name in STUCK and scanned is None:
        raise Failure(f"a scan of the transcript finds no halt; live: {ended}")
    calls = scanned.turn + 1 if scanned is not None and name != "says" else here.ran(cli)
    expected = outcome(0 if scanned is None else STOPPED, scanned, calls)
    return Seen(expected, ended, done.ms)


def outcome(code: int, halt: Halt | None, calls: int) -> str:
    """Return how a session has ended, as the table shows it."""
    return f"exit {code}, {halt or 'no halt'}, {calls} calls"


def _outcome(here: World, cli: RealCli, done: Done) -> str:
    """Return how the last session of a CLI has ended."""
    sessions = here.sessions(cli)
    if not sessions:
        raise Failure(f"no hook was heard of; exit {done.code}: {done.output[-300:]}")
    return outcome(done.code, _halt(here.decisions(sessions[-1]["session_id"])), here.ran(cli))


def _halt(decisions: Sequence[Mapping[str, Any]]) -> Halt | None:
    found = (one for one in decisions if one["severity"] == "halt" and one["type"] != "notification")
    return next((Halt(one["code"], one["trigger"]["turn"]) for one in found), None)


def _scanned(here: World, cli: RealCli) -> Halt | None:
    """Return where a scan of the session's transcript halts it."""
    files = list(map(str, here.transcripts(cli)))
    if not files:
        raise Failure("the CLI has kept no transcript")
    lines = here.streamproc("scan", "--json", "--quiet", *files, codes=(0, 1)).splitlines()
    return _halt([json.loads(line) for line in lines])


def _scanned_when_observed(stage: Stage, cli: RealCli, name: str) -> Halt | None:
    """Return where a scan halts the same session when it is only observed, of a CLI that puts the reason of the halt
    in the place of the last result."""
    place = f"{cli.name}-{name}-observed"
    with stage.world(place) as here:
        address = stage.address(place, Play(name, here.work, calls_max=OBSERVED_CALLS))
        here.set_up(cli, address)
        here.streamproc("protect", cli.name, "--observe")
        here.session(cli.command(address), cli.variables(address))
        return _scanned(here, cli)


def settings(stage: Stage, cli: RealCli) -> Seen:
    """Protect a CLI twice, look at the status, and take it back."""
    place = f"{cli.name}-settings"
    with stage.world(place) as here:
        here.set_up(cli, stage.model.address)
        path = here.home / cli.settings
        found = []
        for command in ((), ("protect", cli.name, "--dry-run"), ("protect", cli.name), ("protect", cli.name)):
            if command:
                here.streamproc(*command)
            status = here.status(cli)
            same = path.read_bytes() == here.before[cli.name]
            doubt = any("is not protected" in one for one in status["doubts"])
            found.append(f"{'protected' if status['protected'] else 'open'}{'' if same else ' changed'}{' ?' * doubt}")
        here.check_removal(cli)
        found.append("protected" if here.status(cli)["protected"] else "open")
    return Seen("open ?, open ?, protected changed, protected changed, open", ", ".join(found), 0)


def killed(stage: Stage, cli: RealCli) -> Seen:
    """Kill `streamproc up` in the middle of a session: the next hook starts it, and it knows what was before."""
    place = f"{cli.name}-killed"
    with stage.world(place) as here:
        once = threading.Event()

        def kill(done: int) -> None:
            if done == KILLED_BEFORE and not once.is_set():
                once.set()
                here.kill_up()

        address = stage.address(place, Play("loops", here.work, before=kill))
        here.set_up(cli, address)
        here.streamproc("protect", cli.name)
        done = here.session(cli.command(address), cli.variables(address))
        seen = _outcome(here, cli, done)
        missed = _missed(here, cli)
        here.check_removal(cli)
    if not once.is_set():
        raise Failure("streamproc up was not killed")
    return Seen(outcome(STOPPED, Halt("LOOP003", 2), 3 + missed), seen, done.ms)


def observed(stage: Stage, cli: RealCli) -> Seen:
    """Only observe a stuck session: it goes on, and its halt is recorded."""
    place = f"{cli.name}-observed"
    with stage.world(place) as here:
        address = stage.address(place, Play("loops", here.work, calls_max=OBSERVED_CALLS))
        here.set_up(cli, address)
        here.streamproc("protect", cli.name, "--observe")
        done = here.session(cli.command(address), cli.variables(address))
        seen = _outcome(here, cli, done)
        if here.sessions(cli)[-1]["halt"] is None:
            raise Failure("the halt is not recorded with the session")
        here.check_removal(cli)
    return Seen(outcome(0, Halt("LOOP003", 2), OBSERVED_CALLS), seen, done.ms)


def resumed(stage: Stage, cli: RealCli) -> Seen:
    """Resume a session that was halted: with the next prompt it goes on, and is halted when it is stuck again."""
    place = f"{cli.name}-resumed"
    with stage.world(place) as here:
        ways = ("loops", "honest", "loops")
        found, ms = [], 0
        for number, way in enumerate(ways):
            address = stage.address(f"{place}-{number}", Play(way, here.work))
            if number == 0:
                here.set_up(cli, address)
                here.streamproc("protect", cli.name)
                command = cli.command(address)
            else:
                command = cli.resume(address, here.sessions(cli)[-1]["session_id"])
            before = here.ran(cli)
            done = here.session(command, cli.variables(address))
            found.append(f"exit {done.code} after {here.ran(cli) - before} calls")
            ms += done.ms
        sessions = len(here.sessions(cli))
        here.check_removal(cli)
    expected = "exit 75 after 3 calls, exit 0 after 6 calls, exit 75 after 3 calls; 1 session"
    return Seen(expected, f"{', '.join(found)}; {sessions} session{'s' * (sessions > 1)}", ms)


def delegates(stage: Stage, cli: RealCli) -> Seen:
    """Let a session start a sub-agent that is stuck: it is stopped, where a scan of both transcripts says, and the
    session goes on to its end. Hooks of Gemini CLI do not tell whose calls they are: the session is stopped."""
    place = f"{cli.name}-{DELEGATES}"
    with stage.world(place) as here:
        address = stage.address(place, Play(DELEGATES, here.work))
        here.set_up(cli, address)
        here.streamproc("protect", cli.name)
        done = here.session(cli.command(address), cli.variables(address))
        if not cli.tells_agents:
            seen = _outcome(here, cli, done)
            here.check_removal(cli)
            return Seen(outcome(STOPPED, Halt("LOOP003", 2), 4), seen, done.ms)
        [session] = here.sessions(cli)
        helper = _only_helper(here, session["session_id"])
        live = [(one["code"], one["trigger"]["turn"]) for one in here.decisions(helper)]
        helpers = here.home.glob(cli.helpers) if cli.helpers else ()
        files = map(str, (*here.transcripts(cli), *helpers))
        lines = here.streamproc("scan", "--json", "--quiet", *files, codes=(0, 1)).splitlines()
        names = {helper, helper.rpartition("/")[2]}  # Codex keeps a transcript of its own for each
        scanned = [(one["code"], one["trigger"]["turn"]) for one in map(json.loads, lines) if one["run_id"] in names]
        same = "as a scan says" if scanned == live else "not as a scan says"
        own = _halt(here.decisions(session["session_id"])) or "the session ends"
        seen = f"exit {done.code}, {_halt(here.decisions(helper))} of the sub-agent, {same}; {own}"
        here.check_removal(cli)
    expected = f"exit {STOPPED}, {Halt('LOOP003', 2)} of the sub-agent, as a scan says; the session ends"
    return Seen(expected, seen, done.ms)


def _only_helper(here: World, session_id: str) -> str:
    """Return the run of the only sub-agent of a session."""
    with sqlite3.connect(f"file:{here.places.log}?mode=ro", uri=True) as log:
        rows = log.execute("SELECT run_id FROM runs WHERE run_id LIKE ? || '/%'", (session_id,)).fetchall()
    if len(rows) != 1:
        raise Failure(f"{len(rows)} sub-agents are in the log")
    return str(rows[0][0])


def compacted(stage: Stage, cli: RealCli) -> Seen:
    """Compact the context of a session, and let it be stuck afterwards: both are in the log."""
    place = f"{cli.name}-compacted"
    with stage.world(place) as here:
        address = stage.address(place, Play("honest", here.work))
        here.set_up(cli, address)
        here.streamproc("protect", cli.name)
        done = [here.session(cli.command(address), cli.variables(address))]
        session = here.sessions(cli)[-1]["session_id"]
        address = stage.address(f"{place}-only", Play("loops", here.work, calls_max=0))
        done.append(here.session(cli.compact(address, session), cli.variables(address)))
        address = stage.address(f"{place}-again", Play("loops", here.work))
        done.append(here.session(cli.resume(address, session), cli.variables(address)))
        count = sum(event["type"] == "context.compacted" for event in _turns(here, session))
        here.check_removal(cli)
    seen = f"exits {[one.code for one in done]}, compacted {count} time"
    return Seen(f"exits {[0, 0, STOPPED]}, compacted 1 time", seen, sum(one.ms for one in done))


def untrusted(stage: Stage, cli: RealCli) -> Seen:
    """Run a CLI that was not told to trust our hooks: it does not run them, and `protect run` says so."""
    place = f"{cli.name}-untrusted"
    with stage.world(place) as here:
        address = stage.address(place, Play("loops", here.work, calls_max=OBSERVED_CALLS))
        here.set_up(cli, address)
        here.streamproc("protect", cli.name)
        done = here.session([part for part in cli.command(address) if part != CODEX_TRUST], cli.variables(address))
        doubts = here.status(cli)["doubts"]
        said = "no hook of this session was heard of" in done.output or "was this session protected?" in done.output
        here.check_removal(cli)
    in_doubt = any("trusted" in doubt for doubt in doubts)
    heard = f"{len(here.told(cli))} events heard"
    seen = f"exit {done.code}, {heard}, {'said' if said else 'not said'}, {'in doubt' if in_doubt else 'not in doubt'}"
    return Seen("exit 0, 0 events heard, said, in doubt", seen, done.ms)


def together(stage: Stage, clis: Sequence[RealCli]) -> Seen:
    """Run sessions of several CLIs of one user at once, an honest one among them."""
    ways = dict(zip((cli.name for cli in clis), ("loops", "honest", "loops"), strict=False))
    with stage.world("together") as here:
        addresses = {name: stage.address(f"together-{name}", Play(way, here.work)) for name, way in ways.items()}
        for cli in clis:
            here.set_up(cli, addresses[cli.name])
        here.streamproc("protect", "all")
        done: dict[str, Done] = {}

        def run(cli: RealCli) -> None:
            address = addresses[cli.name]
            done[cli.name] = here.session(cli.command(address), cli.variables(address))

        threads = [threading.Thread(target=run, args=(cli,)) for cli in clis]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen = [f"{cli.name} {_outcome(here, cli, done[cli.name])}" for cli in clis if cli.name in done]
        here.streamproc("protect", "status")  # all are protected, and were heard of
        for cli in clis:
            here.check_removal(cli)
    ends = {"loops": outcome(STOPPED, Halt("LOOP003", 2), 3), "honest": outcome(0, None, 6)}
    expected = "; ".join(f"{name} {ends[way]}" for name, way in ways.items())
    return Seen(expected, "; ".join(seen), max(one.ms for one in done.values()))


CHECKS: Final[Mapping[str, Callable[[Stage, RealCli], Seen]]] = {
    "settings": settings,
    **{name: lambda stage, cli, name=name: scenario(stage, cli, name) for name in ALL},  # type: ignore[misc]
    "killed": killed,
    "observed": observed,
    "resumed": resumed,
    "delegates": delegates,
    "compacted": compacted,
    "untrusted": untrusted,
}
ONLY_FOR: Final[Mapping[str, Sequence[str]]] = {
    "untrusted": ("codex",), "compacted": ("claude", "codex"),
}  # fmt: skip


def _missed(here: World, cli: RealCli) -> int:
    """Return how many calls are not in the log. Raises `Failure` if that was not noted."""
    known = [one for session in here.sessions(cli) for one in _turns(here, session["session_id"]) if one.get("calls")]
    missed = here.ran(cli) - len(known)
    if missed and not here.faults():
        raise Failure(f"{missed} calls are not in the log, and unprotected.log has no line")
    return missed


def _turns(here: World, run_id: str) -> list[dict[str, Any]]:
    """Return the events of a run as they are in the log."""
    with sqlite3.connect(f"file:{here.places.log}?mode=ro", uri=True) as log:
        rows = log.execute("SELECT value FROM records WHERE run_id = ? AND role = 'turns'", (run_id,)).fetchall()
    return [json.loads(value) for (value,) in rows]
