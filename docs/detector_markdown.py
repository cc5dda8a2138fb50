"""The page of a detector as Markdown."""
# ruff: noqa: INP001

from __future__ import annotations

import re
from collections.abc import Iterator

from streamproc.cli.detector_page import FIRES, SILENT, Page


def markdown(page: Page) -> str:
    """Return the page as Markdown, one sentence per line."""
    parts = [f"# {page.code} {page.name}", _sentences(page.summary[:1].upper() + page.summary[1:])]
    for title, text in page.sections:
        parts += [f"## {title}", _sentences(text[:1].upper() + text[1:])]
    parts += ["## Limits", *_limits_table(page)]
    if rows := "\n".join(f"| `{row.name}` | {row.meaning} |" for row in page.evidence):
        parts += ["## Evidence", f"Its decisions have, where it is known:\n\n| field | meaning |\n|---|---|\n{rows}"]
    for title, examples in ((FIRES, page.firing), (SILENT, page.silent)):
        parts.append(f"## {title}")
        for example in examples:
            parts += [f"**{example.title[:1].upper()}{example.title[1:]}**", _fenced(example.lines)]
    return "\n\n".join(parts) + "\n"


def _limits_table(page: Page) -> Iterator[str]:
    yield _sentences(page.unit)
    if page.limits:
        rows = "\n".join(f"| `{limit.name}` | {limit.default} | {limit.reason} |" for limit in page.limits)
        yield f"| limit | default | why |\n|---|---|---|\n{rows}"
        settings = "\n".join(f"    {limit.name}: {limit.default}" for limit in page.limits)
        yield "Set them in a [policy](../policy.md); these are the defaults:"
        yield f"```yaml\ndetectors:\n  {page.code}:\n{settings}\n```"


def _sentences(text: str) -> str:
    """Put each sentence on its own line. A full stop before a lower-case letter does not end a sentence."""
    folded = " ".join(text.split())
    return re.sub(r"(?<=[.?!])\s+(?=[A-Z`*])", "\n", folded)


def _fenced(lines: tuple[str, ...]) -> str:
    return "\n".join(("```text", *lines, "```"))
