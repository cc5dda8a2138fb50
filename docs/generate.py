"""Write the generated parts of the documentation: detector pages, tables of settings, topics and budgets, figures.

The figures of benchmarks/README.md also become those of `streamproc plan`.

    .venv/bin/python docs/generate.py

Generated parts of a page stand between `<!-- made:NAME:begin -->` and `<!-- made:NAME:end -->`; the rest is its own.
`tests/docs/test_generated.py` fails if a page and the code differ.
"""
# ruff: noqa: INP001

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from docs.chart_values import rows as chart_value_rows
from streamproc.cli import build
from streamproc.cli.detector_page import Page, read_page
from streamproc.cli.measured_figures import BUILT_IN, SOURCES
from streamproc.core import kind
from streamproc.detectors import BY_CODE, MODULES
from streamproc.kafka.acls import ROLES
from streamproc.kafka.topic_drift import TopicSpec
from streamproc.kafka.topics import DAY_MS, HOUR_MS, MINUTE_MS, specs
from streamproc.metrics.definitions import METRICS
from streamproc.model.budgets import BUDGETS
from streamproc.notify.triggers import TRIGGERS
from streamproc.policy.files import preset_names
from streamproc.settings import Settings

ROOT: Final = Path(__file__).parents[1]


def pages() -> dict[Path, str]:
    """Return every generated or partly generated file with its intended text."""
    found = {BUILT_IN: plan_figures()}
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if path not in found:
            text = path.read_text(encoding="utf-8")
            filled = fill(text)
            if filled != text or "<!-- made:" in text:
                found[path] = filled
    return found


def fill(text: str) -> str:
    """Return the text of a page with its parts generated again. Raises `KeyError` for an unknown part."""
    return re.sub(
        r"(<!-- made:([a-z-]+):begin -->\n).*?(<!-- made:\2:end -->)",
        lambda part: f"{part[1]}{PARTS[part[2]]()}{part[3]}",
        text,
        flags=re.DOTALL,
    )


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def detectors() -> str:
    """List all detectors by code."""
    rows = []
    for module in sorted(MODULES, key=lambda module: str(module.DETECTOR.code)):
        page = read_page(module)
        rows.append(
            (f'<a id="{page.code.lower()}"></a>{page.code}', page.name, page.summary, _defaults(page, module.DETECTOR))
        )
    return table(("code", "name", "sees", "default"), rows)


def _defaults(page: Page, detector: Any) -> str:
    levels = [limit for limit in page.limits if re.search(r"warn|halt", limit.name)]
    shown = [f"{limit.name} {limit.default}" for limit in levels if limit.default]
    budgeted = detector.kinds & _BUDGETS and not detector.kinds & ~(_BUDGETS | kind.CLOCK)
    declared = ["only where a budget is declared"] if budgeted else []
    return ", ".join(f"{name}".replace("_", " ") for name in declared + shown)


_BUDGETS: Final = kind.BUDGET | kind.CYCLE | kind.SPENDING


def settings() -> str:
    """List every setting as an environment variable."""
    rows = [
        (f"`STREAMPROC_{name.upper()}`", _default(field), _meaning(name, field))
        for name, field in Settings.model_fields.items()
    ]
    return table(("variable", "default", "meaning"), rows)


def _default(field: FieldInfo) -> str:
    value = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
    return f"`{value}`" if value not in ("", None) else ""


def _meaning(name: str, field: FieldInfo) -> str:
    choices = getattr(field.annotation, "__args__", ())
    listed = [f"`{choice}`" for choice in choices if isinstance(choice, str)]
    text = field.description or _UNDESCRIBED[name]
    return f"{text}; {', '.join(listed)}" if listed else text


_UNDESCRIBED: Final = {
    "security_protocol": "how to connect to Kafka",
    "sasl_mechanism": "with a SASL protocol",
    "sasl_username": "with a SASL protocol, but not with OAUTHBEARER",
    "sasl_password": "of that user",
    "ssl_password": "of the key",
}


def topics() -> str:
    """List every topic of a deployment with the default settings."""
    rows = [(f"`{spec.name}`", spec.purpose, _cleanup(spec), _more(spec)) for spec in specs(Settings.model_construct())]
    return table(("topic", "purpose", "kept", "besides"), rows)


def _cleanup(spec: TopicSpec) -> str:
    policy, retention = spec.config["cleanup.policy"], spec.config.get("retention.ms")
    kept = "the last record of each key" if "compact" in policy else ""
    days = f"{int(retention) // DAY_MS} days" if retention else ""
    return ", ".join(part for part in (kept, days) if part)


def _more(spec: TopicSpec) -> str:
    skipped = {"cleanup.policy", "retention.ms"}
    return ", ".join(f"{name} {_duration(name, value)}" for name, value in spec.config.items() if name not in skipped)


def _duration(name: str, value: str) -> str:
    if not name.endswith(".ms"):
        return value
    for unit, length in (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS)):
        if int(value) % length == 0:
            return f"{int(value) // length} {unit}"
    return f"{value} ms"


def budgets() -> str:
    """Every budget that can be declared."""
    enforced: dict[str, list[str]] = {}
    for code in sorted(BY_CODE):
        for name in getattr(BY_CODE[code].DETECTOR, "budgets", ()):
            enforced.setdefault(name, []).append(code)
    rows = []
    for budget in BUDGETS:
        checked = ", ".join(f"[{code}](detectors/README.md#{code.lower()})" for code in enforced[budget.name])
        unit = budget.unit.replace("micro_usd", "USD")
        rows.append((f"`{budget.name}`", budget.limits, unit, budget.ceiling or "", checked))
    return table(("budget", "limits", "unit", "ceiling", "checked by"), rows)


def presets() -> str:
    """List the presets with the first line of their files."""
    rows = []
    for name in preset_names():
        text = (ROOT / "streamproc" / "policy" / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
        says = text.partition("\n")[0].removeprefix("# ")
        rows.append((f"[`{name}`](../streamproc/policy/presets/{name}.yaml)", says))
    return table(("preset", "for"), rows)


def triggers() -> str:
    """List the triggers of notifications."""
    rows = [(f"`{one.name}`", f"`{one.type}`", one.urgency.name, one.what, one.reason) for one in TRIGGERS]
    return table(("trigger", "type", "urgency", "when", "why so urgent"), rows)


def metrics() -> str:
    """List all metrics."""
    rows = [
        (
            f"`{one.name}`",
            one.kind,
            ", ".join(f"`{label}`" for label in one.labels),
            ", ".join(one.programs),
            one.meaning,
        )
        for one in METRICS
    ]
    return table(("name", "kind", "labels", "shown by", "meaning"), rows)


def acls() -> str:
    """List the rights that each role needs."""
    rows = []
    for role in ROLES:
        allowed: dict[tuple[str, str], list[str]] = {}
        for right in role.rights:
            allowed.setdefault((", ".join(right.operations), right.resource), []).append(f"`{right.name}`")
        said = [
            f"{what} on {'group ' if kind == 'group' else ''}{', '.join(names)}"
            for (what, kind), names in allowed.items()
        ]
        rows.append((f"`{role.name}`", role.programs, "; ".join(said)))
    return table(("role", "who", "may"), rows)


class Headline(NamedTuple):
    """A figure of the README: its label, the page of its table, patterns that find its row there by the first cell and
    by the cell `beside`, and its text, with `<column>` for a cell."""

    what: str
    page: str
    row: str
    beside: str
    figure: str


QUALITY, PERFORMANCE = "quality", "performance"
TABLES: Final = {QUALITY: ROOT / "docs" / "quality.md", PERFORMANCE: ROOT / "benchmarks" / "README.md"}
COMMANDS: Final = {QUALITY: "make quality", PERFORMANCE: "make bench"}
HEADLINES: Final = (
    Headline("planted loops found; median (longest) delay in turns", QUALITY, r"\*\*all detectors", "",
             "<found>; <delay: median (most)>"),
    Headline("false halts on synthetic honest work; on solved real runs; warnings per 1 000 turns of these", QUALITY,
             r"\*\*all detectors", "",
             "<false halts, honest work>; <false halts, solved runs>; <warnings per 1 000 turns>"),
    Headline("throughput of one worker: all detectors, states and decisions on Kafka", PERFORMANCE,
             "worker, all detectors", "core in pure Python", "<figure> compiled, <its figure> in pure Python"),
    Headline("from publishing a turn to cancelling the agent, median, at 1 000 turns/s", PERFORMANCE,
             "publish → guard fires, .* p50", "bare round trip", "<figure>, <ratio> a bare round trip"),
    Headline("from `kill -9` of a worker to the first decision after its restart", PERFORMANCE,
             "kill -9 .*restarted under the same name", "", "<figure>"),
)  # fmt: skip


def headlines() -> str:
    """Return the figures of the README, from the tables of both."""
    rows = []
    for line in HEADLINES:
        row = measured(line)
        source = f"`{COMMANDS[line.page]}`, [{line.page}](docs/{line.page}.md#the-figures)"
        rows.append((line.what, re.sub(r"<(.+?)>", lambda name, row=row: row[name[1]], line.figure), source))
    machines = dict.fromkeys(_machine(page) for page in COMMANDS)
    return table(("measured", "figure", "by"), rows) + f"\nMachine: {'; '.join(machines)}.\n"


def measured(line: Headline) -> dict[str, str]:
    """Return the row of a headline, by column. Raises `ValueError` unless exactly one row matches."""
    lines = re.findall(r"^\| (.*) \|$", _figures(line.page), re.MULTILINE)
    head, *rows = ([cell.strip() for cell in text.split(" | ")] for text in lines)
    # Two columns may have one name: the first one counts.
    named = [dict(zip(reversed(head), reversed(row), strict=True)) for row in rows]
    found = [
        row for row in named
        if re.match(line.row, row[head[0]]) and re.search(line.beside, row.get("compared with", ""))
    ]  # fmt: skip
    if len(found) != 1:
        raise ValueError(f"{TABLES[line.page]} has {len(found)} rows for the figure of the README: {line.what}")
    return found[0]


def _figures(page: str) -> str:
    text = TABLES[page].read_text(encoding="utf-8")
    return re.search(r"<!-- (quality|bench):begin -->\n(.*?)<!-- \1:end -->", text, re.DOTALL)[2]  # type: ignore[index]


def _machine(page: str) -> str:
    return re.search(r"^Machine: (.+?)\.?$", _figures(page), re.MULTILINE)[1]  # type: ignore[index]


def plan_figures() -> str:
    """Return the rows of benchmarks/README.md that `streamproc plan` uses, as its file of figures. Raises `ValueError`
    unless exactly one row is meant by each figure, in the unit that the plan expects."""
    figures = {one.field: _number(_measured_cell(one.what)) * one.factor for one in SOURCES}
    machine = f"docs/performance.md: {_machine(PERFORMANCE)}"
    return json.dumps({"source": machine, "figures": figures}, indent=1) + "\n"


def _measured_cell(what: str) -> str:
    """Return the cell `figure` of the rows with this first cell; of several rows it is the same."""
    cells = {
        cell.strip()
        for first, cell in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", _figures(PERFORMANCE), re.MULTILINE)
        if re.match(what, first)
    }
    if len(cells) != 1:
        raise ValueError(f"benchmarks/README.md has {len(cells)} figures for {what}; run the whole `make bench`")
    return cells.pop()


def _number(cell: str) -> float:
    """Return the number in front of a cell's unit."""
    return float(re.match(r"[\d. ]*\d", cell)[0].replace(" ", ""))  # type: ignore[index]


def plans() -> str:
    """Return the sessions of docs/scaling.md: each command with what it prints."""
    return "".join(map(_session, PLANS))


def _session(step: tuple[str, str]) -> str:
    title, command = step
    result = CliRunner().invoke(build(), shlex.split(command)[1:])
    if result.exit_code:
        raise ValueError(f"{command}: {result.output}")
    return f"### {title}\n\n```console\n$ {command}\n{result.output}```\n\n"


PLANS: Final = (("A thousand runs", "streamproc plan --runs 1000 --turns-per-second 100"),)


def chart_values() -> str:
    """List the values of the Helm chart."""
    return table(("value", "default", "meaning"), chart_value_rows())


PARTS: Final = {
    "chart-values": chart_values,
    "headlines": headlines,
    "acls": acls,
    "detector-index": detectors,
    "settings": settings,
    "topics": topics,
    "budgets": budgets,
    "plans": plans,
    "metrics": metrics,
    "presets": presets,
    "triggers": triggers,
}


def main() -> None:
    """Write the files that differ. The plan's figures come first: pages show what the plan makes of them."""
    BUILT_IN.write_text(plan_figures(), encoding="utf-8")
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
