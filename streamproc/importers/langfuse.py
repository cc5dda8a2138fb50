"""Langfuse: traces of its UI and API, rows of observations, and its blob exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from streamproc.importers.content import at_path, count, first_text, items, mapping, string, utc_ms
from streamproc.importers.genai_messages import arguments, as_id, call_id_in, model_answer, model_input
from streamproc.importers.genai_names import CALL_ID, DEFERRED
from streamproc.importers.genai_spans import agent_name, kind_by_attributes, unwrapped_args
from streamproc.importers.imported import Format, Import, Imported, any_row
from streamproc.importers.log_file import LogFile
from streamproc.importers.trace_buffer import TraceBuffer
from streamproc.importers.trace_steps import AGENT, MODEL, QUERY, SCOPE, TOOL, Step, failed
from streamproc.model.expansion import parsed

NAME: Final = "langfuse"
KINDS: Final = {
    "GENERATION": MODEL, "TOOL": TOOL, "AGENT": AGENT, "SPAN": SCOPE, "EVENT": SCOPE, "CHAIN": SCOPE,
    "RETRIEVER": QUERY, "EVALUATOR": SCOPE, "EMBEDDING": SCOPE, "GUARDRAIL": SCOPE,
}  # fmt: skip
TOOL_PREFIXES: Final = ("execute_tool ", "running tool: ", "running tool:")
INPUT_COUNTS: Final = ("input", "prompt_tokens", "input_tokens", "promptTokens")
OUTPUT_COUNTS: Final = ("output", "completion_tokens", "output_tokens", "completionTokens")
CACHE_READS: Final = (
    "input_cache_read", "input_cached_tokens", "cache_read_input_tokens", "prompt_details.cache_read",
    "prompt_details.cached_tokens",
)  # fmt: skip
REASONING: Final = ("output_reasoning", "output_reasoning_tokens", "completion_details.reasoning")
CACHE_WRITES: Final = ("input_cache_creation", "cache_creation_input_tokens", "prompt_details.cache_write")


def is_langfuse(row: dict[str, Any]) -> bool:
    """Whether a row is a trace with its observations, or an observation."""
    observations = row.get("observations")
    if isinstance(observations, list):
        return isinstance(row.get("trace"), dict) or any(map(_is_observation, observations))
    return _is_observation(row) or any(map(_is_observation, items(row.get("data"))))


def _is_observation(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    return bool({"traceId", "trace_id"} & row.keys() and {"parentObservationId", "parent_observation_id"} & row.keys())


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield the raw events of a log."""
    unit = "span" if log.is_document() else "line"
    buffer = TraceBuffer(NAME, reading, run_is_trace=True, unit=unit)
    number = 0
    for row in log.rows():
        found = mapping(row.data)
        trace = mapping(found.get("trace")) or found
        observations = found.get("observations", found.get("data"))
        for data in observations if isinstance(observations, list) else [row.data]:
            number += 1
            step = step_of(data, trace if isinstance(observations, list) else {})
            if step is None:
                buffer.tally.ignore(_kind(data))
                continue
            step.number = number if log.is_document() else row.number
            yield from buffer.add(step)
    yield from buffer.rest()


def _kind(data: Any) -> Any:
    return data.get("type") or "trace" if isinstance(data, dict) else data


def step_of(data: Any, trace: dict[str, Any]) -> Step | None:
    """Return an observation as a step; None for what is none. Names are in camel case, in exports in snake case."""
    row = _Row(mapping(data))
    kind = string(row["type"]).upper()
    trace_id, own_id = as_id(row["traceId"] or trace.get("id")), as_id(row["id"])
    if kind not in KINDS or not trace_id or not own_id:
        return None
    metadata = mapping(twice_parsed(row["metadata"]))
    attributes = mapping(metadata.get("attributes"))
    step = Step(KINDS[kind], trace_id, own_id, as_id(row["parentObservationId"]), string(row["name"]))
    step.start = utc_ms(row["startTime"])
    step.end = utc_ms(row["endTime"]) or step.start
    if kind == "SPAN":
        step.kind = _kind_of_span(step.name, row, attributes)
    if step.kind == AGENT:
        step.name = agent_name(step.name)
    step.node = string(metadata.get("langgraph_node")) or string(attributes.get("gen_ai.agent.name"))
    step.home = string(row["traceName"] or trace.get("name"))
    step.session = string(row["sessionId"] or trace.get("sessionId") or trace.get("session_id"))
    step.user = string(row["userId"] or trace.get("userId") or trace.get("user_id"))
    step.source = first_text(metadata, "scope.name")
    if step.kind == TOOL:
        _read_tool(step, row, attributes)
    elif step.kind == MODEL:
        _read_model(step, row)
    elif step.kind == QUERY:
        step.args = _query(row["input"])
    if row["level"] == "ERROR" and DEFERRED not in attributes:
        failed(step, row["statusMessage"])
    return step


class _Row:
    """An observation, by the names of the API."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def __getitem__(self, name: str) -> Any:
        if name in self._data:
            return self._data[name]
        return self._data.get("".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name))


def twice_parsed(value: Any) -> Any:
    """Return the value of JSON text; exports write some values as JSON text of JSON text."""
    found = parsed(parsed(value))
    return None if found == "None" else found


def _kind_of_span(name: str, row: _Row, attributes: dict[str, Any]) -> str:
    """Return what a span is that Langfuse has not classified: older versions did so for none."""
    output = mapping(twice_parsed(row["output"]))
    if output.get("type") == "tool" or call_id_in(output) or name.startswith((*TOOL_PREFIXES, "tool.")):
        return TOOL
    kind = kind_by_attributes(attributes, name)
    return kind if kind in (TOOL, AGENT) else SCOPE


def _read_tool(step: Step, row: _Row, attributes: dict[str, Any]) -> None:
    for prefix in (*TOOL_PREFIXES, "tool."):
        step.name = step.name.removeprefix(prefix)
    step.name = string(attributes.get("gen_ai.tool.name")) or string(attributes.get("tool.name")) or step.name
    output = twice_parsed(row["output"])
    step.call_id = next((found for name in CALL_ID if (found := as_id(attributes.get(name)))), "")
    step.call_id = step.call_id or call_id_in(output)
    args = twice_parsed(row["input"])
    step.args = unwrapped_args(arguments(args)) if args is not None else None
    if output is not None and DEFERRED not in attributes:
        step.returns(output)


def _read_model(step: Step, row: _Row) -> None:
    step.talks(model_input(twice_parsed(row["input"])), model_answer(twice_parsed(row["output"])))
    step.model = string(row["model"]) or string(row["providedModelName"])
    step.usage = _usage(row)


def _usage(row: _Row) -> dict[str, Any]:
    details = mapping(parsed(row["usageDetails"])) or mapping(parsed(row["usage"]))
    tokens, answered = _count(details, INPUT_COUNTS), _count(details, OUTPUT_COUNTS)
    total = count(details.get("total", details.get("totalTokens")))
    tokens, answered = tokens or count(row["inputUsage"]), answered or count(row["outputUsage"])
    cached, written = _count(details, CACHE_READS), _count(details, CACHE_WRITES)
    beside = _counted_beside(total - tokens - answered, cached + written, _count(details, REASONING))
    tokens, answered = tokens + beside[0], answered + beside[1]
    cost = at_path(parsed(row["costDetails"]), "total") or row["totalCost"] or row["calculatedTotalCost"]
    return {
        "input_tokens": tokens,
        "output_tokens": answered,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "total_tokens": total,
        "cost_usd": cost,
    }


def _counted_beside(missing: int, cached: int, reasoning: int) -> tuple[int, int]:
    """Return the tokens that neither input nor output include: of the cache, and of reasoning. `missing` is what the
    total has more than both."""
    if missing <= 0:
        return 0, 0
    exact = next((one for one in ((cached, reasoning), (cached, 0), (0, reasoning)) if sum(one) == missing), None)
    return exact or (cached if missing >= cached else 0, reasoning if missing >= cached + reasoning else 0)


def _count(details: dict[str, Any], wanted: tuple[str, ...]) -> int:
    return next((count(details[name]) for name in wanted if details.get(name)), 0)


def _query(value: Any) -> Any:
    found = twice_parsed(value)
    if isinstance(found, dict):
        found = found.get("query") or found.get("input")
    return found if isinstance(found, str) else None


FORMAT: Final = Format(NAME, "Langfuse traces and observations", any_row(is_langfuse), read)
