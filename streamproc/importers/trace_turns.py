"""Raw turns of the steps of a trace.

A tool call is a turn, and so is a model's answer in text. A model call that only asks for tools is no turn of its own:
its usage is added to the next turn of its agent, so that a repeated call does not count twice. Where a trace has no
spans of tools, calls are taken from the model's answers and results from its next input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from streamproc.fingerprint.requests import Prompt
from streamproc.fingerprint.reviews import stop_reason
from streamproc.importers.content import without_blanks
from streamproc.importers.event_limits import fit_to_limits, name
from streamproc.importers.trace_events import TraceCounts, TraceEvent, TraceOptions, places_beside
from streamproc.importers.trace_steps import AGENT, MODEL, QUERY, RETRYABLE, SCOPE, TOOL, UNSET, WORKING, Step, Tree
from streamproc.model.raw_fields import SCOPE_MAX

NODE: Final = "agent"  # of a step whose trace names no agent
LEVELS_MAX: Final = 50  # of sub-agents in sub-agents that the name of a run tells
SCOPE_FIELDS: Final = ("user", "tenant", "workflow")


def turns_of(steps: Iterable[Step], counts: TraceCounts, options: TraceOptions | None = None) -> list[TraceEvent]:
    """Return the raw events of one trace, in order of completion. Never raises for what the steps hold."""
    return _Trace(steps, counts, options or TraceOptions()).events()


class _Trace:
    def __init__(self, steps: Iterable[Step], counts: TraceCounts, options: TraceOptions) -> None:
        self.tree = Tree(steps)
        self.counts = counts
        self.options = options
        self.order = self.tree.in_order()
        self.runs = {step.run for step in self.order if step.run}
        self.agents = {step.id: self.tree.agent_of(step) for step in self.order}
        self.working = {agent.id for step in self.order if step.kind in WORKING and (agent := self.agents[step.id])}
        self.common: dict[str, str] = {}
        self.answers: dict[str, list[tuple[Step, Any]]] = {}  # by id of the call: who was told its result
        self.asked: dict[str, list[tuple[int, Any]]] = {}  # by id of the call: when a model began to answer, arguments
        self.called: set[str] = set()  # ids of calls that have a step
        self.called_names: set[str] = set()
        self.called_agents: dict[str, bool] = {}
        self._outer_agents: dict[str, Step | None] = {}
        self._runs_below: dict[str, str] = {}
        self.pending: dict[tuple[str, str], Step] = {}  # by run and node: a model call whose turn is still to come
        self.found: list[TraceEvent] = []
        self.prompts: dict[str, Prompt | None] = {}  # the last one of each node
        self.askers: dict[str, list[Step]] = {}  # by id of the call: the model calls that asked for it
        self.siblings: dict[str, TraceEvent] = {}  # by model call or actor: the turn of calls that were made at once
        self._places: dict[tuple[str, str], int] | None = None
        for step in self.order:
            for scope in (*SCOPE_FIELDS, "session"):
                if getattr(step, scope):
                    self.common.setdefault(scope, getattr(step, scope))
            for call_id, result in step.answers.items():
                self.answers.setdefault(call_id, []).append((step, result))
            for call in step.calls:
                if call["id"]:
                    self.askers.setdefault(call["id"], []).append(step)
                if call["id"] and call["args"] is not None:
                    self.asked.setdefault(call["id"], []).append((step.start, call["args"]))
            if step.kind == TOOL:
                self.called.add(step.call_id)
                self.called_names.add(step.name)

    def events(self) -> list[TraceEvent]:
        self.counts.repeated += self.tree.repeated
        calls, results = self.counts.calls, self.counts.with_result
        self._begin()
        for step in self.order:
            if step.kind == MODEL:
                self._model(step)
            elif step.kind == TOOL:
                self._tool(step)
            elif step.kind == QUERY and isinstance(step.args, str):
                self._add(step, {"query": step.args})
        for step in list(self.pending.values()):
            self._spend(step)
        if self.options.complete:
            self._finish()
        self.counts.blind += self.counts.calls > calls and self.counts.with_result == results
        self.found.sort(key=lambda one: one.at)
        return self.found

    def _begin(self) -> None:
        """A trace of a conversation begins with a person's message, if its first model call answers one."""
        models = [step for step in self.order if step.kind == MODEL]
        first = min(models, key=lambda step: step.start, default=None)
        if first is None or not first.asked or self._is_called(self._agent(first)):
            return
        run_id = self._run(first)
        if run_id != first.trace:
            at = first.start or first.end
            event = {"type": "user.message", "run_id": run_id, "at": at or None, **self._scope(first)}
            event["event_id"] = f"{self._event_id(first)}:user"
            self.found.append(TraceEvent(fit_to_limits(event), first.number, at))

    def _model(self, step: Step) -> None:
        node = self._node(step)
        self.prompts[node] = step.follows(self.prompts.get(node))
        self.counts.models += 1
        self.counts.said += bool(step.output or step.calls)
        self.siblings.pop("/".join((*self._actor(step), step.parent)), None)
        waiting = self.pending.pop(self._actor(step), None)
        if waiting is not None:
            self._spend(waiting)
        if step.error:
            self._add(step, {"errors": [self._error(step)], "output": step.output or None}, step)
            return
        if not step.calls:
            if step.output:
                self._add(step, {"output": step.output}, step)
            else:
                self.pending[self._actor(step)] = step
            return
        rebuilt = [self._rebuilt(step, call) for call in step.calls if not self._has_step(call)]
        if rebuilt:
            self._add(step, {"tool_calls": rebuilt, "output": step.output or None}, step)
        else:
            self.pending[self._actor(step)] = step

    def _has_step(self, call: dict[str, Any]) -> bool:
        """Whether the trace records what came of a call. Ids may be another's: Google's ADK makes its own."""
        return bool(call["id"] and call["id"] in self.called) or call["name"] in self.called_names

    def _rebuilt(self, step: Step, call: dict[str, Any]) -> dict[str, Any]:
        return self._call(call["name"], call["id"], call["args"], self._told(step, call["id"]))

    def _told(self, step: Step, call_id: str) -> Any:
        """Return the result of a call that the step asked for or made, as the next model call was told it. Some models
        use an id again, so an earlier answer is that of another call."""
        told = [one for one in self.answers.get(call_id, ()) if one[0] is not step] if call_id else []
        later = [one for one in told if not step.start or one[0].start > step.start]
        return min(later, key=lambda one: one[0].start)[1] if later else UNSET

    def _tool(self, step: Step) -> None:
        result = step.result
        if result is UNSET and not step.error:
            result = self._told(step, step.call_id)
        args = self._asked(step) if step.args is None else step.args
        call = self._call(step.name, step.call_id, args, UNSET if step.error else result)
        if step.error:
            call["error"] = step.error
            self.counts.with_result += 1
            if RETRYABLE.search(step.error_class):
                call["retryable"] = True
        asker = self._asker(step)
        spent = asker if asker is not None and self.pending.get(self._actor(asker)) is asker else None
        if asker is None:
            spent = self.pending.get(self._actor(step))
        at_once = asker.id if asker is not None else "/".join((*self._actor(step), step.parent))
        turn = self.siblings.get(at_once)
        if turn is not None and (asker is not None or 0 < step.start < turn.at):
            self._join(turn, step, call)
            return
        request = asker.request if asker is not None else ""
        self.siblings[at_once] = self._add(step, {"tool_calls": [call], "request": request}, spent)

    def _asker(self, step: Step) -> Step | None:
        """Return the model call that asked for a call of a tool: the latest one before it, as some use an id again."""
        asked = [one for one in self.askers.get(step.call_id, ()) if one.start <= step.start] if step.call_id else []
        return max(asked, key=lambda one: one.start, default=None)

    def _join(self, turn: TraceEvent, step: Step, call: dict[str, Any]) -> None:
        """Add a call to the turn of the calls that were made beside it: siblings are no repeats of each other."""
        calls = turn.event.setdefault("tool_calls", [])
        if not turn.siblings:
            turn.siblings[turn.event["event_id"]] = list(calls)
        known = _known([call])
        added = fit_to_limits({"tool_calls": known}).get("tool_calls", [])
        turn.siblings[name(self._event_id(step))] = added
        turn.blank_calls += 1 - len(known)
        calls += added
        took = max(0, step.end - max(step.start, turn.at))  # what its siblings did not take as well
        if step.end > turn.at:
            turn.at = step.end
            turn.event["at"] = step.end
        if took:
            usage = turn.event.setdefault("usage", {})
            usage["duration_ms"] = usage.get("duration_ms", 0) + took

    def _asked(self, step: Step) -> Any:
        """Return the arguments that a model gave a call whose own step has none; None if no model's answer has them.
        Some models use an id again: the latest answer before the call counts."""
        asked = [one for one in self.asked.get(step.call_id, ()) if one[0] <= step.start or not step.start]
        return max(asked, key=lambda one: one[0])[1] if asked else None

    def _call(self, tool: str, call_id: str, args: Any, result: Any) -> dict[str, Any]:
        call = {"name": tool or "unnamed", "args": args}
        if call_id:
            call["id"] = call_id
        if result is not UNSET:
            call["result"] = "" if result is None else result
        self.counts.calls += 1
        self.counts.with_args += args is not None
        self.counts.with_result += result is not UNSET
        return call

    def _error(self, step: Step) -> dict[str, Any]:
        found: dict[str, Any] = {"message": step.error, "class": step.error_class}
        if RETRYABLE.search(f"{step.error_class} {step.error}"):
            found["retryable"] = True
        return found

    def _spend(self, step: Step) -> None:
        """Add a turn for a model call without content, or one whose calls have no step."""
        self._add(step, {}, step)

    def _add(self, step: Step, fields: dict[str, Any], spent: Step | None = None) -> TraceEvent:
        """Add and return a turn of a step; `spent` is the model call whose usage it has."""
        if spent is not None:
            self.pending.pop(self._actor(spent), None)
        agent = self._agent(step)
        outer = self._agent_above(agent)
        called = self._is_called(agent)
        run_id = self._run(step)
        made = fields.get("tool_calls", ())
        known = _known(made)
        if made:  # calls of which only the name is known would all count as the same call
            fields["tool_calls"] = known
        event: dict[str, Any] = {"run_id": run_id, "node": self._instance(step), "event_id": self._event_id(step)}
        event |= {"at": (step.end or step.start) or None, **self._scope(step), **fields}
        if called and self.options.sub_agents:
            event["parent_run_id"] = self._root_run(step) if outer is None else self._run_below(outer)
            event["session_id"] = event.get("session_id") or self._root_run(step)
        elif outer is not None and (said_to := self._node(outer)) != event["node"]:
            event["from"] = said_to
        model = spent or step
        event |= {"model": model.model, "provider": model.provider, "usage": _usage(step, spent)}
        event["request"] = fields.get("request") or model.request
        event["stop_reason"] = stop_reason(model.ended, is_empty=False)  # content may not be recorded
        turn = TraceEvent(fit_to_limits(event), step.number, step.end or step.start, len(made) - len(known))
        self.found.append(turn)
        return turn

    def _scope(self, step: Step) -> dict[str, Any]:
        """Return for whom a run works. What one span of a trace says holds for the others."""
        found: dict[str, Any] = {field: getattr(step, field) or self.common.get(field) for field in SCOPE_FIELDS}
        found["workflow"] = found["workflow"] or step.service
        found |= {field: (found[field] or "")[:SCOPE_MAX] for field in ("workflow", "tenant")}
        session = step.session or self.common.get("session")
        found["session_id"] = session if session != self._root_run(step) else ""
        found["parent_run_id"] = step.parent_run
        return without_blanks(found)

    def _finish(self) -> None:
        """Add the end of each run whose agent or workflow is known to have ended, after its last turn."""
        last: dict[str, int] = {}
        for one in self.found:
            last[one.event["run_id"]] = max(one.at, last.get(one.event["run_id"], 0))
        for step in self.order:
            if step.kind not in (AGENT, SCOPE, TOOL) or not (step.end or step.start):
                continue
            sub_agent = self.options.sub_agents and step.id in self.working and self._is_called(step)
            root = not step.parent and step.kind != TOOL and self._root_run(step) == step.trace
            run_id = self._run_below(step) if sub_agent else step.trace
            if (sub_agent or root) and name(run_id) in last:
                at = max(step.end or step.start, last.pop(name(run_id)))
                event = {"type": "run.finished", "run_id": run_id, "at": at}
                event["event_id"] = f"{self._event_id(step)}:end"
                event["status"] = "error" if step.error else "ok"
                self.found.append(TraceEvent(fit_to_limits(event), step.number, at))

    # Who acted, and in which run

    def _event_id(self, step: Step) -> str:
        return step.id if self.options.run_is_trace else f"{step.trace}:{step.id}"

    def _agent(self, step: Step) -> Step | None:
        return self.agents.get(step.id)

    def _agent_above(self, agent: Step | None) -> Step | None:
        """Return the agent that called an agent: the nearest one above it with steps of its own. An agent without any
        is only a frame around others, as the root of a workflow is."""
        if agent is None:
            return None
        if agent.id not in self._outer_agents:
            outer = self._agent(agent)
            while outer is not None and outer.id not in self.working and outer.id not in self._outer_agents:
                outer = self._agent(outer)
            if outer is not None and outer.id not in self.working:
                outer = self._outer_agents[outer.id]
            self._outer_agents[agent.id] = outer
        return self._outer_agents[agent.id]

    def _is_called(self, agent: Step | None) -> bool:
        """Whether another agent, or a tool, called an agent; others only hand over to each other."""
        if agent is None:
            return False
        found = self.called_agents.get(agent.id)
        if found is None:
            by_tool = agent.kind == TOOL or any(one.kind == TOOL for one in self.tree.above(agent))
            found = self.called_agents[agent.id] = by_tool or self._agent_above(agent) is not None
        return found

    def _root_run(self, step: Step) -> str:
        """Return the run of the trace: what the step or one above it says, or what the whole trace says."""
        if self.options.run_is_trace:
            return step.trace
        if step.run:
            return step.run
        said = next((one.run for one in self.tree.above(step) if one.run), "")
        if said:
            return said
        return next(iter(self.runs)) if len(self.runs) == 1 else step.trace

    def _run(self, step: Step) -> str:
        """Return the run of a step: a sub-agent's if the step is below one."""
        agent = self._agent(step)
        return self._root_run(step) if agent is None else self._run_below(agent)

    def _run_below(self, agent: Step) -> str:
        found = self._runs_below.get(agent.id)
        if found is None:
            levels: list[str] = []
            one: Step | None = agent
            while one is not None and self.options.sub_agents and self._is_called(one) and len(levels) < LEVELS_MAX:
                levels.append(one.id)
                one = self._agent_above(one)
            found = self._runs_below[agent.id] = "/".join([self._root_run(agent), *reversed(levels)])
        return found

    def _actor(self, step: Step) -> tuple[str, str]:
        agent = self._agent(step)
        return (self._run(step), agent.id if agent is not None else "")

    def _instance(self, step: Step) -> str:
        """Return the node of a turn. Agents of one name that worked at once are a node each: `coder`, `coder/2` …"""
        if self._places is None:
            self._places = self._find_places()
        node = self._node(step)
        place = self._places.get((node, self._work(self._actor_of(step))), 1)
        return node if place == 1 else f"{node}/{place}"

    def _find_places(self) -> dict[tuple[str, str], int]:
        """Return the places of agents by node and work: an agent gets the first that none is at when it begins."""
        works: dict[tuple[str, str], dict[str, list[int]]] = {}
        for step in self.order:
            if step.kind not in WORKING or not step.start:
                continue
            actor, agent = self._actor_of(step), self._agent(self._actor_of(step))
            times = works.setdefault((self._run(step), self._node(step)), {}).setdefault(
                self._work(actor), [step.start, step.end]
            )
            for one in (step, agent) if agent is not None and agent.start else (step,):
                times[:] = min(times[0], one.start), max(times[1], one.end)
        return {
            (node, work): place
            for (_, node), works_of_node in works.items()
            for work, place in places_beside(works_of_node)
        }

    def _actor_of(self, step: Step) -> Step:
        """Return the step that says who acts: of a tool's call, the model call that asked for it."""
        asker = self._asker(step) if step.kind == TOOL else None
        return step if asker is None or self._run(asker) != self._run(step) else asker

    def _work(self, step: Step) -> str:
        """Return what a step is a part of: the agent above it, or the step above it, which may end later."""
        agent = self._agent(step)
        return step.parent if agent is None else agent.id

    def _node(self, step: Step) -> str:
        if step.kind == AGENT:
            return step.node or step.name or NODE
        agent = self._agent(step)
        named = agent is not None and (agent.node or agent.name)
        framed = next((one.name for one in self.tree.above(step) if one.frame), "")
        return step.node or named or framed or step.home or NODE


def _known(calls: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of which more than the name is recorded."""
    return [call for call in calls if call["args"] is not None or "result" in call or "error" in call]


def _usage(step: Step, spent: Step | None) -> dict[str, Any]:
    """Return the usage of a turn: the tool's time, and what the model call before it took."""
    found = dict(spent.usage) if spent is not None else {}
    for one in {step.id: step, **({spent.id: spent} if spent is not None else {})}.values():
        if one.end > one.start > 0:
            found["duration_ms"] = found.get("duration_ms", 0) + one.end - one.start
    return found
