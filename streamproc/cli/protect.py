"""``streamproc protect``: stop coding CLIs on this machine when they are stuck."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from streamproc.cli.options import Json, Quiet
from streamproc.cli.terminal import clean, complain, examples, fail, json_line, line, note, say
from streamproc.errors import StreamprocError, Unavailable, plural

if TYPE_CHECKING:
    from pathlib import Path

    from streamproc.live.hook_settings import Cli
    from streamproc.live.places import LivePlaces
    from streamproc.live.week import Week
    from streamproc.policy import Policy
    from streamproc.replay.scan import Spent

app = typer.Typer(
    name="protect", no_args_is_help=True, help="Stop coding CLIs on this machine when they are stuck, by their hooks."
)

STOPPED: Final = 75  # the exit code of `protect run` for a session that was stopped
CODEX_TRUST: Final = (
    "Codex runs hooks only after you have trusted them: start `codex`, enter /hooks, and trust those of streamproc. "
    "For an unattended `codex exec`, add --dangerously-bypass-hook-trust."
)
WEEK_S: Final = 7 * 86_400
STOPS_SHOWN: Final = 10

Scope = Annotated[
    Literal["user", "project", "managed"],
    typer.Option(help="Whose settings: yours, those of this directory's project, or those for all users (as root)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Remove = Annotated[bool, typer.Option("--remove", help="Take our hooks out again, and nothing else.")]
Observe = Annotated[
    bool, typer.Option("--observe/--enforce", help="Only record what would be stopped, or stop it (the default).")
]


@app.command(epilog=examples("streamproc protect claude", "streamproc protect claude --remove"))
def claude(scope: Scope = "user", dry_run: DryRun = False, remove: Remove = False, observe: Observe = False) -> None:
    """Protect Claude Code: a session that is stuck ends, and says why. Your next prompt resumes it."""
    _change(["claude"], scope, dry_run=dry_run, remove=remove, observe=observe)


@app.command(epilog=examples("streamproc protect codex", "streamproc protect codex --dry-run"))
def codex(scope: Scope = "user", dry_run: DryRun = False, remove: Remove = False, observe: Observe = False) -> None:
    """Protect Codex: calls of a session that is stuck are denied, then it is interrupted."""
    _change(["codex"], scope, dry_run=dry_run, remove=remove, observe=observe)


@app.command(epilog=examples("streamproc protect gemini"))
def gemini(scope: Scope = "user", dry_run: DryRun = False, remove: Remove = False, observe: Observe = False) -> None:
    """Protect Gemini CLI: a session that is stuck ends, and says why."""
    _change(["gemini"], scope, dry_run=dry_run, remove=remove, observe=observe)


@app.command("all", epilog=examples("streamproc protect all", "streamproc protect all --remove"))
def every(scope: Scope = "user", dry_run: DryRun = False, remove: Remove = False, observe: Observe = False) -> None:
    """Protect every coding CLI that is installed on this machine."""
    from streamproc.live.hook_settings import CLIS

    found = [cli.name for cli in CLIS.values() if remove or _is_present(cli, scope)]
    if not found:
        raise fail("found neither claude, codex nor gemini on this machine: name the one to protect", 1)
    _change(found, scope, dry_run=dry_run, remove=remove, observe=observe)


@app.command(epilog=examples("streamproc protect status"))
def status(as_json: Json = False, _quiet: Quiet = False) -> None:
    """Show which CLIs are protected, which sessions were heard of, and what is in doubt.

    Exit 0: all installed CLIs are protected; 1: something is in doubt.
    """
    from streamproc.live.hook_settings import CLIS
    from streamproc.live.places import places
    from streamproc.live.week import week

    where = places()
    try:
        sessions: list[dict[str, Any]] = _sessions(where)
        running = True
    except Unavailable:
        sessions, running = [], False
    rows = [_row(cli, sessions) for cli in CLIS.values()]
    faults, found = _faults(where), week(where.log, int((time.time() - WEEK_S) * 1000), _policy(where))
    in_doubt = any(row["doubts"] for row in rows)
    if as_json:
        import json

        told = {"running": running, "observe": where.observes, "clis": rows, "faults": faults}
        json_line(json.dumps(told | {"week": _week(found)}))
    else:
        line("streamproc up is running" if running else "streamproc up is not running: the next session starts it")
        if where.observes:
            line("observing: sessions are recorded, and none is stopped")
        for row in rows:
            _show(row)
        _show_week(found, observes=where.observes)
        if faults:
            line(f"{len(faults)} steps were not protected in the last 7 days; the last: {clean(faults[-1])}")
    raise typer.Exit(1 if in_doubt else 0)


def _policy(where: LivePlaces) -> Policy:
    """Return the policy of `streamproc up`, whose prices count."""
    import os

    from streamproc.live.process import settings_of
    from streamproc.policy import load_policy

    settings = settings_of(where, {})
    return load_policy((settings.policy if settings else os.environ.get("STREAMPROC_POLICY")) or "standard")


def _week(found: Week) -> dict[str, Any]:
    """Return what is printed as JSON; the money is in micro-USD, 0 without prices."""
    stops = [
        {"run_id": one.run_id, "code": one.code, "turn": one.turn, "at_ms": one.at_ms, "after": one.after._asdict()}
        for one in found.stops
    ]
    return {"runs": found.runs, "halted": found.stopped, "after": found.after._asdict(), "stops": stops}


def _show_week(found: Week, *, observes: bool) -> None:
    from streamproc.model.formats import clock, money, short

    def spent(one: Spent) -> str:
        parts = [plural(one.turns, "turn"), f"{short(one.tokens)} tokens" if one.tokens else ""]
        return ", ".join(filter(None, [money(one.cost_usd_micro) if one.cost_usd_micro else "", *parts]))

    if not found.runs:
        return
    how = "would have been stopped" if observes else "were stopped"
    saved = f", which would have saved {spent(found.after)}" if observes and found.after.turns else ""
    line(f"in the last 7 days: {plural(found.runs, 'run')}, of which {found.stopped} {how}{saved}")
    for stop in found.stops[-STOPS_SHOWN:]:
        after = f"; {spent(stop.after)} after it" if stop.after.turns else ""
        at = "" if stop.turn is None else f" at turn {stop.turn}"
        line(f"  {clock(stop.at_ms)}  {clean(stop.run_id)}{at} ({stop.code}){after}")
    if len(found.stops) > STOPS_SHOWN:
        line(f"  and {len(found.stops) - STOPS_SHOWN} before: --json has all")
    if observes and found.after.tokens and not found.after.cost_usd_micro:
        say("  The policy has no prices of models: with them, this says what it costs.", hang=2)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog=examples("streamproc protect run -- claude -p 'fix the tests'", "streamproc protect run -- codex exec …"),
)
def run(context: typer.Context) -> None:
    """Run an unattended session of a protected CLI, and say by the exit code whether it was stopped.

    Exit 75: it was stopped because it was stuck; else the exit code of the CLI.
    """
    import os
    import secrets
    import subprocess

    from streamproc.live import client
    from streamproc.live.places import places

    if not context.args:
        raise fail("name the command to run, after --")
    tag = secrets.token_hex(8)
    try:
        code = subprocess.run(context.args, env=os.environ | {"STREAMPROC_PROTECT_TAG": tag}, check=False).returncode
    except OSError as error:
        raise fail(f"{clean(context.args[0])}: cannot be run ({error.strerror})", 127) from None
    code = code if code >= 0 else 128 - code  # ended by a signal, as a shell tells it
    try:
        found = client.get(places().socket, f"/v1/sessions?tag={tag}")
    except Unavailable as error:
        complain(f"was this session protected? {error}")
        raise typer.Exit(code) from None
    if not found["sessions"]:
        note("no hook of this session was heard of: see `streamproc protect status`")
    stopped = next((one["halt"] for one in found["sessions"] if one["halt"] is not None), None)
    if stopped is not None:
        note(f"{stopped['code']}: {clean(stopped['message'])}")
    raise typer.Exit(STOPPED if stopped is not None and not found["observe"] else code)


def _change(names: list[str], scope: str, *, dry_run: bool, remove: bool, observe: bool) -> None:
    from streamproc.live.hook_settings import CLIS
    from streamproc.live.places import machine, places

    for_all = scope == "managed"
    where = machine() if for_all else places()
    try:
        if not for_all:
            where.make()
        elif not dry_run:
            where.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        failures = [_failure(CLIS[name], scope, where, dry_run=dry_run, remove=remove) for name in names]
        if not (dry_run or remove or None not in failures):
            importlib.import_module("streamproc.live.process")  # compiled now, it starts in time for the first hook
            if observe:
                where.observing.touch(mode=0o644)
                line("observing: sessions are recorded, and none is stopped")
            else:
                where.observing.unlink(missing_ok=True)
    except PermissionError as error:
        remedy = "run it as root, or roll out what --dry-run shows"
        raise fail(f"{error.filename}: cannot be written ({error.strerror}): {remedy}") from None
    for failure in filter(None, failures):
        raise failure


def _failure(cli: Cli, scope: str, where: LivePlaces, **how: bool) -> typer.Exit | None:
    """Change the settings of a CLI, and return how to exit if that failed: the others are changed all the same."""
    try:
        _change_one(cli, scope, where, **how)
    except StreamprocError as error:
        return fail(str(error))
    except typer.Exit as error:
        return error
    return None


def _change_one(cli: Cli, scope: str, where: LivePlaces, *, dry_run: bool, remove: bool) -> None:
    """Add our hooks to the settings of a CLI, or take them out."""
    from streamproc.live import hook_settings

    path, for_all = cli.settings(scope), scope == "managed"
    before = hook_settings.read(path)
    backup = where.folder / f"{cli.name}-{_digest(path)}.before"
    try:
        if remove:
            kept = backup.read_bytes().decode() if backup.exists() else None
            after = hook_settings.removed(before, kept) if before is not None else None
            if after is not None and kept is None and "".join(after.split()) == "{}":
                after = None  # we have made it
        else:
            own = (where.socket, where.folder)
            command = hook_settings.managed_command(cli.name) if for_all else hook_settings.hook_command(cli.name, *own)
            after = hook_settings.installed(before or "", cli, command)
    except (ValueError, RecursionError) as error:
        raise fail(f"{path}: cannot be changed, it is not as expected ({error}): correct it, or move it away") from None
    if dry_run:
        _show_difference(path, before or "", after or "")
        return
    if after == before:
        line(f"{cli.name}: {path} is as it should be")
    elif after is None:
        path.unlink(missing_ok=True)
    else:
        if not remove and before is not None and not hook_settings.commands(before):
            backup.write_bytes(before.encode())
            backup.chmod(0o600)
        hook_settings.write(path, after, for_all=for_all)
    if after != before:
        line(f"{cli.name}: {'removed our hooks from' if remove else 'added our hooks to'} {path}")
    if remove:
        backup.unlink(missing_ok=True)
    elif cli.name == "codex" and not for_all:
        say(CODEX_TRUST)


def _show_difference(path: Path, before: str, after: str) -> None:
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), f"{path} (with the change)", lineterm=""
    )
    for one in lines:
        line(clean(one))


def _row(cli: Cli, sessions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is known of a CLI."""
    from pathlib import Path

    from streamproc.live import hook_settings

    program, doubts = _program(cli), list[str]()
    for scope in ("managed", "user"):  # one of them is enough
        path, managed, found = cli.settings(scope), scope == "managed", dict[str, str]()
        try:
            found = hook_settings.commands(hook_settings.read(path) or "{}")
        except (StreamprocError, ValueError, RecursionError) as error:
            doubts.append(f"{path} cannot be read ({error})")
        if found:
            break
    again = f"streamproc protect {cli.name}{' --scope managed' * managed}"
    missing = [event for event in cli.events if event not in found]
    if found and missing:
        doubts.append(f"no hook for {', '.join(missing)}: run `{again}` again")
    if found and not managed and (off := hook_settings.turned_off(cli)):
        doubts.append(f"{off} turns off all hooks (disableAllHooks): remove that, or this project is not protected")
    own = [one for one in sessions if one["cli"] == cli.name]
    if found:
        import shlex

        gone = {part for command in found.values() for part in shlex.split(command)[:4:3] if not Path(part).exists()}
        doubts += [f"{one} is gone: run `{again}` again" for one in sorted(gone)]
        if cli.name == "codex" and not own and not managed:
            doubts.append(CODEX_TRUST)
    elif program:
        doubts.append(f"is not protected: run `streamproc protect {cli.name}`")
    return {
        "cli": cli.name, "program": program, "settings": str(path), "managed": managed,
        "protected": bool(found) and not missing, "sessions": own, "doubts": doubts,
    }  # fmt: skip


def _show(row: dict[str, Any]) -> None:
    state = "protected" if row["protected"] else "not protected" if row["program"] else "not installed"
    heard = max((one["heard_ms"] for one in row["sessions"]), default=0)
    parts = [f"{row['cli']}: {state}"]
    if heard:
        stopped = sum(one["halt"] is not None for one in row["sessions"])
        parts.append(f"{len(row['sessions'])} sessions, {stopped} stopped")
        parts.append(f"last heard of {max(0, round(time.time() - heard / 1000))} s ago")
    line(", ".join(parts))
    for doubt in row["doubts"]:
        say(f"  {clean(doubt)}", hang=2)


def _sessions(where: LivePlaces) -> list[dict[str, Any]]:
    from streamproc.live import client

    found: list[dict[str, Any]] = client.get(where.socket, "/v1/sessions")["sessions"]
    return found


def _faults(where: LivePlaces) -> list[str]:
    """Return the steps that were not protected in the last 7 days, oldest first."""
    from datetime import datetime

    try:
        lines = where.faults.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for one in lines[-1_000:]:
        try:
            at_s = datetime.fromisoformat(one.split(" ", 1)[0]).timestamp()
        except ValueError:
            continue
        if time.time() - at_s < WEEK_S:
            found.append(one)
    return found


def _program(cli: Cli) -> str:
    import shutil

    return shutil.which(cli.name) or ""


def _is_present(cli: Cli, scope: str) -> bool:
    return bool(_program(cli)) or cli.settings(scope).parent.is_dir()


def _digest(path: Path) -> str:
    import zlib

    return f"{zlib.crc32(str(path).encode()):08x}"
