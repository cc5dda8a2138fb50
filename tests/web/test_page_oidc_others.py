"""What others can do to a person who logs in with OpenID Connect: other sites, and people who keep the page busy."""

from __future__ import annotations

import asyncio

import pytest

from streamproc.errors import Unavailable
from streamproc.web.access.oidc import EXCHANGES_MAX
from streamproc.web.access.oidc_provider import OidcProvider
from tests.waiting import until
from tests.web.access_app import Browser
from tests.web.identity_provider import CLIENT, SECRET, identity_provider
from tests.web.test_page_oidc import begin, both

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]


async def test_another_site_cannot_lock_a_person_out_by_false_callbacks() -> None:
    """It can open the callback in a browser, whose page posts what stands in the address by itself."""
    async with both() as (provider, served), Browser(served) as browser:
        page, _ = await begin(browser)
        for number in range(60):
            false = await browser.get(f"/login/oidc/callback?code=x{number}&state=y", Sec_Fetch_Site="cross-site")
            assert (await browser.post("/login/oidc", false.fields())).status == 403
        assert provider.exchanged == 0
        assert (await browser.post("/login/oidc", page.fields())).status == 303


async def test_another_site_cannot_end_the_login_that_a_person_has_begun() -> None:
    async with both() as (_, served), Browser(served) as browser:
        page, _ = await begin(browser)
        cookies = dict(browser.cookies)
        for site in ("cross-site", "same-site"):
            opened = await browser.get("/login/oidc?next=/x", Sec_Fetch_Site=site)
            assert opened.status == 200
            assert 'href="/login/oidc?next=%2Fx"' in opened.text  # a person can go on; nothing does it by itself
            assert "Refresh" not in opened.headers
        assert browser.cookies == cookies
        assert (await browser.post("/login/oidc", page.fields())).status == 303


async def test_a_cookie_of_another_page_beside_that_of_the_login_does_no_harm() -> None:
    async with both() as (_, served), Browser(served) as browser:
        page, _ = await begin(browser)
        [(name, own)] = browser.cookies.items()
        cookie = f"{name}=planted; {name}={own}; {name}=later"
        assert (await browser.post("/login/oidc", page.fields(), Cookie=cookie)).status == 303


async def test_those_who_begin_a_login_share_one_request_to_the_provider() -> None:
    """Otherwise anyone could make the page open connections without end while a provider is slow."""
    async with identity_provider() as provider:
        asking = OidcProvider(provider.issuer, CLIENT, SECRET)
        for down in (True, False):
            provider.down, provider.configured = down, 0
            provider.answering.clear()
            asked = [asyncio.create_task(asking.configuration()) for _ in range(20)]
            await until(lambda: provider.configured)
            asked.pop().cancel()  # a browser that left
            provider.answering.set()
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert {isinstance(one, Unavailable) for one in found} == {down}
            assert provider.configured == 1


async def test_an_address_has_few_codes_exchanged_at_once() -> None:
    async with both(trusted_proxies=("127.0.0.1/32",)) as (provider, served):
        browsers = [Browser(served) for _ in range(EXCHANGES_MAX + 2)]
        for browser in browsers:
            await browser.__aenter__()
        try:
            pages = [(await begin(browser))[0].fields() for browser in browsers]
            provider.answering.clear()
            *many, one_more, elsewhere = browsers

            async def log_in(number: int, address: str = "203.0.113.9") -> int:
                answer = await browsers[number].post("/login/oidc", pages[number], X_Forwarded_For=address)
                return answer.status

            busy = [asyncio.create_task(log_in(number)) for number in range(len(many))]
            await until(lambda: provider.exchanging == EXCHANGES_MAX)
            assert await log_in(browsers.index(one_more)) == 403
            other = asyncio.create_task(log_in(browsers.index(elsewhere), "203.0.113.10"))
            await until(lambda: provider.exchanging == EXCHANGES_MAX + 1)
            provider.answering.set()
            assert {await one for one in (*busy, other)} == {303}
            assert await log_in(browsers.index(one_more)) == 303  # it was not used up
        finally:
            for browser in browsers:
                await browser.__aexit__()
