"""The settings of coding CLIs: where they are, and our hooks in them. All else in these files keeps its bytes."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streamproc.errors import InvalidSettings
from streamproc.live.json_text import JsonPart, JsonText

HOOK_FILE: Final = Path(__file__).with_name("hook.py")
MARK: Final = "streamproc/live/hook.py"
MANAGED_SOCKET: Final = (
    "~/.local/share/streamproc/up.sock", "~/Library/Application Support/streamproc/up.sock",
)  # fmt: skip
HOOKS: Final = "hooks"  # the member of the settings that has them
BYTES_MAX: Final = 10_000_000  # of a settings file
MANAGED_ROOT = Path("/")  # above the settings of an organisation; tests have others


@dataclass(frozen=True, slots=True)
class Cli:
    """A coding CLI: its settings below the user's home or a project, those of an organisation on Linux and on macOS,
    and the events whose hooks we answer. `timeout` is how long it waits for a hook, in its own unit."""

    name: str
    file: str
    managed: tuple[str, str]
    home_variable: str
    events: tuple[str, ...]
    timeout: int

    def settings(self, scope: str) -> Path:
        """Return its settings file."""
        if scope == "project":
            return Path.cwd() / self.file
        if scope == "managed":
            return MANAGED_ROOT / self.managed[sys.platform == "darwin"]
        own = os.environ.get(self.home_variable, "")
        return Path(own) / Path(self.file).name if own else Path.home() / self.file


CLIS: Final = {
    one.name: one for one in (
        Cli("claude", ".claude/settings.json", (
            "etc/claude-code/managed-settings.json", "Library/Application Support/ClaudeCode/managed-settings.json",
        ), "CLAUDE_CONFIG_DIR", (
            "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUseFailure", "PostToolBatch", "SubagentStart",
            "SubagentStop", "Stop", "SessionEnd",
        ), 5),
        Cli("codex", ".codex/hooks.json", ("etc/codex/hooks.json", "etc/codex/hooks.json"), "CODEX_HOME", (
            "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStop", "Stop", "SessionEnd",
        ), 5),
        Cli("gemini", ".gemini/settings.json", (
            "etc/gemini-cli/settings.json", "Library/Application Support/GeminiCli/settings.json",
        ), "", (
            "SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd",
        ), 5_000),
    )
}  # fmt: skip


def hook_command(cli: str, socket: Path, folder: Path | None = None) -> str:
    """Return the command of our hooks. `folder` is that of the files, if not the socket's. Raises `InvalidSettings` if
    this installation may be gone tomorrow."""
    python = sys.executable
    if any(part in python for part in ("/uv/archive-", "/.cache/uv/", "/environments-v")):
        raise InvalidSettings(
            f"{python} is in a cache that may be emptied, and hooks would be gone with it: "
            "install streamproc first, for instance with `uv tool install streamproc`"
        )
    elsewhere = [] if folder in (None, socket.parent) else [str(folder)]
    return shlex.join([python, "-I", "-S", str(HOOK_FILE), cli, str(socket), *elsewhere])


def managed_command(cli: str) -> str:
    """Return the command of hooks that are installed for all users, each of whom has a socket of their own. Raises
    `InvalidSettings` if they may not run this installation."""
    for path in (Path(sys.executable), Path(sys.executable).resolve(), HOOK_FILE):
        closed = [one for one in (path, *path.parents) if one.stat().st_mode & 0o005 != 0o005 and one.is_dir()]
        if closed or not path.stat().st_mode & 0o004:
            raise InvalidSettings(
                f"{closed[0] if closed else path} is closed to other users, and hooks for all of them would be gone: "
                "install streamproc where they can run it, for instance in a venv in /opt"
            )
    return hook_command(cli, Path(MANAGED_SOCKET[sys.platform == "darwin"]))


def installed(text: str, cli: Cli, command: str) -> str:
    """Return the settings with our hooks, for which others of ours make room. Raises `ValueError` for a text that is no
    JSON object."""
    if text.strip() and commands(text) == dict.fromkeys(cli.events, command):
        return text
    document = JsonText(removed(text) if text.strip() else "{\n}")
    if document.text[document.root] != "{":
        raise ValueError("it is no JSON object")
    if document.member(document.root, HOOKS) is None:
        document = document.added(document.root, HOOKS, {})
    for event in cli.events:
        hook = {"type": "command", "command": command, "timeout": cli.timeout}
        group = {"hooks": [hook]}
        hooks = _hooks(document)
        found = document.member(hooks, event)
        if found is None:
            document = document.added(hooks, event, [group])
        elif document.text[found.value] == "[":
            document = document.added(found.value, "", group)
        else:
            raise ValueError(f"hooks.{event} is no list")
    return document.text


def removed(text: str, before: str | None = None) -> str:
    """Return the settings without our hooks. Lists that are empty then go, too, but for those that the settings had
    `before` our hooks came; if only white space differs from these, they are returned."""
    kept = set[str]()
    if before is not None and before.strip():
        former = JsonText(before)
        kept = {event.name for event in _lists(former)}
        kept |= {HOOKS} if former.member(former.root, HOOKS) is not None else set()
    found = _without(text, kept) if text.strip() else text
    same = before is not None and "".join(found.split()) == ("".join(before.split()) or "{}")
    return before if before is not None and same else found


def commands(text: str) -> dict[str, str]:
    """Return the commands of our hooks in the settings, by event."""
    document = JsonText(text if text.strip() else "{}")
    found = {}
    for event in _lists(document):
        for group in document.parts(event.value):
            if _is_ours(document.value(group)):
                found[event.name] = document.value(group)["hooks"][0]["command"]
    return found


def turned_off(cli: Cli) -> str:
    """Return the settings, of the user or of this directory's project, that turn all hooks off; empty if none do."""
    project = Path.cwd() / cli.file
    for path in (cli.settings("user"), project, project.with_name("settings.local.json")):
        try:
            document = JsonText(read(path) or "{}")
            found = document.member(document.root, "disableAllHooks") if document.text[document.root] == "{" else None
        except (InvalidSettings, ValueError, RecursionError):
            continue
        if found is not None and document.value(found) is True:
            return str(path)
    return ""


def read(path: Path) -> str | None:
    """Return the text of a settings file; None if there is none. Raises `InvalidSettings`."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise InvalidSettings(f"{path}: is larger than any settings file")
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path}: cannot be read ({error})") from None


def write(path: Path, text: str, *, for_all: bool = False) -> None:
    """Replace a settings file as a whole, so that no reader sees half of it; a link stays a link. A new one is for this
    user, or `for_all` to read. Raises `InvalidSettings`."""
    target = path.resolve()
    beside: str | None = None
    try:
        target.parent.mkdir(mode=0o755 if for_all else 0o777, parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644 if for_all else 0o600
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(13, "it is read-only")
        number, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # no link waits at that name
        with os.fdopen(number, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(beside).chmod(mode)
        Path(beside).replace(target)
    except OSError as error:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)
        remedy = ": run it as root, or roll out what --dry-run shows" if for_all else ""
        raise InvalidSettings(f"{path}: cannot be written ({error.strerror or error}){remedy}") from None


def _without(text: str, kept: set[str]) -> str:
    document, ours = JsonText(text), 0
    while (place := _place_of_ours(document)) is not None:
        event, group = place
        ours += 1
        if len(document.parts(event.value)) == 1 and event.name not in kept:
            document = document.without(_hooks(document), event)
        else:
            document = document.without(event.value, group)
    if ours and HOOKS not in kept and not document.parts(_hooks(document)):
        document = document.without(document.root, _part_of_hooks(document))
    return document.text


def _place_of_ours(document: JsonText) -> tuple[JsonPart, JsonPart] | None:
    """Return a list of hooks that has one of ours, and the group with it."""
    for event in _lists(document):
        for group in document.parts(event.value):
            if _is_ours(document.value(group)):
                return event, group
    return None


def _hooks(document: JsonText) -> int:
    """Return where the object with the hooks starts. Raises `ValueError` if it is none."""
    return _part_of_hooks(document).value


def _part_of_hooks(document: JsonText) -> JsonPart:
    found = document.member(document.root, HOOKS)
    if found is None or document.text[found.value] != "{":
        raise ValueError("hooks is no JSON object")
    return found


def _lists(document: JsonText) -> list[JsonPart]:
    """Return the lists of hooks, by event."""
    if document.text[document.root] != "{" or document.member(document.root, HOOKS) is None:
        return []
    return [part for part in document.parts(_hooks(document)) if document.text[part.value] == "["]


def _is_ours(group: Any) -> bool:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list) or len(hooks) != 1 or not isinstance(hooks[0], dict):
        return False
    return MARK in str(hooks[0].get("command"))
