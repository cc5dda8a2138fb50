"""OpenAI Agents SDK: hooks of a run that watch every agent in it, and stop it.

    from streamproc.integrations.openai_agents import Breaker

    breaker = Breaker()
    result = await Runner.run(agent, "Fix it.", hooks=breaker)

A run that must stop leaves `Runner.run`, `Runner.run_sync` and the events of `Runner.run_streamed` as `Halted`:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)
"""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any, Final

import agents
from agents.models import get_default_model
from agents.tool_context import ToolContext

from streamproc.errors import Halted
from streamproc.integrations._answers import Answers, KeptFor, arguments, result_of
from streamproc.integrations._requests import ASKED_MAX, Requests
from streamproc.integrations._steps import model_field
from streamproc.integrations.watch import Watch
from streamproc.model.newest import Newest

__all__ = ["Breaker"]

NO_TRACE: Final = "no-op"  # the id of every trace while tracing is off
CALLS_MAX: Final = 20_000  # calls of tools that have not returned
ITEMS_MAX: Final = 100  # of what a model is given, from the end, that are searched for results
UNNAMED: Final = "a model of the OpenAI Agents SDK"

Agent = agents.Agent[Any]
Context = agents.RunContextWrapper[Any]
Streamed = agents.RunResultStreaming


@dataclass(slots=True, eq=False)
class _Loop:
    """One call of `Runner`, known by the context that its model hooks are given; tools and ends are given others."""

    context: weakref.ref[Context]
    names: list[tuple[str, str, str]] = field(default_factory=list)  # run, name and node of its agents
    config: agents.RunConfig | None = None  # as its tools are told it


class Breaker(agents.RunHooks[Any]):
    """Run hooks that report every step to a `Watch`, and stop a halted run before its next model call or tool.

    One `Breaker` serves any number of runs at a time. The id of a run is `run_id`; else that of `Watch.run`; else the
    group id or trace id of the framework's trace; else, while tracing is off, a new one for each call of `Runner`.
    `model` names the model where the agents do not, as with ``RunConfig(model=...)``. `also` are other run hooks, which
    are called after these. Further options are those of `Watch`.
    """

    def __init__(
        self,
        watch: Watch | None = None,
        *,
        run_id: str | None = None,
        model: str = "",
        also: Sequence[agents.RunHooks[Any]] = (),
        **options: Any,
    ) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._model = model
        self._also = tuple(also)
        self._answers = Answers(self.watch)
        self._requests = Requests()
        self._loops: KeptFor[_Loop] = KeptFor()  # by context
        self._callers: Newest[tuple[str, str], tuple[_Loop, str]] = Newest(CALLS_MAX)  # by run and call, with the node
        # By usage: all contexts of a run have the same, those of its nested agents too.
        self._untraced: KeptFor[str] = KeptFor()
        self._streams: KeptFor[weakref.ref[Streamed]] = KeptFor()
        self._nested: KeptFor[list[_Loop]] = KeptFor()

    def run_id(self, context: Context) -> str:
        """Return the id of the run that a context belongs to."""
        trace = agents.get_current_trace()
        if trace is not None and trace.trace_id != NO_TRACE:
            framework = (trace.export() or {}).get("group_id") or trace.trace_id
        else:
            framework = self._untraced.get(context.usage) or self._untraced.keep(context.usage, str(uuid.uuid4()))
        return self.watch.run_id(self._run_id, framework)

    def ends(self, streamed: Streamed) -> Streamed:
        """Let a halt end the events of this run, without `Halted`. Needs ``on_halt="end"``; other runs raise `Halted`,
        as the framework has no such end for them."""
        if self.watch.on_halt != "end":
            raise ValueError('Breaker.ends needs Breaker(on_halt="end")')
        self._streams.keep(streamed.context_wrapper.usage, weakref.ref(streamed))
        return streamed

    def tool(self, agent: Agent, name: str | None = None, description: str | None = None, **more: Any) -> agents.Tool:
        """Return an agent as a tool that is watched in the same run: hooks of a run do not reach such agents. Further
        arguments are those of `Agent.as_tool`."""
        return agent.as_tool(name, description, hooks=self, **more)

    async def on_agent_start(self, context: agents.AgentHookContext[Any], agent: Agent) -> None:
        await self._others("on_agent_start", context, agent)

    async def on_llm_start(self, context: Context, agent: Agent, system_prompt: str | None, input_items: Any) -> None:
        with self._answers.faults():
            if self._reports(context):
                self._unheard(context, agent, input_items)
        await self._check(context)
        with self._answers.faults():
            if self._reports(context):
                at = self._node(context, agent)
                asked, goes_on = _asked_in(input_items)
                self._answers.asked(*at, self._requests.of(at, asked, system_prompt or "", goes_on=goes_on))
            if sentence := self.watch.nudge(self.run_id(context)):
                input_items.append({"role": "system", "content": sentence})  # in this request; not in the history
        await self._others("on_llm_start", context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Context, agent: Agent, response: agents.ModelResponse) -> None:
        with self._answers.faults():
            if self._reports(context):
                self._said(context, agent, response)
        await self._others("on_llm_end", context, agent, response)

    async def on_tool_start(self, context: Context, agent: Agent, tool: agents.Tool) -> None:
        await self._check(context)
        with self._answers.faults():
            if isinstance(context, ToolContext) and self._reports(context):
                self._configured(context, agent)
        await self._others("on_tool_start", context, agent, tool)

    async def on_tool_end(self, context: Context, agent: Agent, tool: agents.Tool, result: object) -> None:
        with self._answers.faults():
            if self._reports(context):
                call = {"name": tool.name, "result": result_of(result)}
                if isinstance(context, ToolContext):
                    call |= {"id": context.tool_call_id, "args": arguments(context.tool_arguments)}
                    run_id = self.run_id(context)
                    _, node = self._callers.pop((run_id, context.tool_call_id), (None, agent.name))
                else:  # a tool of the provider, whose arguments no hook is given
                    run_id, node = self._node(context, agent)
                self._answers.returned(run_id, node, call)
        await self._others("on_tool_end", context, agent, tool, result)

    async def on_handoff(self, context: Context, from_agent: Agent, to_agent: Agent) -> None:
        with self._answers.faults():
            if self._reports(context):
                run_id, sender = self._node(context, from_agent)
                self._answers.handed(run_id, sender, self._node(context, to_agent)[1])
        await self._others("on_handoff", context, from_agent, to_agent)

    async def on_agent_end(self, context: agents.AgentHookContext[Any], agent: Agent, output: Any) -> None:
        with self._answers.faults():
            if self._reports(context):
                self._ended(self._loop_of(context))
        await self._others("on_agent_end", context, agent, output)

    # What a model answered, and was told.

    def _said(self, context: Context, agent: Agent, response: agents.ModelResponse) -> None:
        run_id, node = self._node(context, agent)
        loop, used = self._loop(context), response.usage
        cached = used.input_tokens_details.cached_tokens
        tokens = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cached_tokens": cached}
        self.watch.spent(run_id, node, **tokens)
        said = (agents.ItemHelpers.extract_text(item) for item in response.output if item.type == "message")
        calls = [item.call_id for item in response.output if item.type in ("function_call", "custom_tool_call")]
        for call_id in calls:
            self._callers[run_id, call_id] = loop, node
        model = self._model or _answerer(response) or _named(agent, loop.config)
        about = model_field(model, UNNAMED) if model or not calls else {}  # its tools may tell it
        self._answers.said(run_id, node, "".join(text or "" for text in said), calls, **about)

    def _unheard(self, context: Context, agent: Agent, items: Sequence[Any]) -> None:
        """Report the results that no hook was called for: of calls that were refused, or whose tool does not exist."""
        run_id, node = self._node(context, agent)
        calls: dict[Any, dict[Any, Any]] = {}
        for item in islice(reversed(items), ITEMS_MAX):
            if not isinstance(item, dict) or "role" in item:
                break
            calls.setdefault(item.get("call_id"), {})[item.get("type")] = item
        for call_id, told in calls.items():
            made, result = told.get("function_call"), told.get("function_call_output")
            if made and result and self._answers.waits_for(run_id, node, call_id):
                call = {"id": call_id, "name": made["name"], "args": arguments(made["arguments"])}
                self._answers.returned(run_id, node, {**call, "result": result_of(result["output"])})

    def _configured(self, context: ToolContext[Any], agent: Agent) -> None:
        """Take over what a tool is told of its run, and no other hook: which model the configuration names."""
        run_id = self.run_id(context)
        loop, node = self._callers.get((run_id, context.tool_call_id), (None, ""))
        if loop is None or loop.config is not None or context.run_config is None:
            return
        loop.config = context.run_config
        if not self._model and (loop.config.model is not None or agent.model is None):
            model = _named(agent, loop.config)
            self._answers.add(run_id, node, **model_field(model, UNNAMED))

    # Which loop, and which node.

    def _reports(self, context: Context) -> bool:
        """Return whether this breaker reports what a hook is given: another one may be there, too."""
        return self.watch.owns(("openai-agents", weakref.ref(context)), self)

    def _loop(self, context: Context) -> _Loop:
        """Return the call of `Runner` whose model hooks are given this context."""
        loop = self._loops.get(context)
        if loop is None:
            loop = self._loops.keep(context, _Loop(weakref.ref(context)))
            beside = self._nested.get(context.usage) or self._nested.keep(context.usage, [])
            beside[:] = [other for other in beside if other.context() is not None] + [loop]
        return loop

    def _loop_of(self, context: Context) -> _Loop | None:
        """Return the call of `Runner` that any context belongs to, as far as that is known."""
        if (loop := self._loops.get(context)) is not None:
            return loop
        if isinstance(context, ToolContext):
            return self._callers.get((self.run_id(context), context.tool_call_id), (None, ""))[0]
        # At its end, an agent is given a context of its own with the same list of what it was asked.
        for loop in self._nested.get(context.usage) or ():
            if (known := loop.context()) is not None and known.turn_input is context.turn_input:
                return loop
        return None

    def _node(self, context: Context, agent: Agent) -> tuple[str, str]:
        """Return the run and the node: the agent's name, with a number for one that works beside others of its name."""
        run_id = self.run_id(context)
        node = self.watch.instances.name(run_id, agent.name, context)
        loop = self._loop(context)
        if (run_id, agent.name, node) not in loop.names:
            loop.names.append((run_id, agent.name, node))
        return run_id, node

    def _ended(self, loop: _Loop | None) -> None:
        """Report what is known of the answers of a loop that is over, and free the names of its agents."""
        if loop is None or (context := loop.context()) is None:
            return
        for run_id, name, node in loop.names:
            self._answers.end(run_id, node)
            self.watch.instances.done(run_id, name, context)
        loop.names.clear()
        beside = self._nested.get(context.usage)
        if beside and loop in beside:
            beside.remove(loop)

    async def _check(self, context: Context) -> None:
        """Stop the run here if it is halted."""
        with self._answers.faults():
            run_id = self.run_id(context)
            await self.watch.waited(run_id)
            found = self._streams.get(context.usage)
            if found is None or (streamed := found()) is None:
                try:
                    self.watch.check(run_id)
                except Halted:
                    self._ended(self._loop_of(context))
                    raise
            elif self.watch.halted(run_id) is not None:
                self._ended(self._loop_of(context))
                streamed.cancel()
                await asyncio.sleep(0)  # the cancellation arrives here

    async def _others(self, hook: str, *given: Any) -> None:
        for hooks in self._also:
            await getattr(hooks, hook)(*given)


def _asked_in(items: Sequence[Any]) -> tuple[list[Any], bool]:
    """Return the newest messages of a person among what a model is given, and whether it has answered them before."""
    at = next((at for at in range(len(items) - 1, -1, -1) if _is_asked(items[at])), -1)
    newest = takewhile(_is_asked, (items[index] for index in range(at, -1, -1)))
    return [item.get("content") for item in islice(newest, ASKED_MAX)], at < len(items) - 1


def _is_asked(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _answerer(response: agents.ModelResponse) -> str:
    """Return the name of a model that its answer carries, as that of chat completions does."""
    for item in response.output:
        told = getattr(item, "provider_data", None)
        if isinstance(told, dict) and isinstance(told.get("model"), str):
            return str(told["model"])
    return ""


def _named(agent: Agent, config: agents.RunConfig | None) -> str:
    """Return the name of the model that an agent uses. While its configuration is not known, the default is no guess:
    most programs that configure the model have agents without one."""
    model = agent.model if config is None or config.model is None else config.model
    if model is None:
        return get_default_model() if config is not None else ""
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) else ""
