"""Sessions of the page: what a stolen, planted, old or unused one is worth, and what browsers do with it."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from aiohttp import web
from hypothesis import given, strategies as st

from streamproc.fleet.state import Fleet, new_command
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import ModelReader
from streamproc.report.markup import tag
from streamproc.settings import load_settings
from streamproc.web.access import AccessOptions
from streamproc.web.access.session import OF_NAME_MAX, SESSIONS_MAX, Sessions
from streamproc.web.keys import READER
from streamproc.web.layout import page
from tests.web.access_app import Browser, Clock, serving

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

HOURS = 3_600.0
MINUTES = 60.0


async def test_a_login_makes_another_id_and_ends_the_session_before() -> None:
    """Fixation: a session that an attacker planted, or knows, is worth nothing after the login."""
    async with serving() as served, Browser(served) as browser, Browser(served) as attacker:
        name = served.access.address.cookie
        browser.cookies[name] = "planted"
        await browser.log_in_with_token()
        first = browser.cookies[name]
        assert first != "planted"
        assert re.fullmatch(r"[\w-]{43}", first)  # 256 bits

        csrf = await browser.csrf()
        await browser.log_in_with_token_while_logged_in()
        assert browser.cookies[name] != first
        assert await browser.csrf() != csrf
        attacker.cookies[name] = first
        assert (await attacker.get("/")).location == "/login"
        attacker.cookies[name] = "planted"
        assert (await attacker.get("/")).location == "/login"


async def test_a_session_ends_after_eight_hours_and_after_half_an_hour_without_use() -> None:
    clock = Clock()
    async with serving(now=clock) as served, Browser(served) as browser:
        await browser.log_in_with_token()
        for _ in range(16):
            clock.now_s += 29 * MINUTES
            assert (await browser.get("/")).status == 200
        clock.now_s += 15.9 * MINUTES
        assert (await browser.get("/")).status == 200
        clock.now_s += 0.2 * MINUTES
        assert (await browser.get("/")).location == "/login"

        await browser.log_in_with_token()
        clock.now_s += 29 * MINUTES
        assert (await browser.get("/events", Sec_Fetch_Mode="cors")).status == 200  # a script that keeps a page live
        clock.now_s += 1 * MINUTES
        assert (await browser.get("/")).location == "/login"


async def test_an_open_stream_can_see_that_its_session_is_over() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    ended, old, idle = (sessions.begin("password:ada", frozenset({"view"})) for _ in range(3))
    assert all(map(sessions.alive, (ended, old, idle)))
    sessions.end(ended)
    assert not sessions.alive(ended)
    clock.now_s += 20 * MINUTES
    sessions.use(old)
    clock.now_s += 20 * MINUTES
    assert sessions.alive(old)
    assert not sessions.alive(idle)


@pytest.mark.parametrize("how", ["password", "oidc", "header", "loopback"])
@given(st.from_regex(r"[a-z]{1,12}(\.[a-z]{1,12})?(@[a-z]{2,12}\.example)?", fullmatch=True))
def test_who_commanded_is_not_taken_for_a_secret(how: str, who: str) -> None:
    """In records of commands, names are redacted as all that people write."""
    issuer = Sessions().begin(f"{how}:{who}", frozenset()).issuer
    assert new_command(Fleet(), "STOP", "fleet", issuer, "").by == issuer


async def test_a_logout_ends_the_session_on_the_server() -> None:
    async with serving() as served, Browser(served) as browser, Browser(served) as thief:
        await browser.log_in_with_token()
        thief.cookies = dict(browser.cookies)
        assert (await thief.get("/")).status == 200

        assert (await browser.post("/logout", {"csrf": await browser.csrf()})).location == "/login"
        assert browser.cookies == {}
        assert (await thief.get("/")).location == "/login"
        assert len(served.access.sessions) == 0


def test_logins_without_end_do_not_fill_the_memory() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    first, second = (sessions.begin("a", frozenset()) for _ in range(2))
    sessions.use(first)
    for number in range(SESSIONS_MAX - 1):
        sessions.begin(f"b{number}", frozenset())
    assert len(sessions) == SESSIONS_MAX
    assert sessions.alive(first)
    assert not sessions.alive(second)
    clock.now_s += 8 * HOURS
    sessions.begin("c", frozenset())
    assert len(sessions) == 1


def test_one_person_cannot_end_the_sessions_of_the_others() -> None:
    sessions = Sessions(Clock())
    others = [sessions.begin("ada", frozenset()) for _ in range(3)]
    first, second, *_ = [sessions.begin("eve", frozenset()) for _ in range(OF_NAME_MAX + 1)]
    assert not sessions.alive(first)
    assert sessions.alive(second)
    assert all(map(sessions.alive, others))
    sessions.end(second)
    sessions.end(second)
    third = sessions.begin("eve", frozenset())
    assert len(sessions) == OF_NAME_MAX + len(others)
    sessions.end(third)
    sessions.use(third)
    assert not sessions.alive(third)


async def test_a_cookie_beside_ours_neither_logs_out_nor_in() -> None:
    """Any page of this host, on any port, can set one of the same name for a path of its choice."""
    async with serving() as served, Browser(served) as browser, Browser(served) as other:
        await browser.log_in_with_token()
        await other.log_in_with_token()
        [(name, own)] = browser.cookies.items()
        for cookie in (f"{name}=planted; {name}={own}", f"{name}={own}; {name}=", f"{name}={own}; {name}={own}"):
            assert (await browser.get("/", Cookie=cookie)).status == 200
        both = f"{name}={other.cookies[name]}; {name}={own}"  # which of the two is meant?
        assert (await browser.get("/", Cookie=both)).location == "/login"
        assert (await browser.get("/")).status == 200


async def test_another_site_cannot_end_a_session_by_opening_the_login() -> None:
    """The browser sends no cookie with such a link, and the form of the login posts itself."""
    options = AccessOptions(trust_header="X-User", trusted_proxies=("127.0.0.1/32",), groups=("*=view",))
    async with serving(options) as served, Browser(served) as browser:
        await browser.post("/login/header", {"next": "/"}, X_User="ada")
        kept, browser.cookies = browser.cookies, {}
        for site in ("cross-site", "same-site"):
            page = await browser.get("/login?next=/runs/a%252F%2522b", X_User="ada", Sec_Fetch_Site=site)
            assert page.forms() == []
            assert page.headers["Refresh"] == "0"
        browser.cookies = kept
        # The page opens itself again, which sends the cookie.
        again = await browser.get("/login?next=/runs/a", X_User="ada", Sec_Fetch_Site="same-origin")
        assert again.location == "/runs/a"
        assert (await browser.get("/", X_User="ada")).status == 200


async def test_a_form_with_a_field_twice_is_refused() -> None:
    async with serving() as served, Browser(served) as browser:
        await browser.log_in_with_token()
        headers = {
            "Origin": served.origin, "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/x-www-form-urlencoded",
        }  # fmt: skip
        csrf = await browser.csrf()
        for body, status in ((f"csrf={csrf}&csrf={csrf}", 400), (f"csrf=x&csrf={csrf}", 400), (f"csrf={csrf}", 200)):
            assert (await browser.request("POST", "/change", headers, body.encode())).status == status
        assert served.changes == 1


@pytest.mark.parametrize(
    ("public_url", "name"),
    [("", "streamproc-session-{port}"), ("https://ops.example.com", "__Host-streamproc-session")],
)
async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(public_url: str, name: str) -> None:
    async with serving(AccessOptions(public_url=public_url)) as served, Browser(served) as browser:
        answer = await browser.log_in_with_token()
        [cookie] = answer.headers.getall("Set-Cookie")
        assert cookie.startswith(name.format(port=served.port) + "=")
        said = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/", "max-age=28800"} <= said
        assert ("secure" in said) == bool(public_url)
        assert not any(part.startswith("domain") for part in said)
        assert ("Strict-Transport-Security" in answer.headers) == bool(public_url)


async def test_every_answer_has_the_headers() -> None:
    async with serving() as served, Browser(served) as browser:
        await browser.log_in_with_token()
        answers = [
            await browser.get("/"),
            await browser.get("/login"),
            await browser.get("/events"),  # a stream
            await browser.get("/nowhere"),
            await browser.get("/", Host="evil.example"),
            await browser.post("/change", {}),
            await browser.get("/login/continue.js"),
            await browser.request("PUT", "/", {}),
        ]
        assert [answer.status for answer in answers] == [200, 303, 200, 404, 421, 403, 200, 405]
        for answer in answers:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
            for part in (
                "form-action 'self'",
                "frame-ancestors 'none'",
                "base-uri 'none'",
                "require-trusted-types-for",
            ):
                assert part in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Referrer-Policy"] == "same-origin"
            assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


async def test_a_link_from_another_site_finds_the_session_after_all() -> None:
    """Browsers send no `SameSite=Strict` cookie with it: the page opens the same address again by itself."""
    async with serving() as served, Browser(served) as browser, Browser(served) as stranger:
        await browser.log_in_with_token()
        first = await stranger.get("/runs/a%22b", Sec_Fetch_Site="cross-site")  # as from a chat, without the cookie
        assert first.status == 200
        assert first.headers["Refresh"] == "0"
        assert 'href="/runs/a%22b"' in first.text
        assert "a run" not in first.text
        for path in ("//evil.example/x", "/\\evil.example"):
            assert 'href="/"' in (await stranger.get(path, Sec_Fetch_Site="cross-site")).text
        assert (await browser.get("/runs/a%22b", Sec_Fetch_Site="same-origin")).status == 200
        assert (await stranger.get("/runs/a%22b", Sec_Fetch_Site="same-origin")).location == "/login?next=/runs/a%2522b"


ELSEWHERE = (
    "//evil.example", "/\\evil.example", "https://evil.example", "\\\\evil.example", "/a\\..\\..",
    "javascript:alert(1)", "/x\r\nSet-Cookie: a=b", "/x\nLocation: https://evil.example", "/\x00", "/ü",
    "evil.example", "", "/login?next=//x", "/logout", "/\t/evil.example", "/" + "x" * 3_000,
)  # fmt: skip


@pytest.mark.parametrize("target", ELSEWHERE)
async def test_a_login_leads_nowhere_else(target: str) -> None:
    """Open redirects, and headers of an attacker's making."""
    async with serving() as served, Browser(served) as browser:
        hint = served.access.address_hint().removeprefix(served.origin)
        page = await browser.get(f"{hint}&next={quote(target)}")
        assert page.fields()["next"] == "/"
        answer = await browser.post("/login/loopback", page.fields() | {"next": target})
        assert answer.status == 303
        assert answer.headers.getall("Location") == ["/"]
        assert len(answer.headers.getall("Set-Cookie")) == 1
        assert (await browser.get(f"/login?next={quote(target)}")).location == "/"


async def test_a_login_leads_back_to_the_page_that_was_asked_for() -> None:
    async with serving() as served, Browser(served) as browser:
        asked = await browser.get("/runs/a%2Fb%20%22?width=time&x=%26")
        assert asked.location.startswith("/login?next=/runs/")
        hint = served.access.address_hint().removeprefix(served.origin)
        page = await browser.get(f"{hint}&{asked.location.partition('?')[2]}")
        assert (await browser.post("/login/loopback", page.fields())).location == "/runs/a%2Fb%20%22?width=time&x=%26"


async def test_a_login_form_is_bounded() -> None:
    async with serving() as served, Browser(served) as browser:
        assert (await browser.post("/login/loopback", {"token": "x" * 100_000})).status == 413
        many = {f"n{number}": "1" for number in range(2_000)}
        assert (await browser.post("/login/loopback", many)).status == 413
        odd = await browser.request(
            "POST", "/login/loopback", {"Sec-Fetch-Site": "same-origin", "Origin": served.origin}, b"{}"
        )
        assert odd.status == 415


async def test_a_page_links_to_no_other_site_whatever_its_address() -> None:
    """`//evil.example/x` is a path for the server, and another site for a browser that finds it in a link."""
    app = web.Application()

    async def shown(request: web.Request) -> web.Response:
        return page("Nowhere", tag("p", "nowhere"), request)

    async with serving() as served, Browser(served) as browser:
        served.access.install(app)
        app[READER] = ModelReader(load_settings(), ReadModel(), since_ms=0)
        app.add_routes([web.get("/{path:.*}", shown)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            await browser.log_in_with_token()
            served.port = runner.addresses[0][1]  # the same sessions, behind the same name
            answer = await browser.get("//evil.example/x")
            assert answer.status == 200
            assert "nowhere" in answer.text
            assert "evil" not in answer.text
        finally:
            await runner.cleanup()
