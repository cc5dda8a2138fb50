"""Logins with OpenID Connect against a real provider, which can be made to lie."""

from __future__ import annotations

import base64
import hmac
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import aiohttp
import pytest
from joserfc.jwk import RSAKey
from pydantic import SecretStr

from streamproc.errors import InvalidSettings
from streamproc.settings import Settings
from streamproc.web.access import AccessOptions, oidc, oidc_provider
from tests.web.access_app import KEY, Answer, Browser, Served, serving
from tests.web.identity_provider import CLIENT, SECRET, IdentityProvider, identity_provider

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

GROUPS = ("oncall=halt", "ops=fleet")


@asynccontextmanager
async def both(secret: str = SECRET, **more: Any) -> AsyncIterator[tuple[IdentityProvider, Served]]:
    async with identity_provider() as provider:
        options = AccessOptions(oidc_issuer=provider.issuer, oidc_client_id=CLIENT, groups=GROUPS, **more)
        settings = Settings(command_key=SecretStr(KEY), page_oidc_secret=SecretStr(secret))
        async with serving(options, settings=settings) as served:
            yield provider, served


async def at_provider(location: str) -> str:
    """Follow the page's redirect to the provider; where that sends the browser."""
    async with aiohttp.ClientSession() as http, http.get(location, allow_redirects=False) as got:
        assert got.status == 302
        return got.headers["Location"]


async def begin(browser: Browser, path: str = "/login/oidc?next=/runs/a%2Fb") -> tuple[Answer, str]:
    """Begin a login; the page after the provider's redirect, and its path."""
    begun = await browser.get(path)
    assert begun.status == 303
    back = await at_provider(begun.location)
    assert back.startswith(browser.origin + "/login/oidc/callback?")
    path = back.removeprefix(browser.origin)
    kept, browser.cookies = browser.cookies, {}  # the redirect of another site brings no strict cookie
    page = await browser.get(path, Sec_Fetch_Site="cross-site")
    browser.cookies = kept
    return page, path


async def log_in(browser: Browser, **changed: str) -> Answer:
    page, _ = await begin(browser)
    return await browser.post("/login/oidc", page.fields() | changed)


async def test_a_person_logs_in_and_groups_give_rights() -> None:
    async with both() as (provider, served), Browser(served) as browser:
        login = await browser.get("/login?next=/runs/a%252Fb")
        assert 'href="/login/oidc?next=%2Fruns%2Fa%252Fb"' in login.text
        answer = await log_in(browser)
        assert (answer.status, answer.location) == (303, "/runs/a/b")
        assert "oidc:ada@example.com" in (await browser.get("/")).text
        [session] = served.access.sessions._sessions.values()
        assert session.rights == {"view", "halt"}
        [asked] = provider.asked
        assert asked["redirect_uri"] == f"{served.origin}/login/oidc/callback"
        values = (asked["state"], asked["nonce"], asked["code_challenge"])
        assert len(set(values)) == 3
        assert all(len(value) == 43 for value in values)


async def test_a_get_changes_nothing_and_uses_up_no_code() -> None:
    async with both() as (provider, served), Browser(served) as browser:
        page, path = await begin(browser)
        for _ in range(3):
            assert (await browser.get(path)).status == 200
        assert provider.exchanged == 0
        assert len(served.access.sessions) == 0
        assert (await browser.post("/login/oidc", page.fields())).status == 303


async def test_a_login_ends_only_in_the_browser_that_began_it() -> None:
    """Otherwise an attacker could log others in as himself, or be logged in by a stolen code."""
    async with both() as (provider, served), Browser(served) as browser, Browser(served) as victim:
        page, _ = await begin(browser)
        assert (await victim.post("/login/oidc", page.fields())).status == 403  # it has begun none
        other, _ = await begin(victim)
        stolen = other.fields() | {"code": page.fields()["code"]}
        assert (await victim.post("/login/oidc", page.fields())).status == 403
        assert provider.exchanged == 0
        assert (await victim.post("/login/oidc", stolen)).status == 403  # PKCE: the code is bound to the other login
        assert provider.exchanged == 0


async def test_a_login_cannot_be_repeated() -> None:
    async with both() as (provider, served), Browser(served) as browser:
        page, _ = await begin(browser)
        cookies = dict(browser.cookies)
        assert (await browser.post("/login/oidc", page.fields())).status == 303
        browser.cookies = cookies
        again = await browser.post("/login/oidc", page.fields())
        assert again.status == 403
        assert "begin again" in again.text
        assert provider.exchanged == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"state": ""}, {"state": "x" * 43}, {"state": "\x00"}, {"code": ""}, {"code": "guess"},
        {"iss": "https://evil.example"}, {"error": "access_denied"},
    ],
)  # fmt: skip
async def test_changed_fields_log_no_one_in(changed: dict[str, str]) -> None:
    async with both() as (_, served), Browser(served) as browser:
        refused = await log_in(browser, **changed)
        assert refused.status == 403
        assert len(served.access.sessions) == 0
        assert ("access_denied" in refused.text) == ("error" in changed)


async def test_a_login_that_takes_too_long_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both() as (_, served), Browser(served) as browser:
        page, _ = await begin(browser)
        name = next(name for name in browser.cookies if name.endswith("-login"))
        began, rest = browser.cookies[name].split(".", 1)
        for other in (f"{int(began) + 5}.{rest}", f"0.{rest}", ".", "", f"x.{rest}"):
            browser.cookies[name] = other
            assert (await browser.post("/login/oidc", page.fields())).status == 403
        browser.cookies[name] = f"{began}.{rest}"
        monkeypatch.setattr(oidc, "LOGIN_S", -1)
        assert (await browser.post("/login/oidc", page.fields())).status == 403
        monkeypatch.undo()
        assert (await browser.post("/login/oidc", page.fields())).status == 303


def changing(**claims: Any) -> Callable[[dict[str, Any]], Any]:
    """Claims that a token has instead; None: it lacks them."""

    def change(found: dict[str, Any]) -> None:
        found.update(claims)
        for name in [name for name, value in found.items() if value is None]:
            del found[name]

    return change


@pytest.mark.parametrize(
    "lie",
    [
        {"iss": "https://evil.example"}, {"iss": None}, {"aud": "another-client"}, {"aud": None}, {"aud": []},
        {"aud": [CLIENT, "other"]}, {"aud": [CLIENT, "other"], "azp": "other"}, {"azp": "other"},
        {"exp": 1}, {"exp": None}, {"exp": "soon"}, {"exp": True}, {"iat": 1}, {"iat": 1 << 40}, {"iat": None},
        {"nbf": 1 << 40}, {"nonce": "another login's"}, {"nonce": None}, {"sub": None}, {"sub": ""}, {"sub": 7},
    ],
    ids=str,
)  # fmt: skip
async def test_a_token_for_others_or_another_time_is_refused(lie: dict[str, Any]) -> None:
    async with both() as (provider, served), Browser(served) as browser:
        provider.change = changing(**lie)
        assert (await log_in(browser)).status == 403
        assert provider.exchanged == 1
        assert len(served.access.sessions) == 0


@pytest.mark.parametrize("truth", [{"aud": [CLIENT]}, {"aud": [CLIENT, "other"], "azp": CLIENT}, {"nbf": 1}], ids=str)
async def test_other_forms_of_a_right_token_are_accepted(truth: dict[str, Any]) -> None:
    async with both() as (provider, served), Browser(served) as browser:
        provider.change, provider.algorithm = changing(**truth), "ES256"
        assert (await log_in(browser)).status == 303


async def test_a_token_needs_the_signature_of_the_provider() -> None:
    async with both() as (provider, served), Browser(served) as browser:
        assert (await log_in(browser)).status == 303  # so the keys are known
        stranger = RSAKey.generate_key(2048, {"kid": provider.keys.keys[0].kid})
        provider.signing = stranger
        assert (await log_in(browser)).status == 403

    async with both() as (provider, served), Browser(served) as browser:
        # The public key, or the client's secret, as the secret of an HMAC; and a secret that is published by mistake.
        provider.more_keys = [{"kty": "oct", "kid": "shared", "k": encoded(SECRET.encode())}]
        for secret in (provider.keys.keys[0].as_pem(private=False), SECRET.encode()):
            for kid in (provider.keys.keys[0].kid, "shared", None):
                provider.signed = lambda claims, kid=kid, by=secret: by_hmac(claims, by, kid)  # type: ignore[method-assign]
                assert (await log_in(browser)).status == 403


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def by_hmac(claims: dict[str, Any], secret: bytes, kid: str | None) -> str:
    header = {"alg": "HS256"} | ({} if kid is None else {"kid": kid})
    signed = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"


async def test_a_token_without_a_signature_is_refused() -> None:
    def part(content: dict[str, Any]) -> str:
        return encoded(json.dumps(content).encode())

    async with both() as (provider, served), Browser(served) as browser:
        for algorithm in ("none", "None", "RS256"):
            provider.signed = lambda claims, alg=algorithm: f"{part({'alg': alg})}.{part(claims)}."  # type: ignore[method-assign]
            assert (await log_in(browser)).status == 403
        for token in ("", "a.b", "a.b.c", "é", 7, None):
            provider.signed = lambda _claims, token=token: token  # type: ignore[method-assign]
            assert (await log_in(browser)).status == 403


async def test_new_keys_of_the_provider_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both() as (provider, served), Browser(served) as browser:
        assert (await log_in(browser)).status == 303
        provider.keys.keys[0] = RSAKey.generate_key(2048)
        assert (await log_in(browser)).status == 403  # the keys were asked for just now: not again for each bad token
        monkeypatch.setattr(oidc_provider, "RETRY_S", 0.0)
        provider.keys.keys[0] = RSAKey.generate_key(2048)
        provider.keys.keys[0].ensure_kid()
        assert (await log_in(browser)).status == 303


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"email_verified": False}, "oidc:248289761001"),  # anyone could claim it
        ({"email_verified": "false"}, "oidc:248289761001"),
        ({"email_verified": "true"}, "oidc:ada@example.com"),
        ({"email_verified": None}, "oidc:248289761001"),
        ({"email": ""}, "oidc:248289761001"),
        ({"email": 7}, "oidc:248289761001"),
        ({"email": "a\u202eb\n"}, "oidc:a\\u202eb"),
        ({"email": "x" * 500}, f"oidc:{'x' * 120}"),
    ],
)
async def test_names_are_verified_and_harmless(claims: dict[str, Any], name: str) -> None:
    async with both() as (provider, served), Browser(served) as browser:
        provider.claims |= claims
        assert (await log_in(browser)).status == 303
        [session] = served.access.sessions._sessions.values()
        assert session.name == name


@pytest.mark.parametrize("groups", [None, [], ["dev"], "dev", {"oncall": 1}, [["oncall"]], 7])
async def test_a_person_without_a_group_that_counts_sees_nothing(groups: Any) -> None:
    async with both() as (provider, served), Browser(served) as browser:
        provider.claims["groups"] = groups
        refused = await log_in(browser)
        assert refused.status == 403
        assert "no right to see this page" in refused.text
        assert (await browser.get("/")).location == "/login"
        assert len(served.access.sessions) == 0


async def test_a_provider_that_is_down_or_calls_itself_another_lets_no_one_in() -> None:
    async with both() as (provider, served), Browser(served) as browser:
        provider.down = True
        assert (await browser.get("/login/oidc")).status == 503
        provider.down = False
        for wrong in (
            {"issuer": "https://evil.example"},
            {"token_endpoint": "http://evil.example/token"},
            {"authorization_endpoint": "javascript:alert(1)"},
            {"jwks_uri": None},
        ):
            provider.configuration = wrong
            assert (await browser.get("/login/oidc")).status == 503
        provider.configuration = {}
        assert (await log_in(browser)).status == 303


async def test_a_wrong_client_secret_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with both(secret="not the secret") as (_, served), Browser(served) as browser:
        refused = await log_in(browser)
    assert refused.status == 403
    assert "answered 400: invalid_grant" in caplog.text
    assert "not the secret" not in caplog.text + refused.text


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "/x\r\nSet-Cookie: a=b"]
)
async def test_the_way_back_leads_nowhere_else(target: str) -> None:
    async with both() as (_, served), Browser(served) as browser:
        page, _ = await begin(browser, f"/login/oidc?next={quote(target)}")
        answer = await browser.post("/login/oidc", page.fields() | {"next": target})
        assert answer.headers.getall("Location") == ["/"]


async def test_the_redirect_address_is_exact_whatever_the_request_says() -> None:
    async with both() as (_, served), Browser(served) as browser:
        begun = await browser.get(
            "/login/oidc", Host=f"localhost:{served.port}", X_Forwarded_Host="evil.example", X_Forwarded_Proto="https"
        )
        asked = parse_qs(urlsplit(begun.location).query)
        assert asked["redirect_uri"] == [f"{served.origin}/login/oidc/callback"]


@pytest.mark.parametrize(
    "issuer",
    ["http://idp.example.com", "idp.example.com", "https://ada@idp.example.com", "https://", "https://[", "ftp://x"],
)
async def test_a_provider_that_is_asked_in_the_clear_is_refused(issuer: str) -> None:
    with pytest.raises(InvalidSettings, match="--oidc-issuer"):
        async with serving(AccessOptions(oidc_issuer=issuer, oidc_client_id=CLIENT, groups=GROUPS)):
            pass
