"""MkDocs hooks: pages from outside of docs/ or made of other files, and links that are right on GitHub and in the site.

Pages link to each other by their paths in the repository. In the site, a link to a page of the site stays a link to
that page. A link to any other file becomes a link into the repository if `repo_url` is set, and plain text if not.
"""
# ruff: noqa: INP001

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

from docs import asyncapi_page
from docs.detector_markdown import markdown
from streamproc.cli.detector_page import read_page
from streamproc.detectors import BY_CODE

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
OUTSIDE: Final = (
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/local/README.md", "examples/*/README.md",
)  # fmt: skip
"""Pages of the site that are not in docs/, as patterns of paths in the repository."""

BRANCH: Final = "main"
DETECTORS: Final = "detectors/"

_ROW: Final = re.compile(r'(<a id="\w+"></a>)(\w+)')
_FENCE: Final = re.compile(r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")


def on_config(config: MkDocsConfig) -> None:
    """Write the entry `detectors/` of the navigation out: one page for each detector."""
    for section in config.nav or ():
        for entries in section.values():
            if isinstance(entries, list):
                entries[:] = [{title: _pages(target)} for entry in entries for title, target in entry.items()]


def _pages(target: str) -> str | list[str]:
    if target != DETECTORS:
        return target
    return [f"{DETECTORS}README.md", *(f"{DETECTORS}{code}.md" for code in sorted(BY_CODE))]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/, those of the detectors, and the one made of the AsyncAPI document."""
    for path in outside():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for code, module in BY_CODE.items():
        files.append(File.generated(config, f"{DETECTORS}{code}.md", content=markdown(read_page(module))))
    files.append(File.generated(config, asyncapi_page.PAGE, content=asyncapi_page.markdown()))
    return files


def outside() -> Iterator[str]:
    """The paths of these pages in the repository, which are their paths in the site, too."""
    for pattern in OUTSIDE:
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page. In the site, the list of detectors leads to their pages."""
    known = {file.src_uri for file in files}
    if page.file.src_uri == f"{DETECTORS}README.md":
        text = _ROW.sub(r"\1[\2](\2.md)", text)
    return rewrite(text, page.file.src_uri, known, config.repo_url or "")


def rewrite(markdown: str, home: str, known: Container[str], repo_url: str) -> str:
    """The Markdown of the page `home` with links that are right in the site; code blocks stay as they are.

    `known` has the paths of the site's files.
    """
    origin = home if home in set(outside()) else f"docs/{home}"

    def rewritten(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        path, hash_sign, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        in_site, anchor = _detector_page(_in_site(there), anchor, known)
        hash_sign = "#" if anchor else ""
        if in_site in known:
            relative = posixpath.relpath(in_site, posixpath.dirname(home) or ".")
            return f"{link['image']}[{link['text']}]({relative}{hash_sign}{anchor})"
        if not (ROOT / there).exists():
            return link[0]  # the strict build reports it
        if repo_url:
            return f"[{link['text']}]({repo_url.rstrip('/')}/blob/{BRANCH}/{there}{hash_sign}{anchor})"
        return link["text"]

    pieces, end = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_LINK.sub(rewritten, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, _LINK.sub(rewritten, markdown[end:])])


def _detector_page(path: str, anchor: str, known: Container[str]) -> tuple[str, str]:
    """The page of a detector and no anchor, for a link to its row in the list of detectors."""
    page = f"{DETECTORS}{anchor.upper()}.md"
    return (page, "") if path == f"{DETECTORS}README.md" and page in known else (path, anchor)


def _in_site(path: str) -> str:
    """The path in the site of a file of the repository, if it is a page there: docs/ is the site's root."""
    if path == "README.md":
        return "index.md"
    if path == asyncapi_page.SOURCE:
        return asyncapi_page.PAGE
    return path.removeprefix("docs/")
