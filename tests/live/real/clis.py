"""The coding CLIs of `make live`: how each is installed, set up in an empty home, and started without a person."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.live.real.scenarios import PROMPT



@dataclass(frozen=True, slots=True)
class RealCli:
    """A CLI. `events` are those that someone else's hook is on, beside ours; `ran` those of a call that has ended, and
    `ended` the one of a turn that has. `go_on` is what a hook prints there to send the agent on."""

    name: str
    settings: str  # below the home
    events: tuple[str, ...]
    ran: tuple[str, ...]
    ended: str
    go_on: Mapping[str, str]
    transcripts: str
    command: Callable[[str], Sequence[str]]
    resume: Callable[[str, str], Sequence[str]]
    variables: Callable[[str], Mapping[str, str]]
    set_up: Callable[[Path, str], None]
    more: Mapping[str, Any]  # of its settings


def _claude(more: Sequence[str] = ()) -> Sequence[str]:
    return ("claude", "-p", PROMPT, "--allowedTools", "Bash", "--max-turns", "60", "--output-format", "json", *more)


def _codex(address: str, more: Sequence[str]) -> Sequence[str]:
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust")
    url = f'model_providers.fake.base_url="{address}/v1"'
    return ("codex", "exec", *options, "-c", url, *more, PROMPT)


def _gemini(more: Sequence[str] = ()) -> Sequence[str]:
    return ("gemini", "--yolo", "-m", "gemini-2.5-flash", *more, "-p", PROMPT)


def _nothing(_home: Path, _address: str) -> None:
    pass


def _set_up_codex(home: Path, address: str) -> None:
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    (home / ".codex" / "config.toml").write_text(
        'model_provider = "fake"\nmodel = "gpt-5"\n\n[model_providers.fake]\nname = "fake"\n'
        f'base_url = "{address}/v1"\nwire_api = "responses"\nenv_key = "FAKE_KEY"\n'
    )


CLIS: Final = {
    one.name: one for one in (
        RealCli(
            "claude", ".claude/settings.json",
            ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch",
             "SubagentStop", "Stop", "SessionEnd"),
            ("PostToolUse", "PostToolUseFailure"), "Stop", {"decision": "block", "reason": "Go on."},
            ".claude/projects/*/*.jsonl",
            lambda address: _claude(),
            lambda address, session: _claude(("--resume", session)),
            lambda address: {
                "ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            _nothing, {"permissions": {"allow": ["Bash(cat:*)"]}, "includeCoAuthoredBy": False},
        ),
        RealCli(
            "codex", ".codex/hooks.json",
            ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStop", "Stop"),
            ("PostToolUse",), "Stop", {"decision": "block", "reason": "Go on."},
            ".codex/sessions/**/rollout-*.jsonl",
            lambda address: _codex(address, ()),
            lambda address, session: _codex(address, ("resume", session)),
            lambda address: {"FAKE_KEY": "x"},
            _set_up_codex, {},
        ),
        RealCli(
            "gemini", ".gemini/settings.json",
            ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"),
            ("AfterTool",), "AfterAgent", {"decision": "deny", "reason": "Go on."},
            ".gemini/tmp/*/chats/session-*.json*",
            lambda address: _gemini(),
            lambda address, session: _gemini(("--resume", session)),
            lambda address: {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": address},
            _nothing,
            {"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}},
        ),
    )
}  # fmt: skip


def odd_settings(cli: RealCli, hooks: Mapping[str, str]) -> str:
    """Return settings with other people's hooks, by event, in a form that no program writes."""
    groups = {
        event: [{"matcher": "*", "hooks": [{"type": "command", "command": command}]}]
        for event, command in hooks.items()
    }  # fmt: skip
    one_line = json.dumps(groups, ensure_ascii=False).replace("}, {", "},\n\t\t {").replace('": [', '" :  [')
    first = "".join(f'\t{json.dumps(name)}:{json.dumps(value)} ,\n\n' for name, value in cli.more.items())
    return f'{{\n{first}\t"hooks"  : {one_line}\n   }}'
