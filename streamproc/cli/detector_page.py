"""The page of a detector, built from its file: `streamproc explain CODE` prints it, and the site of the documentation
has it (`docs/detector_markdown.py`).

The examples run while the page is built, so a page always shows what the detector reports.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc import detectors
from streamproc.detectors.base import Detector
from streamproc.model.controls import ControlEvidence
from streamproc.policy import Policy, load_policy
from streamproc.policy.plugins import vars_of

if TYPE_CHECKING:
    from streamproc.detectors import DetectorFile
    from streamproc.detectors.base import Example
    from streamproc.policy.plugin_detector import PluginDetector

TURNS_SHOWN: Final = 8  # of an example; turns with a finding are always shown
TEXT_SHOWN: Final = 60  # characters of an argument, result or output
FIRES: Final = "Must fire"
SILENT: Final = "Must stay silent"


class LimitRow(NamedTuple):
    """A parameter of a detector: its default, and the reason for it."""

    name: str
    default: int | float | str
    reason: str


class EvidenceRow(NamedTuple):
    """A field of the evidence that a detector declares, and what it says."""

    name: str
    meaning: str


class PlayedExample(NamedTuple):
    """An example after its run: its turns and the findings, line by line."""

    title: str
    lines: tuple[str, ...]


class Page(NamedTuple):
    """A detector's page. `sections` come from the docstring: Sees, Why, False alarms, Tuning, Reference."""

    code: str
    name: str
    summary: str
    sections: tuple[tuple[str, str], ...]
    unit: str
    limits: tuple[LimitRow, ...]
    evidence: tuple[EvidenceRow, ...]
    firing: tuple[PlayedExample, ...]
    silent: tuple[PlayedExample, ...]


class PageLine(NamedTuple):
    """A line for a terminal. If it is folded, continuation lines are indented by `hang` columns; `prose` is a
    paragraph whose own line breaks do not matter."""

    text: str
    hang: int = 0
    prose: bool = False


def read_page(module: DetectorFile, *, played: bool = True) -> Page:
    """Build the page of a detector's module; `played=False` omits the examples."""
    detector = module.DETECTOR
    head, *paragraphs = (inspect.getdoc(module) or "").split("\n\n")
    return _page(detector, head.partition(": ")[2], paragraphs, _reasons(module))._replace(
        firing=tuple(_play(detector.code, example) for example in module.STUCK if played),
        silent=tuple(_play(detector.code, example) for example in module.HEALTHY if played),
    )


def read_plugin_page(plugin: PluginDetector) -> Page:
    """Build the page of a plug-in, from the docstrings of its class and its limits. It has no examples."""
    text = inspect.getdoc(plugin.written)  # that of our base class, if it has none of its own
    head, *paragraphs = (text if text and text != inspect.getdoc(Detector) else "no description").split("\n\n")
    return _page(plugin, head, paragraphs, {})


def _page(
    detector: Detector | PluginDetector, summary: str, paragraphs: Iterable[str], reasons: Mapping[str, str]
) -> Page:
    """Return a page without examples. A paragraph without a title is a note."""
    sections = [paragraph.partition(": ") if ": " in paragraph else ("Note", "", paragraph) for paragraph in paragraphs]
    limits, meanings = vars_of(detector.Limits()).items(), _meanings()
    return Page(
        code=detector.code,
        name=detector.name,
        summary=summary,
        sections=tuple((title, text) for title, _, text in sections),
        unit=inspect.getdoc(detector.Limits) or "",
        limits=tuple(LimitRow(name, default, reasons.get(name, "")) for name, default in limits),
        evidence=tuple(EvidenceRow(name, meanings[name]) for name in detector.evidence),
        firing=(),
        silent=(),
    )


def plain(page: Page) -> Iterator[PageLine]:
    """Return the page as lines for a terminal."""
    yield PageLine(f"{page.code} {page.name}: {page.summary}", prose=True)
    for title, text in page.sections:
        yield PageLine("")
        yield PageLine(f"{title}: {text}", prose=True)
    yield PageLine("")
    if page.limits:
        yield PageLine(f"Limits, in a policy under `detectors: {page.code}:`")
        for limit in page.limits:
            yield PageLine(f"    {limit.name} = {limit.default}{f'  ({limit.reason})' if limit.reason else ''}", hang=8)
        yield PageLine("")
    if page.evidence:
        yield PageLine("Evidence in its decisions:")
        for row in page.evidence:
            yield PageLine(f"    {row.name}{f': {row.meaning}' if row.meaning else ''}", hang=8)
        yield PageLine("")
    for title, examples in ((FIRES, page.firing), (SILENT, page.silent)):
        if examples:
            yield PageLine(f"{title}:")
        for example in examples:
            yield PageLine(f"  {example.title}", hang=2)
            yield from (PageLine(f"    {line}", hang=11) for line in example.lines)
            yield PageLine("")


def _reasons(module: DetectorFile) -> dict[str, str]:
    """Return the comments of a detector's limits, by name."""
    source = (Path(detectors.__file__).parent / f"{module.__name__.rpartition('.')[2]}.py").read_text("utf-8")
    limits = source.partition("class Limits:")[2].partition("\n    def ")[0]
    return dict(re.findall(r"^\s+(\w+): [^#\n]+#\s*(.+)$", limits, re.MULTILINE))


def _meanings() -> dict[str, str]:
    """Return what each field of evidence says."""
    fields = ControlEvidence.model_json_schema()["properties"]
    return {name: field.get("description", "") for name, field in fields.items()}


@cache
def _standard() -> Policy:
    return load_policy()


def _play(code: str, example: Example) -> PlayedExample:
    """Run an example, under the standard policy unless it has its own, and collect this detector's findings."""
    from streamproc.monitor import Monitor

    monitor = Monitor(_standard() if example.policy is None else example.policy)
    lines = []
    index = -1
    findings = 0
    for number, turn in enumerate(example.turns):
        controls = [control for control in monitor.feed({"run_id": "example"} | turn) if control.code == code]
        is_turn = turn.get("type", "turn") == "turn"
        index += is_turn
        if number < TURNS_SHOWN or controls:
            lines.append(f"{index if is_turn else '':>3}  {_turn(turn)}")
        elif number == TURNS_SHOWN:
            lines.append("     …")
        lines += [f"     → {control.severity}: {control.message}" for control in controls]
        findings += len(controls)
    if not findings:
        lines.append("     → nothing")
    return PlayedExample(example.title, tuple(lines))


def _turn(turn: dict[str, Any]) -> str:
    parts = [f"{turn['node']}:" if "node" in turn else f"{turn.get('type', 'turn')}:"]
    for call in turn.get("tool_calls", ()):
        result = f" -> {_short(call['result'])}" if "result" in call else ""
        failure = f" -> error {_short(call['error'])}" if "error" in call else ""
        parts.append(f"{call['name']}({_short(call.get('args'))}){result}{failure}")
    skipped = ("node", "type", "tool_calls")
    parts += [f"{name}={_short(value)}" for name, value in turn.items() if name not in skipped]
    return " ".join(parts)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= TEXT_SHOWN else f"{text[: TEXT_SHOWN - 1]}…"
