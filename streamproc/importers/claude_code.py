"""Session files of Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`, and those of its sub-agents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from streamproc.importers.claude_messages import (
    HARNESS,
    NOTIFICATION,
    UUID,
    ClaudeMessages,
    is_human,
    is_person,
    is_text,
    without_reminders,
)
from streamproc.importers.content import at_path, first_text, items, mapping, string, text_of
from streamproc.importers.imported import Format, Import, Imported
from streamproc.importers.log_bytes import read_beside
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.raw_turns import RecordReader, RunScope, session_scope, time_ms

NAME: Final = "claude-code"
AGENT_FILE: Final = re.compile(r"agent-(.+?)\.(?:jsonl|meta\.json)")
SUBAGENTS: Final = "subagents"  # the directory of a session's sub-agents
JOURNAL: Final = "journal.jsonl"  # of a workflow: which of its agents started and ended
PARENTS_MAX: Final = 4_096  # records whose chain is remembered, in files of versions without ids of agents

MESSAGES: Final = frozenset({"user", "assistant"})
TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle"}  # records with names, and their fields
PROGRESS: Final = "progress"
AGENT_ID: Final = re.compile(r"[\w-]{1,64}")
# Records about the session and its display, without a part in what the agents did.
ASIDE: Final = frozenset({
    "summary", "file-history-snapshot", "file-history-delta", "queue-operation", "ai-title", "custom-title",
    "last-prompt", "agent-name", "agent-color", "agent-setting", "mode", "permission-mode", "worktree-state",
    PROGRESS, "bridge-session", "frame-link", "relocated", "started", "result", "cost-state", "pr-link", "tag",
    "system", "fork-context-ref", "continued-in", "launched", "failed", "attachment", "content-replacement",
})  # fmt: skip


def matches(sample: Sample) -> bool:
    """Whether a log is a session's, or one of the small files beside those of sub-agents."""
    if is_beside(Path(sample.path)):
        return True
    return any(map(_is_of_session, sample.rows))


def is_beside(path: Path) -> bool:
    """Whether a file is not a log itself: it only names a sub-agent, or lists those of a workflow."""
    named = path.name.startswith("agent-") and path.name.endswith(".meta.json")
    return SUBAGENTS in path.parts and (named or path.name == JOURNAL)


def _is_of_session(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(kind := row.get("type"), str):
        return False
    if kind == "summary":
        return "leafUuid" in row
    if kind == "file-history-snapshot":
        return "messageId" in row
    return isinstance(row.get("sessionId"), str) and (kind in MESSAGES or kind in ASIDE)


class SessionFile(RecordReader):
    """A session file that is read: which run each record belongs to, and what kind it is."""

    name = NAME

    @classmethod
    def read(cls, log: LogFile, reading: Import) -> Iterator[Imported]:
        return iter(()) if is_beside(Path(log.path)) else super().read(log, reading)

    def __init__(self, log: LogFile, reading: Import) -> None:
        super().__init__(log, reading)
        self.messages = ClaudeMessages(self)
        self._path = Path(log.path)
        found = AGENT_FILE.match(self._path.name)
        self._agent = found[1] if found else ""
        self._session = session_of(self._path)
        self._roots: dict[str, str] = {}  # the first record of the chain of each, in sub-agents without ids
        self._files: dict[str, bool] = {}  # whether sub-agents have files of their own, by their ids
        self._nodes: dict[str, str] = {}  # of sub-agents, by run; it does not change within a run

    def record(self, data: dict[str, Any], number: int) -> None:
        kind = string(data.get("type"))
        if kind in MESSAGES:
            self._message(data, number)
        elif kind == PROGRESS:
            self._progress(data, mapping(data.get("data")), number)
        elif kind in TITLES:
            self.tally.name(self._scope(data).run_id, title=data.get(TITLES[kind]), chosen=kind == "custom-title")
        elif kind == "attachment":
            self._attachment(data, number)
        elif kind == "system" and data.get("subtype") == "api_error":
            self._api_error(data, number)
        elif kind == "system" and data.get("subtype") == "compact_boundary":
            if self.messages.is_new(data, self._place(data)):
                self.messages.compacted(self._scope(data), data, number)
        elif kind not in ASIDE:
            self.tally.ignore(data.get("type"))

    def _message(self, data: dict[str, Any], number: int) -> None:
        if not self.messages.is_unread(data, self._place(data)):
            return
        scope = self._scope(data)
        prompt = first_prompt(data)
        self.tally.name(scope.run_id, project=data.get("cwd"), prompt=prompt)
        if scope.parent_run_id:
            self.reading.asked(scope.run_id, prompt)
        if data["type"] == "assistant":
            self.messages.assistant(scope, data, number)
        else:
            self.messages.user(scope, data, number)

    def _progress(self, data: dict[str, Any], progress: dict[str, Any], number: int) -> None:
        """Take a record of a sub-agent in the session's file, unless the sub-agent has a file of its own."""
        agent, record = string(progress.get("agentId")), mapping(progress.get("message"))
        if (
            self._agent
            or record.get("type") not in MESSAGES
            or AGENT_ID.fullmatch(agent) is None
            or self._has_file(agent)
        ):
            return
        if not self.reading.agents.get(agent) and (kind := self.messages.asked_type(progress.get("prompt"))):
            self.reading.agents[agent] = kind
        context = {"sessionId": data.get("sessionId"), "timestamp": data.get("timestamp"), "isSidechain": True}
        self._message({**context, **record, "agentId": agent}, number)

    def _has_file(self, agent: str) -> bool:
        if agent not in self._files:
            beside = self._path.parent / self._path.name.partition(".")[0] / SUBAGENTS
            name = f"agent-{agent}.jsonl"
            self._files[agent] = (beside / name).is_file() or self._path.with_name(name).is_file()
        return self._files[agent]

    def _attachment(self, data: dict[str, Any], number: int) -> None:
        """Take what a person typed, and which tasks ended, while the agent was working."""
        attached = mapping(data.get("attachment"))
        mode = attached.get("commandMode", "prompt")
        if attached.get("type") != "queued_command" or mode not in ("prompt", NOTIFICATION):
            return
        scope = self._scope(data)
        if mode == NOTIFICATION and self.messages.is_new(data, self._place(data)):
            self.messages.notified(scope.run_id, text_of(attached.get("prompt")))
        if (
            mode == NOTIFICATION
            or scope.parent_run_id
            or not is_person(attached)
            or not is_human(attached.get("prompt"))
        ):
            return
        if self.messages.is_new(data, self._place(data)):
            self.buffer.user_message(scope, number, string(data.get("uuid")), time_ms(data.get("timestamp")))

    def _api_error(self, data: dict[str, Any], number: int) -> None:
        if self.messages.is_new(data, self._place(data)):
            self.messages.failure(self._scope(data), data, number, error_message(data.get("error")), "api_error")

    def _place(self, data: dict[str, Any]) -> str:
        return f"{data.get('sessionId')}/{self._agent}"

    def _scope(self, data: dict[str, Any]) -> RunScope:
        session = self._session or string(data.get("sessionId"))
        if not (self._agent or data.get("isSidechain") is True):
            return session_scope(session, "", "main")
        agent = self._agent or string(data.get("agentId")) or self._root(data)
        run = f"{session}/{agent}"
        if run not in self._nodes:
            self._nodes[run] = self._named(agent, data)
        return session_scope(session, agent, self._nodes[run])

    def _root(self, data: dict[str, Any]) -> str:
        uuid, parent = string(data.get("uuid")), string(data.get("parentUuid"))
        root = self._roots.get(parent) or parent or uuid or "sidechain"
        if uuid:
            self._roots[uuid] = root
            if len(self._roots) > PARENTS_MAX:
                del self._roots[next(iter(self._roots))]
        return root

    def _named(self, agent: str, data: dict[str, Any]) -> str:
        """Return the type of a sub-agent: as the session that started it says, or the file beside its own."""
        known = self.reading.agents.get(agent)
        if not known:
            known = self.messages.asked_type(at_path(data, "message.content")) or agent_type(self._path)
            if known:
                self.reading.agents[agent] = known
        return known or agent


def first_prompt(data: dict[str, Any]) -> str:
    """Return what a record asks for; empty if it is no prompt of a person or of the agent that started this one."""
    content = at_path(data, "message.content")
    if data.get("type") != "user" or not (is_person(data) and is_human(content)):
        return ""
    blocks = [content] if isinstance(content, str) else items(content)
    texts = (without_reminders(text_of([block])).strip() for block in blocks if is_text(block))
    return next((text for text in texts if text and not text.startswith(HARNESS)), "")


def session_of(path: Path) -> str:
    """Return the session that a file is named after; empty if it is not. A file that was resumed has several ids."""
    parts = path.parts
    if SUBAGENTS in parts:
        stem = parts[parts.index(SUBAGENTS) - 1]
    else:
        stem = path.name.partition(".")[0]
    return stem if UUID.fullmatch(stem) else ""


def agent_type(path: Path) -> str:
    """Return the type of a sub-agent by the file beside its own."""
    if AGENT_FILE.match(path.name) is None:
        return ""
    beside = path.with_name(f"{path.name.partition('.jsonl')[0]}.meta.json")
    try:
        return string(mapping(read_beside(beside)).get("agentType"))
    except (OSError, ValueError):
        return ""


def error_message(error: Any) -> str:
    """Return what an error of the API says."""
    if isinstance(error, str):
        return error
    inner = mapping(at_path(error, "error.error")) or at_path(error, "error")
    text = first_text(inner, "message") or first_text(error, "formatted", "message")
    status = at_path(error, "status")
    return f"{status} {text}".strip() if isinstance(status, int) and not text.startswith(str(status)) else text


FORMAT: Final = Format(NAME, "Claude Code sessions", matches, SessionFile.read, (".claude/projects/**/*.jsonl",))
