"""Markup in every text that runs and people can choose: it is shown, and nothing of it happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.report.runs import HOSTILE
from tests.web.deployment import LiveDeployment, PageBrowser

pytestmark = pytest.mark.browser

# The beginning of each text, so that a field that is cut off is hostile, too.
SHORT: Final = "<img src=x onerror=alert(1)>\"'"
RUN: Final = f"r/{HOSTILE}"
STOP: Final = f"s/{SHORT}"

expect.set_options(timeout=20_000)


def turns() -> list[dict[str, Any]]:
    """A run that is halted for a call that always fails, every text of which is hostile."""
    scope = {"workflow": SHORT, "tenant": SHORT, "user": SHORT}
    call = {"name": f"t{SHORT}", "args": {HOSTILE: HOSTILE}, "result": HOSTILE}
    one = {
        "run_id": RUN, "node": f"n{HOSTILE}"[:100], "from": f"f{SHORT}", "tool_calls": [call], "output": HOSTILE,
        "errors": [{"message": HOSTILE, "class": SHORT}], "labels": {"a": HOSTILE}, "task_id": SHORT, "query": HOSTILE,
        "tests": {"failed": [HOSTILE, "b"], "passed": 1, "total": 3}, "model": SHORT, "agent": SHORT,
        **scope,
    }  # fmt: skip
    stop = {"type": "operator.stop", "run_id": STOP, "by": f"by{SHORT}", "reason": HOSTILE, **scope}
    return [*([one] * 5), {"run_id": STOP, "node": SHORT, "output": SHORT, **scope}, stop]


@pytest.fixture(scope="module", autouse=True)
def published(deployment: LiveDeployment, browser: PageBrowser) -> Iterator[None]:
    with browser.opened() as page:  # is open while the runs arrive, so that rows come by script, too
        deployment.publish(*turns())
        expect(page.locator("#rows-halted tr, #rows-stopped tr")).to_have_count(2)
        assert harmless(page)
    return


def harmless(page: Any) -> bool:
    """Whether all elements are ours: none that a text has made. Raises if one is not."""
    assert page.locator("img, iframe, object, embed, base, [onerror], [onload], [onclick]").count() == 0
    assert page.locator("script").count() == page.locator("script[src^='/static/page.js']").count() <= 1
    assert page.locator("a:not([href^='/']):not([href^='#'])").count() == 0
    return True


@pytest.mark.long
@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        "/", "/decisions", "/accounts", "/policy", "/whatif", "/health", f"/?text={quote(SHORT)}",
        f"/?workflow={quote(SHORT)}", f"/decisions?text={quote(SHORT)}&code={quote(SHORT)}&run_id={quote(SHORT)}",
        f"/policy?workflow={quote(SHORT)}", f"/whatif?text={quote(SHORT)}",
        f"/runs/{quote(RUN, safe='')}", f"/runs/{quote(RUN, safe='')}?width={quote(SHORT)}&decision={quote(SHORT)}",
        f"/runs/{quote(STOP, safe='')}",
    ],
)  # fmt: skip
def test_a_text_is_shown_and_does_nothing(browser: PageBrowser, path: str, script: bool) -> None:
    with browser.opened(path, java_script_enabled=script) as page:
        expect(page.locator("h1").first).to_be_visible()
        assert harmless(page)
        if path == "/":
            expect(page.locator(".group-halted")).to_contain_text("<img src=x onerror=alert(1)>")
            expect(page.locator(".group-halted")).to_contain_text(r"\u202eevil\x1b[31m\u200b")


def test_a_text_is_shown_on_the_page_of_a_run_that_is_missing(browser: PageBrowser) -> None:
    with browser.opened(f"/runs/{quote(SHORT, safe='')}", forgiven=lambda text: "404" in text) as page:
        expect(page.locator("main")).to_contain_text(SHORT)
        assert harmless(page)


def test_a_run_is_opened_by_its_row_whatever_its_name_is(browser: PageBrowser) -> None:
    with browser.opened() as page:
        page.locator("#rows-halted tr", has_text="r/</script>").get_by_role("link").click()
        expect(page.locator(".culprit, .facts").first).to_be_visible()
        expect(page.locator("#run-now")).to_contain_text("halted")
        assert harmless(page)


def test_a_hostile_policy_is_refused_as_text(browser: PageBrowser) -> None:
    with browser.opened("/whatif", forgiven=lambda text: "400" in text) as page:
        text = f"name: x\n</textarea>{SHORT}: 1\n"
        page.get_by_label("Policy").fill(text)
        page.get_by_role("button", name="Try it").click()
        expect(page.get_by_role("alert").filter(has_text="policy.yaml:2")).to_be_visible()
        expect(page.get_by_label("Policy")).to_have_value(text)
        assert harmless(page)
