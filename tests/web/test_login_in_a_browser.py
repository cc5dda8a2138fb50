"""Logins and other sites in a real Chromium: what it sends, what it keeps back, and what it lets scripts do."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from deploy.local.chromium import ARGUMENTS, MISSING, find
from streamproc.settings import Settings
from streamproc.web.access import AccessOptions
from tests.web.access_app import KEY, Served, serving
from tests.web.identity_provider import CLIENT, SECRET, identity_provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.browser

PATIENCE_MS = 30_000


@asynccontextmanager
async def chromium(**options: Any) -> AsyncIterator[Any]:
    """A page in a fresh Chromium."""
    path = find()
    if path is None:
        pytest.skip(MISSING)
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        context = await browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        yield await context.new_page()
        await browser.close()


@asynccontextmanager
async def another_site(body: str) -> AsyncIterator[str]:
    """A page of another site: `localhost` is another one than `127.0.0.1`. Yields its address."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=f"<!doctype html><title>Evil</title>{body}", content_type="text/html")

    app = web.Application()
    app.add_routes([web.get("/", page)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://localhost:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def log_in(page: Any, served: Served) -> None:
    await page.goto(served.access.address_hint())
    await page.wait_for_url(f"{served.origin}/")


@pytest.mark.parametrize("script", [True, False])
async def test_a_login_at_a_provider_of_another_site(script: bool) -> None:
    async with identity_provider() as provider, chromium(java_script_enabled=script) as page:
        provider.issuer = provider.issuer.replace("127.0.0.1", "localhost")
        options = AccessOptions(oidc_issuer=provider.issuer, oidc_client_id=CLIENT, groups=("oncall=halt",))
        settings = Settings(command_key=SecretStr(KEY), page_oidc_secret=SecretStr(SECRET))
        async with serving(options, settings=settings, commands=True) as served:
            await page.goto(f"{served.origin}/runs/a%22b")
            await page.get_by_role("link", name=re.compile("Log in with localhost")).click()
            if not script:
                await page.get_by_role("button", name="Continue").click()
            await page.wait_for_url(f"{served.origin}/runs/a%22b")
            assert await page.locator("header").inner_text() == "oidc:ada@example.com"
            assert provider.exchanged == 1
            assert await page.locator("form.command").count() == 2
            cookies = {one["name"]: one for one in await page.context.cookies()}
            kept = cookies[served.access.address.cookie]
            assert (kept["httpOnly"], kept["sameSite"]) == (True, "Strict")


async def test_a_link_from_another_site_arrives_with_the_session() -> None:
    async with serving() as served, chromium() as page:
        await log_in(page, served)
        async with another_site(f'<a href="{served.origin}/runs/a%2Fb">a halted run</a>') as address:
            await page.goto(address)
            await page.get_by_role("link").click()
            await page.get_by_text("a run", exact=True).wait_for()
            assert page.url == f"{served.origin}/runs/a%2Fb"


async def test_another_site_cannot_post_read_frame_or_run_a_script() -> None:
    async with serving() as served, chromium() as page:
        await log_in(page, served)
        csrf = await page.locator("meta[name=csrf]").get_attribute("content")
        forged = f"""<form method=post action="{served.origin}/change"><input name=csrf value="{csrf}">
            <button>Win a prize</button></form><iframe src="{served.origin}/"></iframe>"""
        async with another_site(forged) as address:
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text))
            await page.goto(address)
            got = await page.evaluate(
                """(url) => fetch(url, {credentials: "include"}).then(() => "read", () => "refused")""",
                served.origin + "/",
            )
            assert got == "refused"
            assert any("frame-ancestors" in text for text in said)
            await page.get_by_role("button").click()
            await page.get_by_text("This request comes from another site").wait_for()
        assert served.changes == 0
        await page.goto(f"{served.origin}/")
        assert await page.evaluate("document.cookie") == ""
        violations = await page.evaluate(
            """() => new Promise((done) => {
                const seen = [];
                const wanted = ["connect-src", "img-src", "require-trusted-types-for"];
                document.addEventListener("securitypolicyviolation", (event) => {
                    seen.push(event.effectiveDirective);
                    if (wanted.every((one) => seen.includes(one))) done(true);
                });
                const script = document.createElement("script");
                try { script.src = "data:text/javascript,document.title='evil'"; } catch {}
                script.append("document.title = 'evil'");
                document.body.append(script);
                document.body.append(new Image());
                document.images[0].src = "http://localhost:1/steal";
                try { document.body.innerHTML = "<b>"; } catch {}
                fetch("http://localhost:1/steal").catch(() => {});
                setTimeout(() => done(seen), 30000);
            })"""
        )
        assert violations is True
        assert await page.title() == "Home"
