"""What a command says of its order: for people as soon as it is known, for programs as one JSON object at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.cli.terminal import clean, complain, json_line, note, say

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.fleet.commands import Order, OrderProgress, StopCounts
    from streamproc.settings import Settings


class OrderAnswer:
    """The answer to one order. `progress` is None until there is one."""

    def __init__(self, order: Order, *, as_json: bool) -> None:
        self.progress: OrderProgress | None = None
        self._order = order
        self._as_json = as_json
        self._decision: Decision | None = None
        self._stops: StopCounts | None = None

    def say(self, progress: OrderProgress, decision: Decision | None = None) -> None:
        """Say how far the order is, and the decision that names it."""
        self.progress, self._decision = progress, decision
        if not self._as_json:
            _show(self._order, progress, decision)

    def count(self, progress: OrderProgress, stops: StopCounts | None) -> None:
        """Say which runs have stopped."""
        self.progress, self._stops = progress, stops
        if not self._as_json and stops is not None and stops.expected:
            say(clean(str(stops)), hang=2)

    def finish(self) -> str:
        """Say the rest; return the stage of the order."""
        from streamproc.fleet.commands import OrderFacts, progress_of

        if self.progress is None:
            self.say(progress_of(self._order, OrderFacts()))
        assert self.progress is not None
        if self._as_json:
            json_line(self._json(self.progress))
        return self.progress.stage

    def _json(self, progress: OrderProgress) -> str:
        import msgspec

        from streamproc.model.printed import CommandAnswer, printed

        order, stops = self._order, self._stops
        row = {
            "id": order.id, "verb": order.verb, "scope": order.scope, "by": order.by, "reason": order.why,
            "grant": order.grant, "state": progress.stage, "note": progress.note, "place": str(order.place),
            "decision": self._decision, "previous": order.previous,
            "expected": stops.expected if stops is not None else None,
            "stopped": stops.stopped if stops is not None else None,
            "not_stopped": stops.names if stops is not None else [],
        }  # fmt: skip
        return printed(msgspec.to_builtins(row), CommandAnswer)


def _show(order: Order, found: OrderProgress, decision: Decision | None) -> None:
    from streamproc.fleet.commands import WORDS, order_line
    from streamproc.model.log_time import rfc3339

    command, previous = order.command, order.previous
    line = f"{clean(order_line(order, found))} ({order.id})"
    if found.stage == "refused":
        complain(line)
        return
    if found.stage in ("sent", "unanswered"):
        say(line, hang=2)
    else:
        why = f": {clean(order.why)}" if order.why else ""
        given = f"{order.verb} {clean(order.target)} by {clean(order.by)}{why}"
        if command is not None:
            given = f"{command.status} {rfc3339(command.at)} {clean(command.scope)}: {clean(str(command))}"
        say(f"{given} ({order.id})", hang=2)
        said = f"{WORDS[found.stage]}: {clean(found.note)}"
        if decision is not None:
            said = f"{decision.severity} {clean(decision.code)}: {clean(decision.message)}"
        say(said, hang=2)
    if command is not None and command.part == "user":
        note(f"this applies to the user named {clean(command.user)} in every tenant; for one tenant, add --tenant NAME")
    if previous is not None:
        note(f"previous command, since {rfc3339(previous.order_ms)}: {clean(str(previous))}")


async def runs_at_work(settings: Settings, order: Order) -> list[str]:
    """Return the runs in the scope of an order that were at work when it came, by their latest statuses."""
    from streamproc.model.fleet_command import FleetCommand
    from streamproc.model.raw_fields import log_ms
    from streamproc.replay.published import statuses

    target = FleetCommand(w=1, id=order.id, status="STOP", scope=order.scope, at=0)
    since_ms = order.place.at_ms if order.place is not None else order.at_ms
    return [
        one.run_id
        for one in (await statuses(settings)).values()
        if (one.status == "running" or log_ms(one.at) >= since_ms)
        and target.user in ("", one.user)
        and target.tenant in ("", one.tenant)
    ]
