"""`streamproc demo --page` in a real Chromium: the page on the demo's fleet, on the embedded broker."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.cli.conftest import command

pytestmark = pytest.mark.browser


@pytest.mark.long
def test_the_page_shows_the_demos_fleet_until_ctrl_c(chromium: Any) -> None:
    process = command("demo", "--page", "--turns-per-second", "40", NO_COLOR="1")
    assert process.stdout is not None
    address = next(found[1] for text in process.stdout if (found := re.search(r"open (http://127\.0\.0\.1:\S+)", text)))
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(address)
        expect(page.locator(".group-halted")).to_contain_text("demo/flaky-test-1", timeout=60_000)
        expect(page.locator(".group-halted")).to_contain_text("kimi_k2.5/fix-git__cCozJVA", timeout=60_000)
        expect(page.locator(".group-others tr").filter(has_text="demo/migration-1")).to_contain_text("working")
        page.get_by_role("link", name="demo/flaky-test-1", exact=True).click()
        expect(page.locator("main")).to_contain_text("src/part_12.py")  # what it repeated
        page.get_by_role("link", name="Charts").click()
        expect(page.locator("#spend-workflow")).to_contain_text("migration")
        expect(page.locator("#spend-user")).to_contain_text("bob")
        assert page.locator("#halts svg a").count() >= 1

    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)

    assert (process.returncode, stderr) == (0, "")
    assert "Every recorded run was halted at the same turn as in `streamproc scan`" in stdout
    assert "The page stays open: http://127.0.0.1:" in stdout
