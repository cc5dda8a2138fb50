"""Every link has a target, and no page depends on one machine."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, anchors, links, pages

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page) -> None:
    lost = []
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            lost.append(link)
        elif anchor and anchor not in anchors(target):
            lost.append(f"{link} (there are {', '.join(sorted(anchors(target)))})")
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_no_local_path(page) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"(?<![\w.])/(?:home|work|root|Users)/\S*", text)
    assert not re.findall(r"\b(?:TODO|FIXME|XXX|TBD)\b", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_has_trailing_space(page) -> None:
    ragged = [number for number, line in enumerate(page.read_text().split("\n"), start=1) if line != line.rstrip()]
    assert not ragged


def test_every_page_in_docs_can_be_reached_from_the_readme() -> None:
    seen = {ROOT / "README.md"}
    waiting = list(seen)
    while waiting:
        page = waiting.pop()
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in seen:
                seen.add(target)
                waiting.append(target)
    assert not [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page not in seen]


def test_the_index_lists_every_page_beside_it() -> None:
    listed = {link.partition("#")[0] for link in links(ROOT / "docs" / "index.md")}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= listed
