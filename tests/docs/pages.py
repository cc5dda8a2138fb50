"""The documentation as data: pages, their blocks of code, their headings and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>[a-z]*)\n(?P<text>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"<!-- (?P<mark>[^>]+) -->\n\Z")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block: its page, the line of its fence, its language, its text, and the comment above it, if any."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every documentation page: at the top level, in docs/, schemas/, deploy/, benchmarks/ and the examples."""
    found = [*ROOT.glob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    for folder in ("docs", "schemas", "examples", "benchmarks"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(path for path in found if "node_modules" not in path.parts)


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        above = _MARK.search(text[: found.start()])
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["language"], found["text"], above["mark"] if above else "")


def runs_elsewhere(page: Path) -> bool:
    """Whether a page is about a framework that .venv has not got: `make integrations` runs its Python blocks."""
    extra = page.stem.replace("_", "-")
    return page.parent.name == "integrations" and (ROOT / "tests" / "frameworks" / extra / "requirements.lock").exists()


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links."""
    yield from _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes for a page's headings, and those that the page sets itself."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    own = set(re.findall(r'<a id="([\w-]+)"></a>', prose(page)))
    return own | {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
