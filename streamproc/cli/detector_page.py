"""A detector's page, made from its file: what `streamproc explain CODE` prints, and what `docs/detectors/` holds.

The examples are run as the page is made, so that a page shows what the detector says and not what somebody once
thought that it says.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from streamproc.detectors.base import Example
    from streamproc.model.controls import ControlEvent
    from streamproc.policy import Policy

TURNS_SHOWN: Final = 8  # of an example; those that something is told at are shown in any case
TEXT_SHOWN: Final = 60  # characters of an argument, answer or output


class LimitRow(NamedTuple):
    """A parameter of a detector: its default, and the reason beside it."""

    name: str
    default: int
    reason: str


class Played(NamedTuple):
    """An example as it was run: its turns, and what was told, line by line."""

    title: str
    lines: tuple[str, ...]


class Page(NamedTuple):
    """All there is to say of a detector. `sections` are the docstring's: Sees, Why, False alarms, Tuning, Reference."""

    code: str
    name: str
    summary: str
    sections: tuple[tuple[str, str], ...]
    unit: str
    limits: tuple[LimitRow, ...]
    told: tuple[Played, ...]
    silent: tuple[Played, ...]


def read_page(module: ModuleType, *, played: bool = True) -> Page:
    """The page of a detector's module; without its examples where they are not `played`."""
    detector = module.DETECTOR
    head, *paragraphs = (inspect.getdoc(module) or "").split("\n\n")
    sections = [paragraph.partition(": ")[::2] for paragraph in paragraphs]
    return Page(
        code=detector.code,
        name=detector.name,
        summary=head.partition(": ")[2],
        sections=tuple((title, text) for title, text in sections),
        unit=inspect.getdoc(module.Limits) or "",
        limits=tuple(_limits(module)),
        told=tuple(_play(detector.code, example) for example in module.STUCK if played),
        silent=tuple(_play(detector.code, example) for example in module.HEALTHY if played),
    )


def plain(page: Page) -> Iterator[str]:
    """The page as lines for a terminal."""
    yield f"{page.code} {page.name}: {page.summary}"
    for title, text in page.sections:
        yield ""
        yield f"{title}: {text}"
    yield ""
    if page.limits:
        yield f"Limits, in a policy under `detectors: {page.code}:`"
        for limit in page.limits:
            yield f"    {limit.name} = {limit.default}{f'  ({limit.reason})' if limit.reason else ''}"
        yield ""
    for title, examples in (("Must be told:", page.told), ("Must stay silent:", page.silent)):
        yield title
        for example in examples:
            yield f"  {example.title}"
            yield from (f"    {line}" for line in example.lines)
            yield ""


def markdown(page: Page) -> str:
    """The page as Markdown, one sentence a line."""
    parts = [f"# {page.code} {page.name}", _sentences(page.summary[:1].upper() + page.summary[1:])]
    for title, text in page.sections:
        parts += [f"## {title}", _sentences(text[:1].upper() + text[1:])]
    parts += ["## Limits", *_limits_table(page)]
    for title, examples in (("Must be told", page.told), ("Must stay silent", page.silent)):
        parts.append(f"## {title}")
        for example in examples:
            parts += [f"**{example.title[:1].upper()}{example.title[1:]}**", _fenced(example.lines)]
    return "\n\n".join(parts) + "\n"


def _limits(module: ModuleType) -> Iterator[LimitRow]:
    reasons = dict(re.findall(r"^\s+(\w+): [^#\n]+#\s*(.+)$", inspect.getsource(module.Limits), re.MULTILINE))
    for field in fields(module.Limits):
        yield LimitRow(field.name, int(str(field.default)), reasons.get(field.name, ""))


def _limits_table(page: Page) -> Iterator[str]:
    yield _sentences(page.unit)
    if page.limits:
        rows = "\n".join(f"| `{limit.name}` | {limit.default} | {limit.reason} |" for limit in page.limits)
        yield f"| limit | default | why |\n|---|---|---|\n{rows}"
        settings = "\n".join(f"    {limit.name}: {limit.default}" for limit in page.limits)
        yield "In a [policy](../policy.md), with their defaults:"
        yield f"```yaml\ndetectors:\n  {page.code}:\n{settings}\n```"


def _sentences(text: str) -> str:
    """One sentence a line; a full stop inside brackets or before a small letter ends none."""
    folded = " ".join(text.split())
    return re.sub(r"(?<=[.?!])\s+(?=[A-Z`*])", "\n", folded)


def _fenced(lines: tuple[str, ...]) -> str:
    return "\n".join(("```text", *lines, "```"))


@cache
def _standard() -> Policy:
    from streamproc.policy import load_policy

    return load_policy()


def _play(code: str, example: Example) -> Played:
    """What this detector says of an example, turn by turn, under the standard policy."""
    from streamproc.monitor import Monitor

    monitor = Monitor(_standard() if example.policy is None else example.policy)
    lines = []
    index = -1
    told = 0
    for number, turn in enumerate(example.turns):
        answers = [control for control in monitor.feed(run_id="example", **turn) if control.code == code]
        is_turn = turn.get("type", "turn") == "turn"
        index += is_turn
        if number < TURNS_SHOWN or answers:
            lines.append(f"{index if is_turn else '':>3}  {_turn(turn)}")
        elif number == TURNS_SHOWN:
            lines.append("     …")
        lines += [_answer(control) for control in answers]
        told += len(answers)
    if not told:
        lines.append("     → nothing")
    return Played(example.title, tuple(lines))


def _answer(control: ControlEvent) -> str:
    return f"     → {control.severity}: {control.message}"


def _turn(turn: dict[str, Any]) -> str:
    parts = [f"{turn['node']}:" if "node" in turn else f"{turn.get('type', 'turn')}:"]
    for made in turn.get("tool_calls", ()):
        answer = f" -> {_short(made['result'])}" if "result" in made else ""
        failure = f" -> error {_short(made['error'])}" if "error" in made else ""
        parts.append(f"{made['name']}({_short(made.get('args'))}){answer}{failure}")
    skipped = ("node", "type", "tool_calls")
    parts += [f"{name}={_short(value)}" for name, value in turn.items() if name not in skipped]
    return " ".join(parts)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= TEXT_SHOWN else f"{text[: TEXT_SHOWN - 1]}…"
