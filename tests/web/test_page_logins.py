"""Logins to the page: guessing passwords, headers that anyone can send, users who are gone."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from streamproc.errors import InvalidSettings
from streamproc.web.access import AccessOptions
from streamproc.web.access.password_file import PASSWORD_MAX, new_user, read_users, write_users
from tests.web.access_app import Browser, serving

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

PASSWORD = "correct horse battery"
TYPED_AS_NAME = "hunter2-hunter2"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "page-users"
    rights = {"ada": "fleet", "bob": "view"}
    write_users(path, {name: new_user(name, right, PASSWORD) for name, right in rights.items()})
    return path


def by_file(users: Path, **more: Any) -> AccessOptions:
    return AccessOptions(users_file=str(users), **more)


def typed(user: str = "ada", password: str = PASSWORD) -> dict[str, str]:
    return {"user": user, "password": password, "next": "/"}


async def test_a_user_of_the_file_logs_in_and_a_wrong_password_does_not(users: Path) -> None:
    async with serving(by_file(users)) as served, Browser(served) as browser:
        assert {"user", "password", "next"} <= (await browser.get("/login")).fields().keys()
        said = set()
        for wrong in (typed(password="x"), typed("eve"), typed("", ""), typed("ada", "x" * (PASSWORD_MAX + 1))):
            refused = await browser.post("/login/password", wrong)
            assert refused.status == 403
            said.add(refused.text)
        assert len(said) == 1  # nothing tells a wrong name from a wrong password
        assert browser.cookies == {}
        assert (await browser.post("/login/password", typed())).location == "/"
        assert "password:ada" in (await browser.get("/")).text
        assert "loopback" not in served.access.address_hint()
        assert (await browser.post("/login/loopback", {"token": "x"})).status == 404


async def test_a_user_who_is_removed_or_gets_another_password_is_logged_out(users: Path) -> None:
    async with serving(by_file(users)) as served, Browser(served) as ada, Browser(served) as bob:
        await ada.post("/login/password", typed())
        await bob.post("/login/password", typed("bob"))
        streams = {one.name: one for one in served.access.sessions._sessions.values()}
        known = read_users(users)
        write_users(users, known | {"bob": new_user("bob", "view", PASSWORD)})  # another salt, so another hash
        assert not served.access.alive(streams["password:bob"])  # nor does an open stream go on
        assert served.access.alive(streams["password:ada"])
        assert (await bob.get("/")).location == "/login"
        assert (await ada.get("/")).status == 200
        write_users(users, {"bob": known["bob"]})
        assert (await ada.get("/")).location == "/login"
        assert (await ada.post("/login/password", typed())).status == 403
        assert (await bob.post("/login/password", typed("bob"))).status == 303
        users.chmod(0o666)  # noqa: ASYNC240
        assert (await bob.get("/")).location == "/login"
        users.unlink()  # noqa: ASYNC240
        assert (await bob.post("/login/password", typed("bob"))).status == 403


async def test_logins_are_logged_without_secrets(users: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamproc")
    async with serving(by_file(users)) as served, Browser(served) as browser:
        await browser.post("/login/password", typed(TYPED_AS_NAME, "wrong wrong wrong"))
        await browser.post("/login/password", typed("x\nlogin name=password:root", PASSWORD))
        await browser.post("/login/password", typed())
        await browser.post("/logout", {"csrf": await browser.csrf()})
        cookies = list(browser.cookies.values())
    text = caplog.text
    assert text.count("login refused method=password address=127.0.0.1") == 2
    assert "login name=password:ada rights=fleet,halt,view address=127.0.0.1" in text
    assert "logout name=password:ada" in text
    for secret in (PASSWORD, TYPED_AS_NAME, "wrong wrong", "root", *cookies):
        assert secret not in text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ada", ":1: expected NAME:RIGHT"),
        ("ada:root:scrypt:15:8:1:AAAA:AAAA", ":1: right 'root': choose among view, halt, fleet"),
        ("ada:view:scrypt:1:8:1:AAAA:AAAA", "log2 cost of scrypt: expected 14 to 20"),
        ("ada:view:scrypt:99:8:1:AAAA:AAAA", "log2 cost of scrypt: expected 14 to 20"),
        ("ada:view:scrypt:15:8:1:AAAA:AAAA", "the salt or the hash is damaged"),
        ("# a comment\n\nada:view:scrypt:15:8:1:AAAA:AAAA", ":3: the salt or the hash is damaged"),
        ("ada:view:md5:15:8:1:AAAA:AAAA", ":1: expected NAME:RIGHT"),
    ],
)
def test_a_damaged_file_says_where(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "page-users"
    path.write_text(line)
    path.chmod(0o600)
    with pytest.raises(InvalidSettings) as raised:
        read_users(path)
    assert problem in str(raised.value)


def test_a_file_that_others_may_write_is_refused(users: Path) -> None:
    assert users.stat().st_mode & 0o777 == 0o600
    users.chmod(0o620)
    with pytest.raises(InvalidSettings, match="chmod go-w"):
        read_users(users)


BEHIND = {
    "trust_header": "X-Forwarded-User",
    "groups_header": "X-Forwarded-Groups",
    "groups": ("oncall=halt", "*=view"),
}


async def test_the_proxy_says_who_it_is() -> None:
    options = AccessOptions(**BEHIND, trusted_proxies=("127.0.0.0/8",), public_url="https://ops.example.com")
    async with serving(options) as served, Browser(served) as browser:
        page = await browser.get("/login", X_Forwarded_User="ada@example.com")
        assert "Continue as ada@example.com" in page.text
        named = {"X_Forwarded_User": "ada@example.com", "X_Forwarded_Groups": "dev, oncall"}
        assert (await browser.post("/login/header", page.fields(), **named)).location == "/"
        assert "header:ada@example.com" in (await browser.get("/", **named)).text
        [session] = served.access.sessions._sessions.values()
        assert session.rights == {"view", "halt"}
        await browser.get("/", X_Forwarded_User="ada@example.com", X_Forwarded_Groups="dev")
        assert session.rights == {"view"}
        served.access._methods["header"]._granted = {"oncall": frozenset({"view"})}  # type: ignore[attr-defined]
        assert (await browser.get("/", X_Forwarded_User="ada@example.com")).location == "/login"  # no right any more
        assert (await browser.post("/login/header", page.fields(), X_Forwarded_User="ada@example.com")).status == 403
        assert (await browser.post("/login/header", page.fields(), **named)).location == "/"
        # Another person behind the same browser, or none: the session is over.
        assert (await browser.get("/", X_Forwarded_User="bob")).location == "/login"
        assert (await browser.get("/", **named)).location == "/login"


@pytest.mark.parametrize("proxies", [("10.0.0.0/8",), ("127.0.0.2/32",), ("::1/128",)])
async def test_the_header_from_another_address_means_nothing(proxies: tuple[str, ...]) -> None:
    options = AccessOptions(**BEHIND, trusted_proxies=proxies)
    async with serving(options) as served, Browser(served) as browser:
        forged = {"X_Forwarded_User": "ada", "X_Forwarded_For": "10.0.0.1, 127.0.0.2"}
        page = await browser.get("/login", **forged)
        assert page.forms() == []
        assert (await browser.post("/login/header", {"next": "/"}, **forged)).status == 403
        assert (await browser.get("/", **forged)).location == "/login"
        assert browser.cookies == {}


@pytest.mark.parametrize(
    ("again", "status"), [("X-Forwarded-User: ada", 403), ("x-forwarded-user: root", 403), ("", 303)]
)
async def test_a_header_that_comes_twice_means_nothing(again: str, status: int) -> None:
    """A proxy that appends, instead of replacing, what the client sent."""
    async with serving(AccessOptions(**BEHIND, trusted_proxies=("127.0.0.0/8",))) as served:
        lines = [
            "POST /login/header HTTP/1.1", f"Host: {served.origin.removeprefix('http://')}", f"Origin: {served.origin}",
            "Sec-Fetch-Site: same-origin", "X-Forwarded-User: root", *filter(None, [again]), "Content-Length: 8",
            "Content-Type: application/x-www-form-urlencoded", "Connection: close",
        ]  # fmt: skip
        answer = await raw(served.port, "\r\n".join((*lines, "", "next=%2F")))
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("again", ["dev", "oncall", ""])
async def test_groups_that_come_twice_are_none(again: str) -> None:
    async with serving(AccessOptions(**BEHIND, trusted_proxies=("127.0.0.0/8",))) as served, Browser(served) as browser:
        named = {"X_Forwarded_User": "ada", "X_Forwarded_Groups": "oncall"}
        await browser.post("/login/header", {"next": "/"}, **named)
        [session] = served.access.sessions._sessions.values()
        assert session.rights == {"view", "halt"}
        [(name, value)] = browser.cookies.items()
        twice = [
            ("Cookie", f"{name}={value}"), ("X-Forwarded-User", "ada"), ("X-Forwarded-Groups", "oncall"),
            ("X-Forwarded-Groups", again),
        ]  # fmt: skip
        async with aiohttp.ClientSession() as http, http.get(served.origin, headers=twice) as got:
            assert got.status == 200
        assert session.rights == {"view"}  # those of everyone


@pytest.mark.parametrize("header", ["Host", "Origin", "Sec-Fetch-Site", "X-CSRF-Token"])
async def test_what_says_where_a_request_comes_from_counts_only_once(header: str) -> None:
    async with serving() as served, Browser(served) as browser:
        await browser.log_in_with_token()
        [(name, value)] = browser.cookies.items()
        sent = {
            "Host": served.origin.removeprefix("http://"), "Origin": served.origin, "Sec-Fetch-Site": "same-origin",
            "X-CSRF-Token": await browser.csrf(), "Cookie": f"{name}={value}", "Content-Length": "0",
            "Content-Type": "application/x-www-form-urlencoded", "Connection": "close",
        }  # fmt: skip
        for more, status in (([], b" 200 "), ([(header, sent[header])], b" 4")):
            lines = [f"{key}: {text}" for key, text in (*sent.items(), *more)]
            answer = await raw(served.port, "\r\n".join(["POST /change HTTP/1.1", *lines, "", ""]))
            assert status in answer.partition(b"\r\n")[0], answer
        assert served.changes == 1


async def raw(port: int, text: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("network", "wide"),
    [
        ("10.1.2.3/32", False), ("10.1.2.0/24", False), ("127.0.0.0/8", False), ("::1/128", False),
        ("2001:db8::/64", False), ("10.1.2.0/23", True), ("10.0.0.0/8", True), ("0.0.0.0/0", True),
        ("2001:db8::/32", True), ("::/0", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("header", ["", "X-Forwarded-User"])
async def test_a_wide_network_of_proxies_warns(
    network: str, wide: bool, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"trust_header": header, "groups": ("*=view",)} if header else {}
    async with serving(AccessOptions(trusted_proxies=(network,), **more)):
        pass
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == wide
    assert not wide or (network in warned[0] and (header or "guesses") in warned[0] and "/24" in warned[0])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"host": "0.0.0.0"}, "people must log in"),
        ({"host": "::"}, "people must log in"),
        ({"host": "ops.example.com"}, "people must log in"),
        ({**BEHIND, "host": "0.0.0.0", "trusted_proxies": ("10.0.0.0/8",)}, "--public-url"),
        ({**BEHIND}, "--trusted-proxy"),
        ({**BEHIND, "trusted_proxies": ("10.0.0.1/8",)}, "--trusted-proxy '10.0.0.1/8'"),
        ({**BEHIND, "trusted_proxies": ("proxy",)}, "--trusted-proxy 'proxy'"),
        ({**BEHIND, "groups": (), "trusted_proxies": ("10.0.0.0/8",)}, "--group"),
        ({**BEHIND, "groups": ("ops=root",), "trusted_proxies": ("10.0.0.0/8",)}, "'ops=root': expected GROUP=RIGHT"),
        ({"public_url": "http://ops.example.com"}, "must start with https://"),
        ({"public_url": "ops.example.com"}, "expected only https:// and a host"),
        ({"public_url": "https://ops.example.com/page"}, "expected only https:// and a host"),
        ({"public_url": "https://ada@ops.example.com"}, "expected only https:// and a host"),
        ({"public_url": "https://ops.example.com:port"}, "not a URL"),
        ({"users_file": "/nowhere/page-users"}, "/nowhere/page-users: cannot be read"),
    ],
)
async def test_options_that_let_anyone_in_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        async with serving(AccessOptions(**options)):
            pass
    assert problem in str(raised.value)


async def test_an_unknown_name_costs_as_much_as_a_wrong_password(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(by_file(users)) as served, Browser(served) as browser:
        costs: list[tuple[int, ...]] = []
        real = hashlib.scrypt

        def counted(password: bytes, **how: Any) -> bytes:
            costs.append((how["n"], how["r"], how["p"]))
            return real(password, **how)

        monkeypatch.setattr(hashlib, "scrypt", counted)
        await browser.post("/login/password", typed("eve"))
        await browser.post("/login/password", typed(password="wrong wrong wrong"))
        assert costs == [(1 << 15, 8, 1)] * 2
