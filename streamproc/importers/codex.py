"""Rollouts of the Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from streamproc.importers.codex_turns import CodexTurns, answer_of, arguments_of, difference, spawned_agent, tool_name
from streamproc.importers.content import at_path, first_text, items, mapping, string, text_of
from streamproc.importers.imported import Format, Import
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.raw_turns import RecordReader, RunScope, is_human_text, scope_name, time_ms, usage_of

NAME: Final = "codex"
ROLLOUT_ID: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE)
RECORDS: Final = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
ASIDE: Final = frozenset({
    "world_state", "retained_context", "token_usage_record", "inter_agent_communication",
    "inter_agent_communication_metadata", "security_risk_score", "realtime_item", "ghost_snapshot",
})  # fmt: skip
# Items without a part in what the agent did, and those that repeat one.
ITEMS_ASIDE: Final = frozenset({
    "ghost_snapshot", "compaction", "compaction_summary", "context_compaction", "compaction_trigger", "agent_message",
    "additional_tools", "other",
})  # fmt: skip
CALLS: Final = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
    "image_generation_call",
})  # fmt: skip
UNANSWERED: Final = frozenset({"web_search_call", "image_generation_call"})  # done by the provider
ANSWERS: Final = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
BARE: Final = CALLS | ANSWERS | {"message", "reasoning"}  # items that the first versions wrote without a payload
FINAL: Final = "final_answer"  # the phase of a message that may repeat one of the same response
# How messages of role user begin that the harness wrote.
HARNESS: Final = (
    "<environment_context", "<user_instructions", "# AGENTS.md instructions", "<INSTRUCTIONS>", "<turn_aborted",
    "<skill>", "<skills", "<recommended_plugins", "<codex_internal_context", "<hook_prompt", "<permissions",
    "<collaboration_mode", "<subagent_notification", "<goal_context", "<image ", "</image>",
)  # fmt: skip


HOOK_PROMPT: Final = re.compile(r'<hook_prompt hook_run_id="([^"]*)">(.*?)</hook_prompt>', re.DOTALL)


def matches(sample: Sample) -> bool:
    """Whether rows are `{timestamp, type, payload}`, or those of the first versions, which have no payload."""
    first = sample.rows[0] if sample.rows else None
    if isinstance(first, dict) and "type" not in first and "timestamp" in first and "instructions" in first:
        return isinstance(first.get("id"), str)
    return any(_is_record(row) for row in sample.rows)


def _is_record(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("payload"), dict):
        return False
    kind = row.get("type")
    return isinstance(kind, str) and kind in RECORDS


class Rollout(RecordReader):
    """A rollout that is read."""

    name = NAME

    def __init__(self, log: LogFile, reading: Import) -> None:
        super().__init__(log, reading)
        found = ROLLOUT_ID.findall(Path(log.path).name)
        run = found[-1] if found else Path(log.path).name.partition(".")[0] or "unknown"
        self.turns = CodexTurns(RunScope(run, NAME, scope_name(run)), self.buffer)
        self._known = False  # whether the file's own metadata were read
        self._copied_to = 0  # the line up to which a fork repeats its parent's history
        self._total: dict[str, int] = {}
        self._number = 0
        self._heard: tuple[str, int, int | None] | None = None  # a text of an event, until its item comes
        self._said = ""  # the last text of an item
        self._failed_patches: set[str] = set()
        self._context = 0  # tokens that the model read last
        self._compactions = 0  # records of compactions, without those that an event has told again
        self._spawns: dict[str, str] = {}  # types of sub-agents by the open calls that start them

    def record(self, data: dict[str, Any], number: int) -> None:
        self._number = number
        kind, payload, at = data.get("type"), mapping(data.get("payload")), time_ms(data.get("timestamp"))
        if number <= self._copied_to:
            self.tally.repeated += 1
        elif kind == "session_meta":
            self._meta(payload, at)
        elif kind == "turn_context":
            self.turns.model = string(payload.get("model")) or self.turns.model
        elif kind == "response_item":
            self._item(payload, at)
        elif kind == "event_msg":
            self._event(payload, at)
        elif kind == "compacted":
            self._compacted(at, is_record=True)
        elif kind is None and "instructions" in data:
            self._meta(data, at)
        elif "payload" not in data and string(kind) in BARE:
            self._item(data, at)
        elif not (isinstance(kind, str) and kind in ASIDE) and not data.get("record_type"):
            self.tally.ignore(kind)

    def end(self) -> None:
        self._speak()
        self.turns.end(self._number)

    def _meta(self, meta: dict[str, Any], at: int | None) -> None:
        """Take the file's own metadata. Further ones are those of the session that it continues or was forked from."""
        if self._known:
            return
        self._known = True
        run = string(meta.get("id")) or self.turns.scope.run_id
        self.tally.name(run, project=meta.get("cwd"))
        source = at_path(meta, "source.subagent")
        spawn = at_path(source, "thread_spawn")
        parent = first_text(spawn, "parent_thread_id") or string(meta.get("parent_thread_id"))
        role = first_text(spawn, "agent_role") or string(meta.get("agent_role")) or self.reading.agents.get(run)
        role = role or first_text(spawn, "agent_nickname") or string(meta.get("agent_nickname"))
        role = role or first_text(source, "other") or string(source) or NAME
        session = scope_name(meta.get("session_id")) or scope_name(parent or run)
        self.turns.scope = RunScope(run, role, session, parent)
        self.turns.provider = string(meta.get("model_provider"))
        former = parent or string(meta.get("forked_from_id"))
        if former:
            began = time_ms(meta.get("timestamp")) or at
            self._copied_to = last_copied(self.log, run, former, began, self.reading)

    def _item(self, item: dict[str, Any], at: int | None) -> None:
        kind = item.get("type")
        if kind == "message":
            self._message(item, at)
        elif kind == "reasoning":
            self.turns.reason()
        elif isinstance(kind, str) and kind in CALLS:
            self._call(kind, item, at)
        elif isinstance(kind, str) and kind in ANSWERS:
            self._answer(item, at)
        elif not (isinstance(kind, str) and kind in ITEMS_ASIDE):
            self.tally.ignore(kind)

    def _message(self, item: dict[str, Any], at: int | None) -> None:
        content = item.get("content")
        if item.get("role") == "assistant":
            self._said = text_of(content).strip()
            if self._heard is not None and self._heard[0] == self._said:
                self._heard = None
            if item.get("phase") != FINAL or not self.turns.has_said(self._said):
                self.turns.say(self._said, self._number, at)
        elif item.get("role") == "user" and (sent_on := HOOK_PROMPT.findall(text_of(content))):
            by = "Stop hook" if sent_on[0][0].startswith("stop") else "hook"
            self.turns.continued(by, "\n".join(reason for _, reason in sent_on), self._number, at)
        elif item.get("role") == "user" and is_written_by_person(item) and is_human_text(content, HARNESS):
            self._prompt(at, text_of(content))

    def _compacted(self, at: int | None, *, is_record: bool) -> None:
        """Take that the context was compacted, which most versions write as a record and as an event after it."""
        if not is_record and self._compactions:
            self._compactions -= 1
            return
        self._compactions += is_record
        self._speak()
        self.turns.compacted(self._context, self._number, at)

    def _prompt(self, at: int | None, text: str) -> None:
        self._speak()
        if self.turns.scope.parent_run_id:
            self.reading.asked(self.turns.scope.run_id, text)
        if not self.turns.scope.parent_run_id:  # what a sub-agent is asked is not a person's message
            self.turns.prompt(self._number, at)

    def _call(self, kind: str, item: dict[str, Any], at: int | None) -> None:
        self._speak()
        call_id = first_text(item, "call_id", "id")
        tool = tool_name(item) or kind
        args = item.get("input", item.get("action"))
        if "arguments" in item:
            args = arguments_of(item["arguments"])
        self.turns.call(call_id, tool, args, self._number, at, waits=kind not in UNANSWERED)
        self.reading.is_new(copy_key(self.turns.scope.run_id, call_id))
        if tool.endswith("spawn_agent"):
            self._spawns[call_id] = first_text(args, "agent_type", "task_name")

    def _answer(self, item: dict[str, Any], at: int | None) -> None:
        call_id = string(item.get("call_id"))
        output = item.get("output", item.get("tools"))
        answer = answer_of(output)
        if call_id in self._failed_patches:
            self._failed_patches.discard(call_id)
            answer = answer._replace(failed=True)
        started, role = spawned_agent(output), self._spawns.pop(call_id, "")
        if started and role:
            self.reading.agents.setdefault(started, role)
        self.turns.answer(call_id, answer, self._number, at)

    def _event(self, event: dict[str, Any], at: int | None) -> None:
        kind = event.get("type")
        if kind == "user_message" and is_human_text(event.get("message"), HARNESS):
            self.tally.name(self.turns.scope.run_id, prompt=event.get("message"))
            self._prompt(at, text_of(event.get("message")))
        elif kind == "context_compacted":
            self._compacted(at, is_record=False)
        elif kind == "agent_message":
            self._speak()
            text = string(event.get("message")).strip()
            if text != self._said:
                self._heard = text, self._number, at
        elif kind == "token_count":
            self._count(mapping(event.get("info")), at)
        elif kind == "patch_apply_end" and event.get("success") is False:
            self._failed_patches.add(string(event.get("call_id")))
        elif kind in ("error", "stream_error"):
            lasting = None if kind == "error" else True
            self.turns.failure(string(event.get("message")), "api_error", self._number, at, retryable=lasting)
        elif started := string(event.get("new_thread_id")):
            role = string(event.get("new_agent_role")) or self._spawns.get(string(event.get("call_id")), "")
            if role:
                self.reading.agents.setdefault(started, role)

    def _count(self, info: dict[str, Any], at: int | None) -> None:
        """Take the usage of a response. The same total again only repeats it, with new limits of the account."""
        total = usage_of(info.get("total_token_usage"))
        if total and total != self._total:
            used = usage_of(info.get("last_token_usage")) or difference(total, self._total)
            self._total, self._context = total, used.get("input_tokens", 0)
            if used:
                self.turns.count(used, self._number, at)

    def _speak(self) -> None:
        """Add a text that was only in an event: some versions write no item for it."""
        if self._heard is not None:
            text, number, at = self._heard
            self._heard = None
            self.turns.say(text, number, at)


def is_written_by_person(item: dict[str, Any]) -> bool:
    """Whether a message's metadata, which newer versions write, do not say that the harness wrote it."""
    kinds = items(at_path(item, "internal_chat_message_metadata_passthrough.content_item_kinds"))
    return not kinds or any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)


def copy_key(run_id: str, call_id: str) -> str:
    """Return what a call is remembered by, to know it again in a fork of its session."""
    return f"{run_id}/{call_id}"


def last_copied(log: LogFile, run: str, former: str, began: int | None, reading: Import) -> int:
    """Return the line up to which a forked session, or a sub-agent, repeats the history of its parent; 0 for none.

    Copies keep the time of the original in some versions, and get a new one in others. Those are known by their calls,
    which the parent's file has, too, by metadata of the parent, or by the message that starts the sub-agent.
    """
    last, bad_lines, cut_off = 0, log.bad_lines, log.cut_off
    started = False
    in_history = False  # after a copied call: the rest of its turn is copied, too
    for row in log.rows():
        data = mapping(row.data)
        kind, payload, at = data.get("type"), mapping(data.get("payload")), time_ms(data.get("timestamp"))
        call_id = string(payload.get("call_id"))
        if kind == "session_meta":
            copied = string(payload.get("id")) not in ("", run)
        elif kind == "token_usage_record":
            copied = string(payload.get("thread_id")) == former
        elif string(kind).startswith("inter_agent_communication"):
            copied = not started and payload.get("trigger_turn") is True
            started |= copied
        elif call_id and reading.knows(copy_key(former, call_id)):
            copied = in_history = True
        else:
            in_history = in_history and not begins_prompt(kind, payload)
            copied = in_history or (at is not None and began is not None and at < began)
        if copied:
            last = row.number
    log.bad_lines, log.cut_off = bad_lines, cut_off
    return last


def begins_prompt(kind: Any, payload: dict[str, Any]) -> bool:
    """Whether a record is at the beginning of what follows a prompt."""
    if kind == "response_item":
        return payload.get("role") == "user"
    return kind == "turn_context" or payload.get("type") in ("user_message", "task_started", "turn_started")


FORMAT: Final = Format(
    NAME, "Codex rollouts", matches, Rollout.read,
    (".codex/sessions/**/rollout-*.jsonl*", ".codex/archived_sessions/rollout-*.jsonl*"),
)  # fmt: skip
