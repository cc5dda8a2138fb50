"""The coding CLIs of `make live`: how each is installed, set up in an empty home, and started without a person."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.live.real.scenarios import PROMPT

CODEX_TRUST: Final = "--dangerously-bypass-hook-trust"  # without it, hooks run only when a person has trusted them

CODEX_COMPACTS: Final = "model_auto_compact_token_limit=12"  # fewer tokens than one answer of the model counts


def _nothing(_home: Path, _address: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCli:
    """A CLI. `events` are those that someone else's hook is on, beside ours; `ran` those of a call that has ended, and
    `ended` the one of a turn that has. `go_on` is what a hook prints there to send the agent on."""

    name: str
    settings: str  # below the home
    events: tuple[str, ...]
    ran: tuple[str, ...]
    ended: str
    go_on: Mapping[str, str]
    transcripts: str  # below the home
    command: Callable[[str], Sequence[str]]  # of the address of the model
    resume: Callable[[str, str], Sequence[str]]  # of that and the session
    variables: Callable[[str], Mapping[str, str]]
    set_up: Callable[[Path, str], None] = _nothing
    more: Mapping[str, Any] = field(default_factory=dict)  # of its settings
    helpers: str = ""  # transcripts of sub-agents, below the home
    compact: Callable[[str, str], Sequence[str]] = lambda *_: ()  # of the address of the model and the session
    tells_agents: bool = True  # whether hooks tell the calls of a sub-agent from those of its session
    keeps_results: bool = True  # whether the transcript has the last result, where a session is stopped


def _claude(more: Sequence[str] = ()) -> Sequence[str]:
    return ("claude", "-p", PROMPT, "--allowedTools", "Bash", "--max-turns", "60", "--output-format", "json", *more)


def _codex(address: str, more: Sequence[str]) -> Sequence[str]:
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", CODEX_TRUST)
    url = f'model_providers.fake.base_url="{address}/v1"'
    return ("codex", "exec", *options, "-c", url, *more, PROMPT)


def _gemini(more: Sequence[str] = ()) -> Sequence[str]:
    return ("gemini", "--yolo", "-m", "gemini-2.5-flash", *more, "-p", PROMPT)


def _set_up_codex(home: Path, address: str) -> None:
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    (home / ".codex" / "config.toml").write_text(
        'model_provider = "fake"\nmodel = "gpt-5"\n\n[model_providers.fake]\nname = "fake"\n'
        f'base_url = "{address}/v1"\nwire_api = "responses"\nenv_key = "FAKE_KEY"\n'
    )


_CLAUDE: Final = RealCli(
    name="claude",
    settings=".claude/settings.json",
    events=(
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch",
        "SubagentStart", "SubagentStop", "Stop", "SessionEnd",
    ),
    ran=("PostToolUse", "PostToolUseFailure"),
    ended="Stop",
    go_on={"decision": "block", "reason": "Go on."},
    transcripts=".claude/projects/*/*.jsonl",
    command=lambda address: _claude(),
    resume=lambda address, session: _claude(("--resume", session)),
    helpers=".claude/projects/*/*/subagents/*.jsonl",
    compact=lambda address, session: ("claude", "-p", "/compact", "--output-format", "json", "--resume", session),
    variables=lambda address: {
        "ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "x", "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    },
    more={"permissions": {"allow": ["Bash(cat:*)"]}, "includeCoAuthoredBy": False},
)  # fmt: skip

_CODEX: Final = RealCli(
    name="codex",
    settings=".codex/hooks.json",
    events=("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStop", "Stop", "SessionEnd"),
    ran=("PostToolUse",),
    ended="Stop",
    go_on={"decision": "block", "reason": "Go on."},
    transcripts=".codex/sessions/**/rollout-*.jsonl",
    command=lambda address: _codex(address, ()),
    resume=lambda address, session: _codex(address, ("resume", session)),
    compact=lambda address, session: _codex(address, ("-c", CODEX_COMPACTS, "resume", session)),
    variables=lambda address: {"FAKE_KEY": "x"},
    set_up=_set_up_codex,
)

_GEMINI: Final = RealCli(
    name="gemini",
    settings=".gemini/settings.json",
    events=("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"),
    ran=("AfterTool",),
    ended="AfterAgent",
    go_on={"decision": "deny", "reason": "Go on."},
    transcripts=".gemini/tmp/*/chats/session-*.json*",
    command=lambda address: _gemini(),
    resume=lambda address, session: _gemini(("--resume", session)),
    variables=lambda address: {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": address},
    more={
        # Its own check ends a session at the fifth equal call, whatever the results are: a poll, too.
        "model": {"disableLoopDetection": True},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    },
    tells_agents=False,
    keeps_results=False,
)

CLIS: Final = {one.name: one for one in (_CLAUDE, _CODEX, _GEMINI)}


def odd_settings(cli: RealCli, hooks: Mapping[str, str]) -> str:
    """Return settings with other people's hooks, by event, in a form that no program writes."""
    groups = {
        event: [{"matcher": "*", "hooks": [{"type": "command", "command": command}]}]
        for event, command in hooks.items()
    }  # fmt: skip
    one_line = json.dumps(groups, ensure_ascii=False).replace("}, {", "},\n\t\t {").replace('": [', '" :  [')
    first = "".join(f"\t{json.dumps(name)}:{json.dumps(value)} ,\n\n" for name, value in cli.more.items())
    return f'{{\n{first}\t"hooks"  : {one_line}\n   }}'
