"""The methods that publish one kind of event each: of `TurnPublisher`, where they are awaited, and of its blocking
counterpart, where they return the event's id."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack

if TYPE_CHECKING:
    from streamproc.client.fields import EventFields, NodeFields, RunStartedFields, TurnFields
    from streamproc.model.raw_events import RawEvent

Sent = TypeVar("Sent")  # the event's id, or what is awaited for it


class EventMethods(ABC, Generic[Sent]):
    """Publishes events by their kinds. Each method returns what `send` returns."""

    @abstractmethod
    def send(self, event: RawEvent | Mapping[str, Any]) -> Sent:
        """Publish an event as a mapping, or one that `streamproc.model.raw_events` has parsed already."""

    @abstractmethod
    def _send_resume(self, event: dict[str, Any]) -> Sent:
        """Publish a resume; one without the halt that it lifts gets it first, where commands are signed."""

    def turn(self, *, run_id: str, node: str, **fields: Unpack[TurnFields]) -> Sent:
        """Publish what one node did. Returns the event's id (empty if it was invalid and dropped).

        Takes about 50 µs, more for long texts. Raises `InvalidEvent` (see `TurnPublisher`).
        """
        return self.send({"type": "turn", "run_id": run_id, "node": node, **fields})

    def run_started(self, *, run_id: str, **fields: Unpack[RunStartedFields]) -> Sent:
        """Publish the start of a run: graph, budgets, scope (workflow, tenant, user, tier), and what it was asked
        (`prompt`, hashed). A `parent_run_id` says which run has started it.

        The graph may also be a NetworkX directed graph or a LangGraph graph. Raises `UnsafeCycle`, naming every cycle
        without an exit (see `TurnPublisher`).
        """
        return self.send({"type": "run.started", "run_id": run_id, **fields})

    def turn_started(self, *, run_id: str, node: str, **fields: Unpack[EventFields]) -> Sent:
        """Publish the start of a turn, so a turn that never ends is detected (BUDGET001, STALL007)."""
        return self.send({"type": "turn.started", "run_id": run_id, "node": node, **fields})

    def run_finished(self, *, run_id: str, status: str = "", **fields: Unpack[EventFields]) -> Sent:
        """Publish that a run ended by itself."""
        return self.send({"type": "run.finished", "run_id": run_id, "status": status, **fields})

    def context_compacted(
        self,
        *,
        run_id: str,
        trigger: str = "",
        before_tokens: int | None = None,
        after_tokens: int | None = None,
        **fields: Unpack[NodeFields],
    ) -> Sent:
        """Publish that the context of an agent was compacted, with its size in tokens before and after."""
        own = {"trigger": trigger, "before_tokens": before_tokens, "after_tokens": after_tokens}
        return self.send({"type": "context.compacted", "run_id": run_id, **own, **fields})

    def run_continued(
        self, *, run_id: str, reason: str | None = None, by: str = "", **fields: Unpack[NodeFields]
    ) -> Sent:
        """Publish that a run was about to stop and was sent on: `by` a Stop hook or a gate, for a `reason`, of which
        only hashes are sent."""
        return self.send({"type": "run.continued", "run_id": run_id, "by": by, "reason": reason, **fields})

    def user_message(self, *, run_id: str, **fields: Unpack[NodeFields]) -> Sent:
        """Publish that a person wrote a message: streaks that assume no human input start again."""
        return self.send({"type": "user.message", "run_id": run_id, **fields})

    def operator_stop(self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]) -> Sent:
        """Publish an operator's command to stop this run."""
        return self.send({"type": "operator.stop", "run_id": run_id, "by": by, "reason": reason, **fields})

    def operator_resume(
        self,
        *,
        run_id: str,
        grant: Mapping[str, Any] | None = None,
        by: str = "",
        reason: str = "",
        halt: str | None = None,
        **fields: Unpack[EventFields],
    ) -> Sent:
        """Resume a halted run; `grant` adds to its budgets: ``{"turns": 10, "cost": "0.50"}``.

        `halt` is the id of the decision to lift (`ControlEvent.id`). Where commands are signed it is part of what is
        signed, and is read from the run's status if it is not given.
        """
        own = {"grant": grant, "by": by, "reason": reason, "halt": halt}
        return self._send_resume({"type": "operator.resume", "run_id": run_id, **own, **fields})

    def halt_acknowledged(self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]) -> Sent:
        """Acknowledge a run's halt: the operator is handling it, so it is not escalated."""
        return self.send({"type": "halt.acknowledged", "run_id": run_id, "by": by, "reason": reason, **fields})

    def feedback(
        self,
        *,
        run_id: str,
        verdict: Literal["false-alarm", "right"],
        decision: str = "",
        by: str = "",
        reason: str = "",
        **fields: Unpack[EventFields],
    ) -> Sent:
        """Say whether a run's halt was right. It changes no decision; `streamproc backtest` counts it."""
        own = {"verdict": verdict, "decision": decision, "by": by, "reason": reason}
        return self.send({"type": "feedback", "run_id": run_id, **own, **fields})

    def event(self, kind: str, /, *, run_id: str, **fields: Any) -> Sent:
        """Publish an event of any type, such as ``task.created``, with its own fields."""
        return self.send({**fields, "type": kind, "run_id": run_id})
