"""The page in a real Chromium, over a real Kafka and a real worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from streamproc.demo.agents import GRAPH
from tests.web.barriers import barriers
from tests.web.deployment import LiveDeployment, PageBrowser, bash, run_started, stuck

pytestmark = pytest.mark.browser

STUCK: Final = "nightly/stuck 1"
STUCK_PATH: Final = f"/runs/{quote(STUCK, safe='')}"
VIEWS: Final = ("/", STUCK_PATH, "/charts", "/decisions", "/accounts", "/policy", "/whatif", "/health")
TIMEOUT_MS: Final = 20_000

expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture(scope="module", autouse=True)
def published(deployment: LiveDeployment, browser: PageBrowser) -> Iterator[None]:
    """A run that is halted, one that is warned, one that goes round, one that works; and one record of nonsense."""
    loop: list[dict[str, Any]] = [run_started("loop", graph=GRAPH, budgets={"maxCycleIterations": 8})]
    for attempt in range(3):
        report = {"failed": ["a", "b"][: 1 + (attempt < 2)], "passed": 7, "total": 9}
        loop += [
            {"run_id": "loop", "node": "coder", "artifact": {"sort.py": f"attempt {attempt}"}},
            {"run_id": "loop", "node": "verifier", "from": "coder", "tests": report},
        ]
    deployment.publish(
        run_started(STUCK, workflow="nightly", tenant="acme", user="ada"), *stuck(STUCK),
        *stuck("warned", 2, workflow="bugfix"), *loop, bash("works", "make", "ok", workflow="bugfix"),
    )  # fmt: skip
    with browser.opened() as page:
        expect(row(page, STUCK)).to_contain_text("halted")
        expect(row(page, "warned")).to_contain_text("warned")
        expect(row(page, "loop")).to_contain_text("Loop")
    return


def row(page: Any, run_id: str) -> Any:
    return page.locator("tr").filter(has=page.get_by_role("link", name=run_id, exact=True))


def group(page: Any, name: str) -> Any:
    return page.locator(f"#rows-{name}")


@pytest.mark.long
def test_the_fleet_shows_trouble_first(browser: PageBrowser) -> None:
    with browser.opened() as page:
        expect(page.locator("h1")).to_have_text("1 run halted in the last hour")
        expect(group(page, "halted").locator("tr")).to_have_count(1)
        expect(group(page, "halted")).to_contain_text("bash returned the same result")
        expect(group(page, "warned").locator("tr").filter(has=page.get_by_role("link", name="warned"))).to_contain_text(
            "LOOP003"
        )
        expect(row(page, "loop").locator(".loop-badge svg rect")).to_have_count(8)
        expect(row(page, "loop").locator(".sparkline title")).to_contain_text("2 first, 1 last, 1 at best")
        assert [re.sub(r"\W*\d+$", "", text) for text in page.locator(".group-head h2").all_inner_texts()][:4] == [
            "Halted in the last hour", "Warned", "Stopped by people", "Others, by spend",
        ]  # fmt: skip


def test_filters_live_in_the_address(browser: PageBrowser) -> None:
    with browser.opened("/?workflow=bugfix") as page:
        expect(page.locator(".list tbody[id] > tr")).to_have_count(2)
        page.get_by_label("Search").fill("warn")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url(re.compile(r"\?text=warn&workflow=bugfix"))
        expect(page.locator(".list tbody[id] > tr")).to_have_count(1)
        page.get_by_role("link", name="Show all").click()
        expect(row(page, STUCK)).to_be_visible()


def test_a_bar_of_a_chart_leads_to_its_runs_and_decisions(browser: PageBrowser) -> None:
    with browser.opened("/charts?window=15m") as page:
        expect(page.locator("#turns svg a").first).to_have_attribute("href", re.compile(r"^/\?since="))
        page.locator("#halts svg a").last.click()
        page.wait_for_url(re.compile(r"/decisions\?severity=halt&since=.+&until="))
        expect(page.locator("#decisions tbody tr")).not_to_have_count(0)
        expect(page.locator(".chosen-time")).to_contain_text("Decided from ")
    with browser.opened("/charts?window=1h") as page:
        page.locator("#turns svg a").last.click()
        expect(row(page, STUCK)).to_be_visible()
        expect(page.locator(".filters .range time")).to_have_count(2)
    with browser.opened("/charts") as page:  # by keyboard
        expect(page.locator(".switch [aria-current]")).to_have_text("1 h")
        page.locator("#figures summary").press("Enter")
        page.locator("#figures tbody a").first.press("Enter")
        page.wait_for_url(re.compile(r"/\?since="))
    with browser.opened("/charts") as page:
        expect(page.locator("#spend-workflow")).to_contain_text("nightly")
        page.locator("#spend-workflow").get_by_role("link", name="nightly").click()
        expect(row(page, STUCK)).to_be_visible()
        expect(row(page, "works")).to_have_count(0)


@pytest.mark.long
def test_the_charts_stay_current(browser: PageBrowser, deployment: LiveDeployment) -> None:
    with browser.opened("/charts?window=15m") as page:
        before = page.locator("#turns figcaption p").inner_text()
        deployment.publish(bash("works", "make again", "ok", workflow="bugfix"))
        expect(page.locator("#turns figcaption p")).not_to_have_text(before)


@pytest.mark.long
def test_a_stop_by_a_person_is_no_alarm_and_can_be_dismissed(browser: PageBrowser, deployment: LiveDeployment) -> None:
    stop = {"type": "operator.stop", "run_id": "by-hand", "by": "ada", "reason": "not needed"}
    with browser.opened(bypass_csp=True) as page:
        halted = page.locator("#count-halted").inner_text()
        deployment.publish(bash("by-hand", "ls", "a"), stop)
        expect(page.locator("#strip")).to_contain_text("by people, last hour")
        page.reload()
        expect(group(page, "stopped")).to_contain_text("by-hand")
        expect(page.locator("#count-halted")).to_have_text(halted)
        assert barriers(page) == []
        page.get_by_role("button", name="Dismiss").click()
        expect(group(page, "stopped").locator("tr")).to_have_count(0)
        expect(page.locator("#strip")).not_to_contain_text("by people, last hour")
        page.goto(page.url + "?group=stopped")
        expect(row(page, "by-hand")).to_be_visible()
        page.goto(page.url.split("?")[0] + "decisions?severity=halt")
        expect(page.locator("#decisions")).to_contain_text("by-hand")


def test_rows_change_and_move_without_a_reload(browser: PageBrowser, deployment: LiveDeployment) -> None:
    with browser.opened() as page:
        page.evaluate("document.body.dataset.kept = 'yes'")
        expect(page.locator("html[data-live=yes]")).to_have_count(1)
        deployment.publish(bash("moves", "ls", "a"))
        expect(group(page, "others")).to_contain_text("moves")
        deployment.publish(*stuck("moves", 2))
        expect(group(page, "warned")).to_contain_text("moves")
        deployment.publish(bash("moves", "git status", "nothing to commit"))
        expect(group(page, "halted")).to_contain_text("moves")
        expect(row(page, "moves")).to_have_count(1)
        expect(page.locator("#count-halted")).to_have_text("2")
        expect(page.locator("h1")).to_have_text("2 runs halted in the last hour")
        assert page.evaluate("document.body.dataset.kept") == "yes"


def test_what_changes_before_the_page_listens_is_shown(browser: PageBrowser, deployment: LiveDeployment) -> None:
    held: list[Any] = []
    with browser.opened() as page, browser.opened() as other:
        page.route("**/events*", lambda route: held.append(route))  # Playwright marks it
        page.reload()
        wait_for_route(page, held)
        deployment.publish(bash("between", "ls", "a"))
        expect(row(other, "between")).to_be_visible()
        expect(row(page, "between")).to_have_count(0)
        held[0].continue_()
        expect(row(page, "between")).to_be_visible()


def wait_for_route(page: Any, held: list[Any]) -> None:
    """Wait until a request is held."""
    while not held:
        page.wait_for_timeout(20)


def test_a_filter_holds_for_what_changes(browser: PageBrowser, deployment: LiveDeployment) -> None:
    with browser.opened("/?workflow=bugfix") as page:
        expect(page.locator("html[data-live=yes]")).to_have_count(1)
        deployment.publish(bash("elsewhere", "ls", "a", workflow="other"), bash("here", "ls", "a", workflow="bugfix"))
        expect(row(page, "here")).to_be_visible()
        expect(row(page, "elsewhere")).to_have_count(0)


def test_a_run_opens_with_its_evidence(browser: PageBrowser) -> None:
    with browser.opened() as page:
        row(page, STUCK).get_by_role("link").click()
        expect(page.locator("h1")).to_contain_text("bash returned the same result for the same arguments")
        expect(page.locator("#run-now")).to_contain_text("7 turns")
        expect(page.locator(".culprit")).to_contain_text("git status")
        expect(page.locator(".timeline .flag-halt")).to_have_count(1)
        expect(page.get_by_role("heading", name="What to do")).to_be_visible()
        page.locator("a.flag-link", has=page.locator(".flag-warn")).click()
        page.wait_for_url(re.compile(r"\?decision="))
        expect(page.locator("tr.chosen")).to_contain_text("warn")
        page.get_by_role("link", name="by cost").click()
        expect(page.get_by_role("link", name="by cost")).to_have_attribute("aria-current", "true")
        expect(page.locator("tr.chosen")).to_contain_text("warn")


def test_an_open_run_goes_on_without_a_reload(browser: PageBrowser, deployment: LiveDeployment) -> None:
    deployment.publish(bash("grows", "ls", "a"))
    with browser.opened() as page:
        expect(row(page, "grows")).to_be_visible()
        page.goto(f"{browser.origin}/runs/grows")
        page.evaluate("document.body.dataset.kept = 'yes'")
        expect(page.locator(".timeline g")).to_have_count(1)
        deployment.publish(bash("grows", "ls b", "b"), bash("grows", "ls c", "c"))
        expect(page.locator(".timeline g")).to_have_count(3)
        expect(page.locator("#run-now")).to_contain_text("3 turns")
        assert page.evaluate("document.body.dataset.kept") == "yes"


def test_without_content_equal_things_look_equal(browser: PageBrowser, deployment: LiveDeployment) -> None:
    deployment.publish(*stuck("no texts"), content=False)
    with browser.opened() as page:
        expect(row(page, "no texts")).to_contain_text("halted")
        page.goto(f"{browser.origin}/runs/no%20texts")
        section = page.locator("section", has=page.get_by_role("heading", name="Fingerprints"))
        drawn = section.locator(".identicon path").evaluate_all("all => all.map((one) => one.getAttribute('d'))")
        assert len(drawn) == 6
        assert len(set(drawn)) == 2


def test_the_report_is_a_download(browser: PageBrowser) -> None:
    with browser.opened(STUCK_PATH) as page:
        for name, start in (("Download the report", "<!DOCTYPE html>"), ("Markdown", "# "), ("JSON", "{")):
            with page.expect_download() as waiting:
                page.locator(".actions").get_by_role("link", name=name, exact=True).click()
            text = waiting.value.path().read_text()
            assert text.startswith(start)
            assert "git status" in text


def test_decisions_lead_to_their_turn(browser: PageBrowser) -> None:
    with browser.opened("/decisions?severity=halt&run_id=" + quote(STUCK)) as page:
        expect(page.locator("tbody tr")).to_have_count(1)
        href = page.locator("tbody").get_by_role("link", name=re.compile("JSON")).get_attribute("href")
        answer = page.request.get(browser.origin + href)
        assert answer.json()["run_id"] == STUCK
        assert answer.headers["content-type"] == "application/json; charset=utf-8"
        page.locator("tbody").get_by_role("link", name=STUCK).click()
        expect(page.locator("tr.chosen")).to_contain_text("halt")


def test_the_policy_says_where_values_are_set(browser: PageBrowser) -> None:
    with browser.opened("/policy") as page:
        line = page.locator("tr", has_text="switch_to_interactive").first
        expect(line).to_contain_text(re.compile(r"preset standard:\d+"))
        expect(page.locator("#seen tr.chosen")).to_have_count(1)
        page.get_by_label("Filter settings").fill("LOOP003")
        expect(page.locator("output").first).to_contain_text(re.compile(r"^\d+ of \d+ rows"))


def test_what_if_finds_the_runs_that_would_go_on(browser: PageBrowser) -> None:
    with browser.opened("/whatif") as page:
        expect(page.get_by_label("Policy")).to_have_value(re.compile(r"presets: \[standard\]\n"))
        page.get_by_label("Policy").fill("name: mild\npresets: [standard]\ndetectors:\n  LOOP003: { halt: 9 }\n")
        page.get_by_label("Search").fill(STUCK)
        page.get_by_role("button", name="Try it").click()
        expect(page.locator("#trial")).to_contain_text("1 run of 1 would have ended otherwise.")
        expect(page.locator("#trial tbody tr")).to_contain_text("would go on")
        expect(page.get_by_label("Policy")).to_have_value(re.compile("name: mild\n"))


def test_a_trial_can_be_cancelled(browser: PageBrowser) -> None:
    with browser.opened("/whatif") as page:
        page.get_by_label("Policy").fill("name: other\npresets: [standard]\n")
        page.get_by_role("button", name="Try it").click()
        cancel = page.get_by_role("button", name="Cancel")
        job = page.url
        if cancel.count():  # not if the trial is over already
            cancel.click()
            page.wait_for_url(re.compile("/whatif$"))
        page.goto(job)
        expect(page.locator("#trial")).to_contain_text(re.compile("It was cancelled|Nothing changes"))
        expect(page.get_by_role("button", name="Try it")).to_be_enabled()


def test_a_mistake_in_a_policy_is_named_with_its_line(browser: PageBrowser) -> None:
    with browser.opened("/whatif", forgiven=lambda text: "400" in text) as page:
        page.get_by_label("Policy").fill("name: x\ndetectors:\n  LOOP999: { halt: 9 }\n")
        page.get_by_role("button", name="Try it").click()
        expect(page.get_by_role("alert").filter(has_text="policy.yaml:3")).to_be_visible()
        expect(page.get_by_label("Policy")).to_have_value(re.compile("LOOP999"))


def test_keys_move_through_runs_and_flags(browser: PageBrowser) -> None:
    with browser.opened() as page:
        page.keyboard.press("j")
        first = page.evaluate("document.activeElement.textContent")
        page.keyboard.press("j")
        second = page.evaluate("document.activeElement.textContent")
        page.keyboard.press("k")
        assert page.evaluate("document.activeElement.textContent") == first != second
        page.keyboard.press("/")
        page.keyboard.type("j")
        expect(page.get_by_label("Search")).to_have_value("j")
        page.goto(browser.origin + STUCK_PATH)
        page.keyboard.press("j")
        expect(page.locator("a.flag-link:focus")).to_have_count(1)
        page.keyboard.press(".")
        expect(page.locator("tr:focus .k-repeat")).to_have_count(1)


def test_a_lost_connection_is_said_until_it_is_back(browser: PageBrowser) -> None:
    with browser.opened(forgiven=lambda text: "ERR_FAILED" in text) as page:
        expect(page.locator("html[data-live=yes]")).to_have_count(1)
        expect(page.locator("#lost")).to_be_hidden()
        page.route("**/events*", lambda route: route.abort())
        page.reload()
        expect(page.locator("#lost")).to_be_visible()
        expect(page.locator("#lost")).to_contain_text("The connection is lost")
        page.unroute("**/events*")
        expect(page.locator("#lost")).to_be_hidden()


@pytest.mark.parametrize("path", VIEWS)
def test_it_can_be_read_without_script(browser: PageBrowser, path: str) -> None:
    with browser.opened(path, java_script_enabled=False) as page:
        expect(page.locator("h1").first).to_be_visible()
        expect(page.locator("a.reload")).to_be_visible()
        page.locator("a.reload").click()
        expect(page.locator("h1").first).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("path", VIEWS)
def test_nothing_keeps_people_out(browser: PageBrowser, path: str) -> None:
    """By axe-core; contrast in the dark, too."""
    with browser.opened(path, bypass_csp=True) as page:
        expect(page.locator("h1").first).to_be_visible()
        assert barriers(page) == []
        page.emulate_media(color_scheme="dark")
        assert barriers(page, runOnly=["color-contrast"]) == []


def test_a_narrow_screen_does_not_scroll_sideways(browser: PageBrowser) -> None:
    with browser.opened(viewport={"width": 390, "height": 800}) as page:
        for path in VIEWS:
            page.goto(browser.origin + path)
            expect(page.locator("h1").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_unknown_pages_and_runs_say_so(browser: PageBrowser) -> None:
    with browser.opened("/nowhere", forgiven=lambda text: "404" in text) as page:
        expect(page.locator("h1")).to_have_text("There is no such page")
        page.goto(f"{browser.origin}/runs/unknown")
        expect(page.locator("h1")).to_have_text("No such run")


def test_a_page_that_is_watched_ends_and_asks_for_a_login_when_it_is_back(
    browser: PageBrowser, deployment: LiveDeployment
) -> None:
    with browser.opened(forgiven=lambda text: "ERR_" in text or "401" in text) as page:
        expect(page.locator("html[data-live=yes]")).to_have_count(1)
        assert deployment.page.end() == 0
        expect(page.locator("#lost")).to_be_visible()
        assert "Traceback" not in deployment.page.log.read_text()
        deployment.page = deployment.start_page(browser.origin.removeprefix("http://"))
        expect(page.locator("#lost")).to_contain_text("You are logged out")
