"""Names of span attributes, newest first, by what they mean.

Conventions and libraries in which they were seen: the GenAI conventions of OpenTelemetry up to v1.36 (A), v1.37 to
v1.41 (B) and later (C), OpenInference (OI), OpenLLMetry 0.62 (TL), Vercel's AI SDK 3 to 5 (AI), pydantic-ai 0.1 to 2
and Logfire (PA). They are constants of ours, as the package of the conventions marks them all as deprecated.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"  # A, B, C
OPERATION_KINDS: Final = {
    "chat": "model", "generate_content": "model", "text_completion": "model", "plan": "model", "execute_tool": "tool",
    "invoke_agent": "agent", "retrieval": "query",
}  # fmt: skip
OPENINFERENCE_KIND: Final = "openinference.span.kind"
OPENINFERENCE_KINDS: Final = {"LLM": "model", "TOOL": "tool", "AGENT": "agent"}
TRACELOOP_KIND: Final = "traceloop.span.kind"
TRACELOOP_KINDS: Final = {"tool": "tool", "agent": "agent"}
MCP_METHOD: Final = "mcp.method.name"
AI_OPERATION: Final = "ai.operationId"
AI_AGENTS: Final = frozenset({"ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"})
AI_MODEL_ENDS: Final = (".doGenerate", ".doStream")
REQUEST_KIND: Final = "llm.request.type"  # TL
REQUEST_KINDS: Final = frozenset({"chat", "completion"})

# An attribute that begins so shows that a span belongs to an agent.
KNOWN_PREFIXES: Final = (
    "gen_ai.", "openinference.", "llm.", "traceloop.", "ai.", "agent_name", "logfire.", "mcp.", "tool.", "langgraph",
    "crewai.", "pydantic_ai.",
)  # fmt: skip

RUN: Final = ("streamproc.run.id",)
CONVERSATION: Final = ("gen_ai.conversation.id",)
SESSION: Final = (
    "session.id", "traceloop.association.properties.session_id", "traceloop.association.properties.thread_id",
    "ai.telemetry.metadata.sessionId", "langfuse.session.id", "langsmith.trace.session_id",
)  # fmt: skip
USER: Final = (
    "user.id", "enduser.id", "traceloop.association.properties.user_id", "ai.telemetry.metadata.userId",
    "langfuse.user.id",
)  # fmt: skip
TENANT: Final = ("streamproc.tenant",)
WORKFLOW: Final = ("gen_ai.workflow.name", "traceloop.workflow.name")
SERVICE: Final = "service.name"
UNNAMED_SERVICE: Final = "unknown_service"  # the default of SDKs, with the name of the program

AGENT_NAME: Final = (
    "gen_ai.agent.name", "agent.name", "agent_name", "graph.node.name", "graph.node.id", "ai.telemetry.functionId",
    "gen_ai.agent.id",
)  # fmt: skip
ACTOR_NAME: Final = ("gen_ai.agent.name", "agent.name", "langgraph.node", "langgraph_node", "gen_ai.agent.id")
ENTITY_NAME: Final = "traceloop.entity.name"
TOOL_NAME: Final = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_call.function.name", ENTITY_NAME)
CALL_ID: Final = ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id")
ARGUMENTS: Final = (
    "gen_ai.tool.call.arguments", "tool_arguments", "ai.toolCall.args", "ai.toolCall.input",
    "tool_call.function.arguments", "traceloop.entity.input", "input.value", "mcp.request.argument",
    "tool.parameters",
)  # fmt: skip
RESULT: Final = (
    "gen_ai.tool.call.result", "tool_response", "ai.toolCall.result", "ai.toolCall.output", "traceloop.entity.output",
    "output.value", "mcp.response.value",
)  # fmt: skip
QUERY: Final = ("gen_ai.retrieval.query.text", "gen_ai.retrieval.query", "gen_ai.data_source.query")
DEFERRED: Final = "pydantic_ai.tool.deferral.name"

MODEL: Final = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.response.model", "ai.model.id")
PROVIDER: Final = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider")
ENDED: Final = (
    "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.finish_reason", "ai.response.finishReason",
    "gen_ai.completion.0.finish_reason",
)  # fmt: skip
RESPONSE: Final = ("gen_ai.response.id", "ai.response.id")

INPUT_TOKENS: Final = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.inputTokens",
    "ai.usage.promptTokens",
)  # fmt: skip
USAGE: Final = {
    "input_tokens": INPUT_TOKENS,
    "output_tokens": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
        "ai.usage.outputTokens", "ai.usage.completionTokens",
    ),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens", "cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
        "gen_ai.usage.details.cache_read_tokens",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens", "llm.token_count.prompt_details.cache_write",
    ),
    "total_tokens": (
        "gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total", "ai.usage.totalTokens",
    ),
}  # fmt: skip
COST: Final = ("gen_ai.usage.cost", "llm.cost.total", "operation.cost")

OUTPUT_MESSAGES: Final = ("gen_ai.output.messages",)
INPUT_MESSAGES: Final = ("gen_ai.input.messages",)
FLAT_OUTPUTS: Final = ("llm.output_messages.", "gen_ai.completion.")
FLAT_INPUTS: Final = ("llm.input_messages.", "gen_ai.prompt.")
AI_TEXT: Final = "ai.response.text"
AI_OBJECT: Final = "ai.response.object"
AI_CALLS: Final = "ai.response.toolCalls"
AI_PROMPT: Final = ("ai.prompt.messages", "ai.prompt")
PLAIN_OUTPUTS: Final = ("output.value", "traceloop.entity.output")
LOGFIRE_EVENTS: Final = "events"  # PA 1: messages as a JSON list of events
CHOICE_EVENTS: Final = frozenset({"gen_ai.choice", "gen_ai.content.completion", "gen_ai.assistant.message.delta"})
TOOL_EVENTS: Final = frozenset({"gen_ai.tool.message"})
USER_EVENTS: Final = frozenset({"gen_ai.user.message"})
ANSWER_EVENTS: Final = frozenset({"gen_ai.assistant.message"})  # a former answer, in the input
DETAIL_EVENTS: Final = frozenset({"gen_ai.client.inference.operation.details"})

ERROR_KIND: Final = "error.type"
REDACTED: Final = "__REDACTED__"  # OI, in place of what its settings hide
