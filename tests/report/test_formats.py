"""The files that reports become: the same bytes each time, nothing of the log becomes markup, at most 2 MB."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from streamproc.report import Recording, building, html_of, json_of, markdown_of, report_of
from streamproc.report.markdown import code, prose
from streamproc.report.markup import VOID, Html, foreign, safe, tag
from streamproc.report.writing import BYTES_MAX, report_text, write_report
from tests.report.runs import HOSTILE, LOOPING, SAMPLES, call, hostile, looping, recorded, turn, written

GOLDEN: Final = Path(__file__).parent / "golden"
ALLOWED: Final = {
    "html", "head", "meta", "title", "link", "style", "body", "header", "main", "footer", "section", "article", "div",
    "span", "p", "h1", "h2", "dl", "dt", "dd", "ul", "ol", "li", "b", "strong", "small", "a", "bdi", "code", "pre",
    "br", "time", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "input", "label", "output",
    "script", "svg", "g", "line", "rect", "circle", "path", "text",
}  # fmt: skip


class Elements(HTMLParser):
    """Reads a page: its elements, their attributes, and whether every one of them ends."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.comments: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID | {"link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def read(page: str) -> Elements:
    """Read a page whose elements are all ours and all end."""
    found = Elements(page)
    assert found.open == []
    assert found.tags <= ALLOWED
    assert found.comments == []
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("style", "src", "srcset")]
    links = [value for name, value in found.attributes if name in ("href", "action", "xlink:href")]
    assert all(value is not None and value.startswith(("#", "data:,")) for value in links)
    return found


@pytest.mark.parametrize("format_", ["html", "md", "json"])
def test_the_same_log_and_policy_give_the_same_bytes(format_: str) -> None:
    once, again = (report_text(recorded(SAMPLES), LOOPING, format_=format_) for _ in range(2))

    assert once == again


@pytest.mark.parametrize("format_", ["html", "md", "json"])
def test_a_report_is_exactly_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    """`STREAMPROC_GOLDEN=write` writes the files again: look at the difference before you commit it."""
    writing = os.environ.get("STREAMPROC_GOLDEN") == "write"
    monkeypatch.setattr(building, "__version__", "1.2.3")
    monkeypatch.chdir(tmp_path)
    written(Path(), looping(budget=50))
    made = report_text(recorded(Path("turns.jsonl")), "loop", format_=format_)

    path = GOLDEN / f"loop.{format_}"
    if writing:
        path.write_text(made)
    assert made == path.read_text()


def test_only_a_dated_report_says_when_it_was_made(tmp_path: Path) -> None:
    report = report_of(recorded(written(tmp_path, looping())))

    assert "Made at" not in html_of(report)
    assert "Made at 2026-01-02T00:00:00Z" in html_of(report, "2026-01-02T00:00:00Z")
    assert "Made at 2026-01-02T00:00:00Z" in markdown_of(report, "2026-01-02T00:00:00Z")


# -- text of others


def test_no_text_of_a_log_becomes_markup(tmp_path: Path) -> None:
    path = written(tmp_path, hostile())
    run_id = next(iter(recorded(path).histories))
    for report in (report_of(recorded(path), run_id), report_of(recorded(path))):
        page = html_of(report)
        found = read(page)

        assert "img" not in found.tags
        assert page.count("<script>") == 1
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert "\u200b" not in page
        assert r"\u202e" in page


def test_no_text_of_a_log_becomes_markdown(tmp_path: Path) -> None:
    text = markdown_of(report_of(recorded(written(tmp_path, hostile()))))

    lines = [line for line in text.splitlines() if not line.startswith("    ")]  # without blocks of code
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", "\n".join(lines))  # and spans
    assert not re.search(r"(?<!\\)<\w", outside)
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert "\u202e" not in text


def test_all_texts_of_others_are_isolated(tmp_path: Path) -> None:
    page = html_of(report_of(recorded(written(tmp_path, looping()))))

    assert '<code dir="auto">git status</code>' in page
    assert "https://" not in page


@given(st.text())
def test_no_text_becomes_a_tag(text: str) -> None:
    for made in (safe(text), foreign(text), tag("p", text, title=text), Html("<b>{}</b>").format(text), Html() + text,
                 text + Html(), Html(" ").join([text, text])):  # fmt: skip
        found = Elements(made)
        assert found.open == []
        assert found.tags <= {"p", "b", "bdi"}
        assert found.comments == []


@given(st.text(min_size=1))
def test_no_text_leaves_its_code_span(text: str) -> None:
    shown = code(text)
    if shown:
        fence = re.match("`+", shown)
        inner = shown[len(fence[0]) : -len(fence[0])]
        assert fence[0] not in re.findall("`+", inner)
        assert "\n" not in shown


@given(st.text(alphabet="`*_[]()<>#|!~\\ab\n"))
def test_no_mark_of_prose_has_a_meaning(text: str) -> None:
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<>#|~]", prose(text).replace("\\\\", ""))


def test_markup_cannot_be_filled_in_without_escaping() -> None:
    with pytest.raises(TypeError):
        Html("<b>%s</b>") % HOSTILE


# -- size


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A run of 20 000 turns whose texts take most characters in every format."""
    long = "\u202e<&\"'" * 400  # the longest form of every character
    events = [call(n, f"cat {n} {long}", f"{n} {long}") for n in range(10_000)]
    events += [call(10_000 + n, f"same {long}", long) for n in range(3)]
    events += [turn(10_003 + n, node=f"node{n % 700}", output=f"{n} {long}") for n in range(9_997)]
    return recorded(written(tmp_path_factory.mktemp("long"), events))


@pytest.mark.long
@pytest.mark.parametrize("format_", ["html", "md", "json"])
def test_a_run_of_20_000_turns_fits(long_run: Recording, format_: str) -> None:
    made = report_text(long_run, "loop", format_=format_)

    assert len(made.encode()) <= BYTES_MAX
    assert "20\u202f000" in made or "20000" in made
    if format_ != "json":
        assert re.search(r"… [\d\u202f]+ turns left out", made)


def test_many_stuck_runs_fit(tmp_path: Path) -> None:
    long = "\u202e<&\"'" * 60
    events = [event for n in range(700) for event in looping(f"{n}{long}"[:180], before=1, after=1)]
    path = tmp_path / "report.html"
    write_report(path, recorded(written(tmp_path, events)))

    assert path.stat().st_size <= BYTES_MAX
    assert "700 runs" in path.read_text()
    read(path.read_text())


def test_every_format_has_the_sentence(tmp_path: Path) -> None:
    report: Any = report_of(recorded(written(tmp_path, looping())))

    for made in (html_of(report), json_of(report), markdown_of(report)):
        assert "bash returned the same result for the same arguments at turns 5, 6 and 7" in made
