"""The list of runs in a real Chromium, over 332 runs: what fits, that nothing overlaps, and the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.web.barriers import barriers
from tests.web.deployment import PageBrowser
from tests.web.many_runs import RUNS, filled_model, served_page

pytestmark = pytest.mark.browser

WIDTHS: Final = (360, 768, 1024, 1280, 1920, 2560)
HEIGHT: Final = 900
OVERLAPS: Final = """
() => {
  const clipped = (one, box) => { // the part of a box that its ancestors do not cut off
    for (let up = one; up && up !== document.body; up = up.parentElement) {
      if (getComputedStyle(up).overflow === "visible") continue;
      const frame = up.getBoundingClientRect();
      box = { left: Math.max(box.left, frame.left), right: Math.min(box.right, frame.right),
              top: Math.max(box.top, frame.top), bottom: Math.min(box.bottom, frame.bottom) };
    }
    return box;
  };
  const boxes = [];
  const take = (one, found, what) => {
    const box = clipped(one, found);
    if (box.right - box.left > 2 && box.bottom - box.top > 2) boxes.push({ ...box, one, what });
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !parent.checkVisibility()) continue;
    if (parent.closest(".unseen, .skip, svg, option")) continue;
    if (getComputedStyle(parent).clipPath !== "none") continue;
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    for (const box of range.getClientRects()) take(parent, box, texts.currentNode.data.slice(0, 40));
  }
  for (const one of document.querySelectorAll("input:not([type=hidden]), select, button, svg, .flag"))
    if (one.checkVisibility()) take(one.parentElement, one.getBoundingClientRect(), one.outerHTML.slice(0, 60));
  boxes.sort((a, b) => a.top - b.top);
  const found = [];
  for (const [at, a] of boxes.entries())
    for (let next = at + 1; next < boxes.length && boxes[next].top < a.bottom - 1; next += 1) {
      const b = boxes[next];
      const apart = a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1;
      if (!apart && !a.one.contains(b.one) && !b.one.contains(a.one)) found.push([a.what, b.what]);
    }
  return { found, boxes: boxes.length };
}
"""


class Lists(PageBrowser):
    """Tabs of a certain width."""

    def opened(self, path: str = "/", width: int = 1280, **options: Any) -> AbstractContextManager[Any]:
        return super().opened(path, viewport={"width": width, "height": HEIGHT}, **options)


@pytest.fixture(scope="module")
def lists(chromium: Any) -> Iterator[Lists]:
    with served_page(filled_model()) as served:
        yield Lists(chromium, served.address)


@pytest.fixture(scope="module")
def read_only(chromium: Any) -> Iterator[Lists]:
    with served_page(filled_model(), commands=False) as served:
        yield Lists(chromium, served.address)


def rows(page: Any) -> Any:
    return page.locator(".list tbody[id] > tr")


def column(page: Any, name: str, group: str = "others") -> list[str]:
    found: list[str] = page.locator(f"#rows-{group} .c-{name}").all_inner_texts()
    return found


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_no_element_overlaps_another(lists: Lists, width: int) -> None:
    with lists.opened(width=width) as page:
        expect(rows(page)).to_have_count(RUNS)
        measured = page.evaluate(OVERLAPS)
        assert measured["boxes"] > 3 * RUNS
        assert measured["found"] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_twenty_runs_fit_on_a_screen(lists: Lists) -> None:
    with lists.opened() as page:
        expect(rows(page)).to_have_count(RUNS)
        tops = rows(page).evaluate_all("all => all.map((one) => one.getBoundingClientRect().bottom)")
        assert sum(bottom <= HEIGHT for bottom in tops) >= 20


def test_a_column_without_content_is_left_out(lists: Lists) -> None:
    with lists.opened(width=1920) as page:
        expect(page.locator("th.c-tests")).to_be_visible()
        expect(page.locator("th.c-loop")).to_be_hidden()
        page.goto(f"{lists.origin}/?text=x004")
        expect(rows(page)).to_have_count(1)
        expect(page.locator("th.c-tests")).to_be_hidden()


def test_a_run_that_works_says_what_it_does_now(lists: Lists) -> None:
    with lists.opened() as page:
        assert set(column(page, "what")) == {"coder: bash"}
        assert all("ago" in one for one in column(page, "heard"))


def test_a_sentence_that_does_not_fit_is_whole_under_the_pointer_and_with_the_focus(lists: Lists) -> None:
    with lists.opened(width=1024) as page:
        cell = rows(page).first.locator(".c-what > span")
        cut = "one => one.scrollWidth > one.clientWidth"
        assert cell.evaluate(cut)
        height = rows(page).first.evaluate("one => one.offsetHeight")
        cell.hover()
        assert not cell.evaluate(cut)
        page.mouse.move(0, 0)
        assert cell.evaluate(cut)
        page.keyboard.press("j")
        assert not cell.evaluate(cut)
        assert rows(page).first.evaluate("one => one.offsetHeight") == height


def test_a_long_id_keeps_its_end_and_is_read_out_whole(lists: Lists) -> None:
    with lists.opened("/?text=jsonl") as page:
        link = rows(page).first.get_by_role("link")
        whole = link.get_attribute("title")
        assert whole.endswith(".jsonl")
        assert link.text_content() == whole
        assert link.evaluate("one => one.querySelector('.id-start').scrollWidth > one.clientWidth")
        assert link.evaluate(
            """one => one.querySelector('.id-end').getBoundingClientRect().right
                <= one.closest('td').getBoundingClientRect().right"""
        )
        expect(page.get_by_role("link", name=whole, exact=True)).to_have_count(1)


def test_any_column_sorts_and_the_address_keeps_it(lists: Lists) -> None:
    with lists.opened(width=1920) as page:
        page.locator("th.c-turns a").click()
        page.wait_for_url(re.compile(r"\?sort=-turns$"))
        expect(page.locator("th.c-turns")).to_have_attribute("aria-sort", "descending")
        turns = [int(one) for one in column(page, "turns")]
        assert turns == sorted(turns, reverse=True)
        assert turns[0] > turns[-1]
        page.locator("th.c-turns a").click()
        page.wait_for_url(re.compile(r"\?sort=turns$"))
        assert [int(one) for one in column(page, "turns")] == turns[::-1]
        page.locator("th.c-workflow a").click()
        names = column(page, "workflow")
        assert names == sorted(names)
        page.locator("th.c-workflow a").click()
        page.locator("th.c-workflow a").click()
        page.wait_for_url(re.compile(r":\d+/$"))


def test_filters_complete_and_are_the_address(lists: Lists) -> None:
    with lists.opened() as page:
        known = page.locator("#known-workflow option").evaluate_all("all => all.map((one) => one.value)")
        assert known == ["bugfix", "customer-support-escalation-europe-west", "nightly"]
        page.get_by_label("State").select_option("halted")
        page.wait_for_url(re.compile(r"\?status=halted$"))
        page.get_by_label("Workflow").fill("bugfix")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"\?workflow=bugfix&status=halted$"))
        assert set(column(page, "workflow", "halted")) == {"bugfix"}
        page.get_by_label("Time").select_option("15m")
        page.wait_for_url(re.compile(r"since=15m$"))
        assert rows(page).count() > 0
        page.goto(f"{lists.origin}/?until=1h")
        expect(page.get_by_text("No run fits")).to_be_visible()
        expect(page.locator(".range")).to_contain_text("the start to")
        page.get_by_role("link", name="Show all runs").click()
        expect(rows(page)).to_have_count(RUNS)


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_nothing_keeps_people_out(lists: Lists, width: int, scheme: str) -> None:
    with lists.opened("/?user=user-1", width, color_scheme=scheme, bypass_csp=True) as page:
        rows(page).first.get_by_role("checkbox").check()
        expect(page.locator("#selection")).to_be_visible()
        assert barriers(page) == []
        if width > 360:
            page.keyboard.press("?")
            expect(page.get_by_role("dialog")).to_be_visible()
            assert barriers(page) == []


def test_the_keyboard_selects_opens_and_explains_itself(lists: Lists) -> None:
    with lists.opened(forgiven=lambda text: "503" in text) as page:  # without a broker, no log is read
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(page.locator("#selection output")).to_have_text("2 runs selected")
        ids = [rows(page).nth(number).get_attribute("id") for number in (0, 2)]
        assert page.url.endswith(f"/?selected={ids[0]},{ids[1]}")
        page.reload()
        expect(page.locator("td > input[name=run]:checked")).to_have_count(2)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("halt the selected runs")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("Escape")
        expect(page.locator("#selection")).to_be_hidden()
        assert page.url.endswith(":" + lists.origin.rpartition(":")[2] + "/")
        page.keyboard.press("/")
        page.keyboard.type("x004")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"\?text=x004$"))
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/runs/x004$"))


def test_an_command_to_several_runs_asks_for_their_number_and_can_be_cancelled(lists: Lists) -> None:
    with lists.opened("/?workflow=bugfix", forgiven=lambda text: "400" in text) as page:
        for group in ("halted", "warned", "others"):
            page.locator(f"#rows-{group} input").first.check()
        page.keyboard.press("h")
        expect(page.locator("#selection [name=reason]")).to_be_focused()
        page.keyboard.type("they spend too much")
        page.get_by_role("button", name="Halt", exact=True).click()
        expect(page.get_by_role("heading", name="Halt: 2 runs")).to_be_visible()
        expect(page.get_by_text("1 selected run left out: not running")).to_be_visible()
        page.get_by_label("Type the number").fill("3")
        page.get_by_role("button", name="Halt", exact=True).click()
        expect(page.get_by_role("alert").filter(has_text="this hits, 2")).to_be_visible()
        expect(page.get_by_label("Reason")).to_have_value("they spend too much")
        page.get_by_role("link", name="Cancel").click()
        page.wait_for_url(re.compile(r"/\?workflow=bugfix$"))


def test_what_does_not_fit_the_selected_runs_says_why(lists: Lists) -> None:
    with lists.opened(forgiven=lambda text: "400" in text) as page:
        page.locator("#rows-others input").first.check()
        page.keyboard.press("v")
        expect(page.get_by_role("alert").filter(has_text="none of them is halted")).to_be_visible()
        page.get_by_role("link", name="Go back").click()
        expect(rows(page)).to_have_count(RUNS)


def test_those_who_may_not_command_select_nothing_and_read_why(read_only: Lists) -> None:
    with read_only.opened() as page:
        expect(rows(page)).to_have_count(RUNS)
        expect(page.get_by_role("checkbox")).to_have_count(0)
        expect(page.locator("#selection")).to_have_count(0)


def test_times_have_one_zone_that_is_named_and_can_be_changed(lists: Lists) -> None:
    with lists.opened("/?since=2026-01-01T12:00:00Z&until=2099-01-01", timezone_id="Asia/Tokyo") as page:
        zone = page.locator("#zone")
        expect(zone).to_have_text("Asia/Tokyo")
        first = page.locator(".range time").first
        expect(first).to_contain_text("21:00")
        assert first.get_attribute("title") == "2026-01-01 21:00:00 Asia/Tokyo"
        zone.click()
        expect(zone).to_have_text("UTC")
        expect(first).to_contain_text("12:00")
        page.reload()
        expect(zone).to_have_text("UTC")
        assert first.get_attribute("title") == "2026-01-01 12:00:00 UTC"
