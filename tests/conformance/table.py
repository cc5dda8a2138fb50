"""Writes what the conformance suite found, for each framework, into docs/integrations/index.md.

``make integrations`` calls it with the JUnit reports of all frameworks.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from docs.tables import write_between_marks

PAGE: Final = Path(__file__).parents[2] / "docs" / "integrations" / "index.md"
NAME: Final = "conformance"  # of its marks

FRAMEWORKS: Final = {
    "TestLangGraph": "LangGraph", "TestLangChain": "LangChain", "TestOpenAIAgents": "OpenAI Agents",
    "TestClaudeAgentSDK": "Claude Agent SDK", "TestPydanticAI": "pydantic-ai", "TestAgentFramework": "Agent Framework",
    "TestCrewAI": "CrewAI", "TestAG2": "AG2", "TestAutoGen": "AutoGen", "TestOpenAIClient": "OpenAI",
    "TestAnthropicClient": "Anthropic", "TestLiteLLM": "LiteLLM",
}  # fmt: skip
ROWS: Final = {
    "stuck_equal_calls": "**stuck**: the same call, the same result: stopped at the third",
    "stuck_equal_calls_without_a_result": "a tool that returns nothing: stopped at the third",
    "stuck_equal_errors": "the same error",
    "stuck_output_retries": "answers that are refused again and again",
    "stuck_hand_overs": "two agents that hand over to each other",
    "stuck_map_of_one_item": "the same question, the same answer",
    "honest_changing_polls": "**honest**: 12 polls with changing answers",
    "honest_batch_of_files": "12 files, one answer",
    "honest_unavailable_then_available": "503, 503, 200",
    "honest_parallel_equal_calls": "six equal calls in parallel",
    "honest_map_of_thirty_items": "30 items, each answered \"yes\"",
    "honest_ten_documents_graded_alike": "ten documents graded alike, as objects",
    "honest_equal_instances_in_parallel": "three equal agents in parallel",
    "honest_edit_and_test_rounds": "four rounds of edit and test",
    "honest_chat_of_ten_commands": "ten commands of a person, each answered \"Done.\"",
    "honest_cached_tool": "the same first call for each item",
    "money": "**money**: 0.20 USD an answer, a limit of 2.00: stopped at answer 11",
    "resume_repeats_nothing": "**resumed**: no tool runs twice",
    "watched_twice_counts_once": "**watched twice**: counts once",
    "fifty_at_once_stay_apart": "**50 runs at once**: stay apart",
    "a_broken_adapter_breaks_no_agent": "**a fault of ours**: the agent goes on",
}  # fmt: skip


class Found(NamedTuple):
    """What a row found: passed, failed, or why it makes no sense for a framework."""

    outcome: str
    reason: str = ""


def read(reports: Iterable[Path]) -> dict[tuple[str, str], Found]:
    """Return what JUnit reports say, by framework and row."""
    found: dict[tuple[str, str], Found] = {}
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # pytest wrote it
            framework = FRAMEWORKS.get(case.get("classname", "").rpartition(".")[2])
            row = case.get("name", "").removeprefix("test_")
            if framework is None or row not in ROWS:
                continue
            skipped = case.find("skipped")
            failed = case.find("failure") is not None or case.find("error") is not None
            reason = "" if skipped is None else skipped.get("message", "")
            found[framework, row] = Found("failed" if failed else "skipped" if reason else "passed", reason)
    return found


def table(found: Mapping[tuple[str, str], Found]) -> str:
    """Return the table in Markdown. Raises `ValueError` if a framework or a row is missing, or has failed."""
    names = list(FRAMEWORKS.values())
    wanted = [(framework, row) for row in ROWS for framework in names]
    if missing := [key for key in wanted if key not in found or found[key].outcome == "failed"]:
        raise ValueError(f"not found or failed: {', '.join(map('/'.join, missing))}")
    notes: dict[str, int] = {}
    lines = [f"| | {' | '.join(names)} |", f"|---|{':-:|' * len(names)}"]
    for row, title in ROWS.items():
        cells = []
        for framework in names:
            reason = found[framework, row].reason
            cells.append(f"n/a ({notes.setdefault(reason, len(notes) + 1)})" if reason else "✓")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for reason, number in notes.items())])


def write(reports: Iterable[Path], page: Path = PAGE) -> None:
    """Put the table into the page."""
    write_between_marks(page, NAME, table(read(reports)))
