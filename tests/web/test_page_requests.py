"""Requests to the page that no page of ours has sent: other sites, other names, other sessions."""

from __future__ import annotations

import pytest

from tests.web.access_app import Browser, serving

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

EVIL = "https://evil.example"


async def test_without_a_session_nothing_is_shown() -> None:
    async with serving() as served, Browser(served) as browser:
        assert (await browser.get("/")).location == "/login"
        assert (await browser.get("/runs/a%2Fb")).location == "/login?next=/runs/a%252Fb"
        assert (await browser.get("/nowhere")).location == "/login?next=/nowhere"
        for path in ("/", "/events", "/runs/a"):
            assert (await browser.get(path, Accept="*/*")).status == 401
        assert (await browser.post("/change", {"csrf": ""})).status == 401
        assert served.changes == 0


async def test_the_printed_token_logs_in_once() -> None:
    async with serving() as served, Browser(served) as browser, Browser(served) as other:
        hint = served.access.address_hint().removeprefix(served.origin)
        page = await browser.get(hint)
        assert (await browser.get(hint)).status == 200  # looking at it uses up nothing
        assert (await browser.post("/login/loopback", page.fields())).location == "/"
        assert "home" in (await browser.get("/")).text

        again = await other.post("/login/loopback", page.fields())
        assert again.status == 403
        assert "used up" in again.text
        assert (await other.get("/")).location == "/login"
        assert served.access.address_hint() != served.origin + hint
        assert (await other.log_in_with_token()).status == 303


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1:{port}@x"]
)
async def test_another_host_is_refused_before_all_else(host: str) -> None:
    """DNS rebinding: the attacker's name resolves to 127.0.0.1."""
    async with serving() as served, Browser(served) as browser:
        await browser.log_in_with_token()
        for path in ("/", "/login", "/events", "/login/continue.js"):
            assert (await browser.get(path, Host=host.format(port=served.port))).status == 421
        assert (await browser.get("/", Host=f"LOCALHOST:{served.port}")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Sec_Fetch_Site": None},
    ],
)
async def test_a_post_from_elsewhere_changes_nothing(headers: dict[str, str | None]) -> None:
    async with serving() as served, Browser(served) as browser:
        await browser.log_in_with_token()
        form = {"csrf": await browser.csrf()}

        assert (await browser.post("/change", form, **headers)).status == 403
        assert (await browser.post("/logout", form, **headers)).status == 403
        assert served.changes == 0
        assert (await browser.post("/change", form)).text == "changed"


async def test_a_post_needs_the_token_of_its_own_session() -> None:
    async with serving() as served, Browser(served) as browser, Browser(served) as other:
        await browser.log_in_with_token()
        await other.log_in_with_token()
        others = await other.csrf()

        for token in ("", "wrong", others, "\udcff", "ü"):
            assert (await browser.post("/change", {"csrf": token.encode("utf-8", "replace").decode()})).status == 403
        assert (await browser.post("/change", {})).status == 403
        assert (await browser.post("/change", {"csrf": await browser.csrf()}, X_CSRF_Token=others)).status == 403
        assert served.changes == 0
        assert (await browser.post("/change", {}, X_CSRF_Token=await browser.csrf())).text == "changed"


async def test_a_get_changes_nothing_and_other_methods_are_refused() -> None:
    async with serving() as served, Browser(served) as browser:
        await browser.log_in_with_token()
        csrf = await browser.csrf()
        assert (await browser.get(f"/change?csrf={csrf}")).status == 405
        assert (await browser.get(f"/logout?csrf={csrf}")).status == 405
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert (await browser.request(method, "/change", {})).status == 405
        own = {"Origin": served.origin, "Sec-Fetch-Site": "same-origin", "X-CSRF-Token": csrf}
        assert (await browser.request("PUT", "/put", own)).status == 405  # although there is such a route
        assert served.changes == 0
        assert (await browser.get("/")).status == 200


@pytest.mark.parametrize("charset", ["nope", "zlib", "punycode", "utf-16", "idna"])
async def test_a_form_in_another_encoding_is_refused_unread(charset: str) -> None:
    """Some codecs of Python take long, and a name that is none was an error of ours."""
    async with serving() as served, Browser(served) as browser:
        kind = {"Content_Type": f"application/x-www-form-urlencoded; charset={charset}"}
        assert (await browser.post("/login/loopback", {"token": "x"}, **kind)).status == 415
        await browser.log_in_with_token()
        assert (await browser.post("/change", {"csrf": await browser.csrf()}, **kind)).status == 415
        assert served.changes == 0
