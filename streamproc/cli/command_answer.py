"""The answer to an operator's command: for people as it comes, for programs as one JSON object at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.cli.terminal import clean, complain, json_line, note, say

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.fleet.commands import Command, CommandProgress, StopCounts
    from streamproc.settings import Settings


class AnswerOutput:
    """The answer to one command. `progress` is None until there is one."""

    def __init__(self, command: Command, *, as_json: bool) -> None:
        self.progress: CommandProgress | None = None
        self._command = command
        self._as_json = as_json
        self._decision: Decision | None = None
        self._stops: StopCounts | None = None

    def say(self, progress: CommandProgress, decision: Decision | None = None) -> None:
        """Say how far the command is, and the decision that names it."""
        self.progress, self._decision = progress, decision
        if not self._as_json:
            _show(self._command, progress, decision)

    def count(self, progress: CommandProgress, stops: StopCounts | None) -> None:
        """Say which runs have stopped."""
        self.progress, self._stops = progress, stops
        if not self._as_json and stops is not None and stops.expected:
            say(clean(str(stops)), hang=2)

    def finish(self) -> str:
        """Say the rest; return the stage of the command."""
        from streamproc.fleet.commands import CommandFacts, progress_of

        if self.progress is None:
            self.say(progress_of(self._command, CommandFacts()))
        assert self.progress is not None
        if self._as_json:
            json_line(self._json(self.progress))
        return self.progress.stage

    def _json(self, progress: CommandProgress) -> str:
        import msgspec

        from streamproc.model.printed import CommandAnswer, printed

        command, stops = self._command, self._stops
        row = {
            "id": command.id, "verb": command.verb, "scope": command.scope, "by": command.by, "reason": command.why,
            "grant": command.grant, "state": progress.stage, "note": progress.note, "place": str(command.place),
            "decision": self._decision, "previous": command.previous,
            "expected": stops.expected if stops is not None else None,
            "stopped": stops.stopped if stops is not None else None,
            "not_stopped": stops.names if stops is not None else [],
        }  # fmt: skip
        return printed(msgspec.to_builtins(row), CommandAnswer)


def _show(command: Command, found: CommandProgress, decision: Decision | None) -> None:
    from streamproc.fleet.commands import WORDS, progress_line
    from streamproc.model.log_time import rfc3339

    record, previous = command.record, command.previous
    line = f"{clean(progress_line(command, found))} ({command.id})"
    if found.stage == "refused":
        complain(line)
        return
    if found.stage in ("sent", "unanswered"):
        say(line, hang=2)
    else:
        why = f": {clean(command.why)}" if command.why else ""
        given = f"{command.verb} {clean(command.target)} by {clean(command.by)}{why}"
        if record is not None:
            given = f"{record.status} {rfc3339(record.at)} {clean(record.scope)}: {clean(str(record))}"
        say(f"{given} ({command.id})", hang=2)
        said = f"{WORDS[found.stage]}: {clean(found.note)}"
        if decision is not None:
            said = f"{decision.severity} {clean(decision.code)}: {clean(decision.message)}"
        say(said, hang=2)
    if record is not None and record.part == "user":
        note(f"this applies to the user named {clean(record.user)} in every tenant; for one tenant, add --tenant NAME")
    if previous is not None:
        note(f"previous command, since {rfc3339(previous.order_ms)}: {clean(str(previous))}")


async def runs_at_work(settings: Settings, command: Command) -> list[str]:
    """Return the runs in the scope of a command that were at work when it came, by their latest statuses."""
    from streamproc.fleet.answers import in_session
    from streamproc.model.fleet_command import FleetCommand
    from streamproc.model.raw_fields import log_ms
    from streamproc.replay.published import statuses

    target = FleetCommand(w=1, id=command.id, status="STOP", scope=command.scope, at=0)
    since_ms = command.place.at_ms if command.place is not None else command.at_ms
    return [
        one.run_id
        for one in (await statuses(settings)).values()
        if (one.status == "running" or log_ms(one.at) >= since_ms)
        and target.user in ("", one.user)
        and target.tenant in ("", one.tenant)
        and (not target.session or in_session(one, target.session))
    ]
