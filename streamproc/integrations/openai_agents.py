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
from typing import Any, Final

import agents
from agents.tool_context import ToolContext

from streamproc.integrations._answers import Answers, KeptFor, arguments, content
from streamproc.integrations.watch import Watch

__all__ = ["Breaker"]

NO_TRACE: Final = "no-op"  # the id of every trace while tracing is off

Agent = agents.Agent[Any]
Context = agents.RunContextWrapper[Any]
Streamed = agents.RunResultStreaming


class Breaker(agents.RunHooks[Any]):
    """Run hooks that report every step to a `Watch`, and stop a halted run before its next model call or tool.

    One `Breaker` serves any number of runs at a time. The id of a run is `run_id`; else that of `Watch.run`; else the
    group id or trace id of the framework's trace; else, while tracing is off, a new one for each call of `Runner`.
    `also` are other run hooks, which are called after these. Further options are those of `Watch`.
    """

    def __init__(
        self,
        watch: Watch | None = None,
        *,
        run_id: str | None = None,
        also: Sequence[agents.RunHooks[Any]] = (),
        **options: Any,
    ) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._also = tuple(also)
        self._answers = Answers(self.watch)
        # By usage: all contexts of a run have the same, those of its nested agents too.
        self._untraced: KeptFor[str] = KeptFor()
        self._streams: KeptFor[weakref.ref[Streamed]] = KeptFor()

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
        await self._check(context)
        with self._answers.faults():
            if sentence := self.watch.nudge(self.run_id(context)):
                input_items.append({"role": "system", "content": sentence})  # in this request; not in the history
        await self._others("on_llm_start", context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Context, agent: Agent, response: agents.ModelResponse) -> None:
        with self._answers.faults():
            run_id, used = self.run_id(context), response.usage
            cached = used.input_tokens_details.cached_tokens
            tokens = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cached_tokens": cached}
            self.watch.spent(run_id, agent.name, **tokens)
            said = (agents.ItemHelpers.extract_text(item) for item in response.output if item.type == "message")
            calls = [item.call_id for item in response.output if item.type in ("function_call", "custom_tool_call")]
            model = {"model": agent.model} if isinstance(agent.model, str) else {}
            self._answers.said(run_id, agent.name, "".join(text or "" for text in said), calls, **model)
        await self._others("on_llm_end", context, agent, response)

    async def on_tool_start(self, context: Context, agent: Agent, tool: agents.Tool) -> None:
        await self._check(context)
        await self._others("on_tool_start", context, agent, tool)

    async def on_tool_end(self, context: Context, agent: Agent, tool: agents.Tool, result: object) -> None:
        with self._answers.faults():
            run_id, call = self.run_id(context), {"name": tool.name, "result": content(result)}
            if isinstance(context, ToolContext):  # else a tool of the provider, whose arguments no hook is given
                call |= {"id": context.tool_call_id, "args": arguments(context.tool_arguments)}
            self._answers.returned(run_id, agent.name, call)
        await self._others("on_tool_end", context, agent, tool, result)

    async def on_handoff(self, context: Context, from_agent: Agent, to_agent: Agent) -> None:
        with self._answers.faults():
            self._answers.handed(self.run_id(context), from_agent.name, to_agent.name)
        await self._others("on_handoff", context, from_agent, to_agent)

    async def on_agent_end(self, context: agents.AgentHookContext[Any], agent: Agent, output: Any) -> None:
        with self._answers.faults():
            self._answers.end(self.run_id(context), agent.name)
        await self._others("on_agent_end", context, agent, output)

    async def _check(self, context: Context) -> None:
        """Stop the run here if it is halted."""
        with self._answers.faults():
            run_id = self.run_id(context)
            await self.watch.waited(run_id)
            found = self._streams.get(context.usage)
            if found is None or (streamed := found()) is None:
                self.watch.check(run_id)
            elif self.watch.halted(run_id) is not None:
                streamed.cancel()
                await asyncio.sleep(0)  # the cancellation arrives here

    async def _others(self, hook: str, *given: Any) -> None:
        for hooks in self._also:
            await getattr(hooks, hook)(*given)
