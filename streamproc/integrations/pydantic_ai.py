"""pydantic-ai: a capability that watches every run of an agent, and stops it.

    from streamproc.integrations.pydantic_ai import Breaker

    agent = Agent("openai:gpt-5", capabilities=[Breaker()])

A run that must stop leaves `run`, `run_sync`, `run_stream` and `iter` as `Halted`; with ``on_halt="end"`` as
pydantic-ai's `RunCancelled`, which has the messages so far:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)

from streamproc.integrations._answers import Answers, arguments, content, ended_fields, result_of
from streamproc.integrations._requests import request_of
from streamproc.integrations.watch import Watch

__all__ = ["Breaker"]


class Breaker(AbstractCapability[Any]):
    """A capability that reports every step to a `Watch`, and stops a halted run before its next model call or tool.

    One `Breaker` serves any number of agents and runs. The id of a run is `run_id`; else that of `Watch.run`; else the
    framework's id of the conversation. An agent that a tool runs belongs to the run of that tool. Further options are
    those of `Watch`.
    """

    def __init__(self, watch: Watch | None = None, *, run_id: str | None = None, **options: Any) -> None:
        self.watch = watch or Watch(**options)
        self._run_id = run_id
        self._answers = Answers(self.watch)

    def run_id(self, ctx: RunContext[Any]) -> str:
        """Return the id of the run that a context belongs to."""
        return self.watch.run_id(self._run_id, ctx.conversation_id or ctx.run_id)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        if not self._reports(ctx):
            return await handler()
        waits = False  # for results that the caller brings with the next run
        try:
            with self.watch.run(self.run_id(ctx)):
                result = await handler()
            waits = isinstance(result.output, DeferredToolRequests)
            with self._answers.faults():
                if not waits and not isinstance(result.output, str):
                    self._answers.said(*self._node(ctx), "", (), structured_output=content(result.output))
        finally:
            with self._answers.faults():
                if not waits:
                    self._answers.end(*self._node(ctx))
                self.watch.instances.done(self.run_id(ctx), node(ctx), ctx.run_id)
        return result

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        if not self._reports(ctx):
            return request_context
        with self._answers.faults():
            self._unheard(ctx, request_context.messages)
        await self._check(ctx)
        with self._answers.faults():
            if ctx.run_step <= 1 and ctx.prompt is not None:  # instructions may be others at each step
                instructions = getattr(request_context.messages[-1], "instructions", None)
                self._answers.asked(*self._node(ctx), request_of(ctx.prompt, instructions or ""))
            if sentence := self.watch.nudge(self.run_id(ctx)):
                ctx.enqueue(SystemPromptPart(sentence))  # part of this request
        return request_context

    async def after_model_request(self, ctx: RunContext[Any], *, response: ModelResponse, **_: Any) -> ModelResponse:
        if not self._reports(ctx):
            return response
        with self._answers.faults():
            at, used = self._node(ctx), response.usage
            self.watch.spent(
                *at,
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cached_tokens=used.cache_read_tokens,
                cache_write_tokens=used.cache_write_tokens,
            )
            self._answers.said(
                *at,
                "".join(part.content for part in response.parts if isinstance(part, TextPart)),
                [part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart)],
                model=response.model_name or "",
                provider=response.provider_name or "",
                **ended_fields(response.finish_reason, is_empty=all(map(_is_silent, response.parts))),
            )
        return response

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, args: Any, handler: Any, **_: Any
    ) -> Any:
        if not self._reports(ctx):
            return await handler(args)
        await self._check(ctx)
        try:
            result = await handler(args)
        except (SkipToolExecution, CallDeferred, ApprovalRequired):
            raise  # it did not run
        except Exception as problem:
            self._failed(ctx, call, args, problem)
            raise
        with self._answers.faults():
            returned = result.return_value if isinstance(result, ToolReturn) else result
            self._returned(ctx, call, args, result=result_of(returned))
        return result

    async def on_tool_validate_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, args: Any, error: Exception, **_: Any
    ) -> Any:
        if self._reports(ctx):
            self._failed(ctx, call, args, error)
        raise error

    def _unheard(self, ctx: RunContext[Any], messages: Sequence[ModelMessage]) -> None:
        """Report the results that no hook was called for: of answers that were refused as outputs."""
        if len(messages) < 2:
            return
        calls = {call.tool_call_id: call for call in messages[-2].parts if isinstance(call, ToolCallPart)}
        for part in messages[-1].parts:
            call = calls.get(part.tool_call_id) if isinstance(part, (RetryPromptPart, ToolReturnPart)) else None
            if call is None or not self._answers.waits_for(*self._node(ctx), call.tool_call_id):
                continue
            if isinstance(part, RetryPromptPart):
                self._returned(ctx, call, call.args, error=part.model_response())
            elif isinstance(part, ToolReturnPart):
                kind = "result" if part.outcome == "success" else "error"
                self._returned(ctx, call, call.args, **{kind: part.model_response_str()})

    def _failed(self, ctx: RunContext[Any], call: ToolCallPart, args: Any, problem: Exception) -> None:
        with self._answers.faults():
            self._returned(ctx, call, args, error=str(problem) or type(problem).__name__)

    def _returned(self, ctx: RunContext[Any], call: ToolCallPart, args: Any, **outcome: Any) -> None:
        told = {"id": call.tool_call_id, "name": call.tool_name, "args": arguments(args), **outcome}
        self._answers.returned(*self._node(ctx), told)

    def _reports(self, ctx: RunContext[Any]) -> bool:
        """Return whether this breaker reports the run of the agent: another one may be there, too."""
        return self.watch.owns(("pydantic-ai", ctx.run_id), self)

    def _node(self, ctx: RunContext[Any]) -> tuple[str, str]:
        """Return the run and the node: the agent's name, with a number for one that works beside others of its name."""
        run_id = self.run_id(ctx)
        return run_id, self.watch.instances.name(run_id, node(ctx), ctx.run_id or "")

    async def _check(self, ctx: RunContext[Any]) -> None:
        """Stop the run here if it is halted."""
        with self._answers.faults():
            run_id = self.run_id(ctx)
            await self.watch.waited(run_id)
            if self.watch.on_halt == "end" and self.watch.halted(run_id) is not None:
                try:
                    ctx.cancel()
                except UserError:
                    pass  # durable execution runs this elsewhere than the agent
                else:
                    await asyncio.sleep(0)  # the cancellation arrives here
            self.watch.check(run_id)


def _is_silent(part: Any) -> bool:
    return isinstance(part, ThinkingPart) or (isinstance(part, TextPart) and not part.content)


def node(ctx: RunContext[Any]) -> str:
    """Return the name of the agent."""
    return (ctx.agent.name if ctx.agent is not None else None) or "agent"
