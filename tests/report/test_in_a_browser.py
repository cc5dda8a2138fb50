"""Reports in a real Chromium: no request, no error, readable in light and dark, on paper, and on a narrow screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamproc.report.writing import write_report
from tests.report.runs import LOOPING, ROOT, SAMPLES, hostile, looping, recorded, written

pytestmark = pytest.mark.browser

CONTRAST = """() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    const shape = element.closest("svg") && element.parentElement.querySelector(".node, [class^=flag-]");
    const before = element.previousElementSibling;
    const known = shape && before && /^(node|flag-)/.test(before.getAttribute("class") || "");
    if (known) return rgb(getComputedStyle(before).fill);
    for (let one = element; one; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      if (found.length && (found.length < 4 || found[3] > 0)) return found;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || ["SCRIPT", "TITLE", "title"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const colour = rgb(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(colour), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const what = `${element.tagName}.${element.getAttribute("class")} ${element.textContent.slice(0, 30)}`;
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)}: ${what}`);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of very different runs."""
    folder = tmp_path_factory.mktemp("reports")
    safety = ROOT / "examples" / "loop_safety"
    policy = str(safety / "policy.yaml")
    attack = written(folder, hostile(), "hostile.jsonl")
    wanted = {
        "call": (recorded(SAMPLES), LOOPING, None),
        "tests": (recorded(safety / "turns.jsonl", policy=policy), "bugfix/same-tests", policy),
        "long": (recorded(written(folder, looping(before=900, after=300, budget=5_000))), "loop", None),
        "fleet": (recorded(SAMPLES), None, None),
        "hostile": (recorded(attack), None, None),
    }
    for name, (recording, run_id, source) in wanted.items():
        write_report(folder / f"{name}.html", recording, run_id, source)
    return {name: folder / f"{name}.html" for name in wanted}


NAMES = ("call", "tests", "long", "fleet", "hostile")
every_report = pytest.mark.parametrize("name", NAMES)


class Opened:
    """A report in a page, with everything that the page complained about and asked for."""

    def __init__(self, chromium: Any, path: Path, **options: Any) -> None:
        self.context = chromium.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.path = path

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.complaints == []
        assert [url for url in self.requests if url != self.path.as_uri()] == []


@pytest.mark.long
@every_report
def test_it_opens_without_an_error_or_a_request(chromium: Any, reports: dict[str, Path], name: str) -> None:
    with Opened(chromium, reports[name], offline=True) as page:
        assert page.locator("h1").first.is_visible()
        assert page.locator("h1").count() == 1


def test_the_sentence_is_seen_first(chromium: Any, reports: dict[str, Path]) -> None:
    with Opened(chromium, reports["call"]) as page:
        seen = page.locator("h1")
        assert "Bash returned the same result for the same arguments" in seen.inner_text()
        assert seen.bounding_box()["y"] < 200
        assert "Halted at turn 10 of 40" in page.locator("header").inner_text()


@every_report
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(chromium: Any, reports: dict[str, Path], name: str, scheme: str) -> None:
    with Opened(chromium, reports[name], color_scheme=scheme) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate(CONTRAST) == []


@every_report
def test_a_narrow_screen_does_not_scroll_sideways(chromium: Any, reports: dict[str, Path], name: str) -> None:
    with Opened(chromium, reports[name], viewport={"width": 400, "height": 800}) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


@every_report
def test_it_prints(chromium: Any, reports: dict[str, Path], name: str) -> None:
    with Opened(chromium, reports[name]) as page:
        pdf = page.pdf()
        assert pdf.startswith(b"%PDF")
        assert len(pdf) > 10_000


def test_without_script_everything_is_shown(chromium: Any, reports: dict[str, Path]) -> None:
    with Opened(chromium, reports["call"], java_script_enabled=False) as page:
        assert page.locator("#turns tbody tr").count() == 40
        assert all(page.locator("#turns tbody tr").nth(number).is_visible() for number in (0, 20, 39))
        assert page.locator(".filter").count() == 1
        assert not page.locator(".filter").is_visible()


def test_the_script_folds_and_filters(chromium: Any, reports: dict[str, Path]) -> None:
    with Opened(chromium, reports["call"]) as page:
        rows = page.locator("#turns tbody tr")
        assert not rows.nth(0).is_visible()
        page.locator("#turns summary").click()
        assert rows.nth(0).is_visible()
        page.locator("#turns input[type=checkbox]").check()
        assert page.locator("#turns tbody tr:visible").count() == 4
        page.locator("#turns input[type=checkbox]").uncheck()
        page.locator("#turns input[type=search]").fill("error qq")
        assert page.locator("#turns tbody tr:visible").count() == 1
        assert "1 of 40 rows" in page.locator("#turns output").inner_text()


def test_a_stuck_run_is_one_click_away(chromium: Any, reports: dict[str, Path]) -> None:
    with Opened(chromium, reports["fleet"]) as page:
        page.locator("tbody a").first.click()
        assert page.locator("#run-1 h2").first.is_visible()
        assert page.evaluate("scrollY") > 0


def test_the_policy_of_the_page_lets_no_other_script_run(
    chromium: Any, reports: dict[str, Path], tmp_path: Path
) -> None:
    page_text = reports["call"].read_text().replace("</main>", "<script>document.title = 'ran'</script></main>")
    path = tmp_path / "changed.html"
    path.write_text(page_text)
    context = chromium.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.title() != "ran"
    context.close()
