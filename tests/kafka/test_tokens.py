"""Sources of bearer tokens: a file that is read at each login, or an endpoint that is called in time."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproc.errors import InvalidSettings
from streamproc.kafka.options import connection_options
from streamproc.kafka.tokens import ClientCredentials, NoToken, TokenFile, token_provider
from streamproc.settings import Settings, load_settings
from tests.secured.broker import Issuer
from tests.secured.endpoint import SECRET, TokenEndpoint

LOGIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint(Issuer()) as endpoint:
        yield endpoint


UNREADABLE = f"e30.{base64.urlsafe_b64encode(b'[' * 30_000).decode()}.c2lnbmVk"  # nested too deeply to be parsed


def settings_for(endpoint: TokenEndpoint, **options: str) -> Settings:
    return load_settings(**(LOGIN | endpoint.options | options))


def jwt(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{body}.c2lnbmVk"


async def test_a_file_is_read_again_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "token"
    provider = TokenFile(str(path))

    for token in ("first", jwt(exp=time.time() + 60), jwt(exp=10**400), UNREADABLE):
        path.write_text(token + "\n")
        assert await provider.token() == token


@pytest.mark.parametrize(("content", "says"), [
    ("", "there is no token in .*: check STREAMPROC_SASL_TOKEN_FILE"), ("two words", "the text in .* is not a token"),
    ("a\x01auth=Bearer b", "the text in .* is not a token"),
    ("\u2713", r"no token can be read from .* \(it is not text\): set STREAMPROC_SASL_TOKEN_FILE"),
    (jwt(exp=-(10**30)), "expired at 1970-01-01T00:00:00Z"),
    (jwt(exp=1_000_000_000), "expired at 2001-09-09T01:46:40Z: the program that writes STREAMPROC_SASL_TOKEN_FILE"),
    (None, r"no token can be read from .* \(No such file or directory\)"),
])  # fmt: skip
async def test_a_file_without_a_valid_token_raises_with_a_remedy(
    content: str | None, says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content, encoding="utf-8")

    with pytest.raises(NoToken, match=says):
        await TokenFile(str(tmp_path / "token")).token()


async def test_an_endpoint_is_called_once_while_its_token_is_valid(endpoint: TokenEndpoint) -> None:
    provider = ClientCredentials(settings_for(endpoint))

    tokens = {await provider.token() for _ in range(5)}

    assert tokens == {endpoint.given[0]}
    assert len(endpoint.asked) == 1


async def test_a_token_is_renewed_before_it_expires_and_used_until_then(endpoint: TokenEndpoint) -> None:
    endpoint.lives_s = 1000
    provider = ClientCredentials(settings_for(endpoint))
    first = await provider.token()

    provider._renew_at_s -= 801  # four fifths of its lifetime have passed
    endpoint.answer = 503, b""
    assert await provider.token() == first  # it is still valid
    endpoint.answer = None
    provider._failure = (0.0, provider._failure[1])
    endpoint.user = "another"
    assert await provider.token() == endpoint.given[1] != first


async def test_a_token_whose_lifetime_exceeds_a_float_is_used(endpoint: TokenEndpoint) -> None:
    endpoint.answer = 200, b'{"access_token": "abc", "expires_in": 1%s}' % (b"0" * 400)

    assert await ClientCredentials(settings_for(endpoint)).token() == "abc"


async def test_all_clients_of_a_process_share_a_token(endpoint: TokenEndpoint) -> None:
    settings = settings_for(endpoint)

    first, second = (connection_options(settings)["sasl_oauth_token_provider"] for _ in range(2))

    assert first is second is token_provider(settings)


@pytest.mark.parametrize(("answer", "says"), [
    ((401, b'{"error": "invalid_client"}'), r"answers 401 \(invalid_client\): check STREAMPROC_SASL_OAUTH_CLIENT"),
    ((400, b'{"error": "<b>%s</b>"}' % SECRET.encode()), "answers 400: check"), ((302, b""), "answers 302: check"),
    ((400, b"[" * 30_000), "answers 400: check"), ((200, b"[" * 30_000), "did not return a JSON object"),
    ((200, b"<html>"), "did not return a JSON object: check STREAMPROC_SASL_OAUTH_TOKEN_URL"),
    ((200, b"{}"), "there is no token in the answer of"),
    ((200, b'{"access_token": "a b"}'), "the text in the answer of .* is not a token"),
    ((200, b'{"access_token": "' + b"a" * 100_000 + b'"}'), "did not return a JSON object"),
])  # fmt: skip
async def test_the_error_about_a_bad_endpoint_answer_does_not_show_the_secret(
    answer: tuple[int, bytes], says: str, endpoint: TokenEndpoint
) -> None:
    endpoint.answer = answer
    endpoint.headers = {"Location": endpoint.url + "/elsewhere"}

    with pytest.raises(NoToken, match=says) as problem:
        await ClientCredentials(settings_for(endpoint)).token()

    assert SECRET not in str(problem.value)
    assert problem.value.__cause__ is None


async def test_clients_share_the_failure_of_an_unreachable_endpoint(nowhere_url: str) -> None:
    options = {"sasl_oauth_token_url": nowhere_url, "sasl_oauth_client_id": "a", "sasl_oauth_client_secret": SECRET}
    provider = ClientCredentials(load_settings(**LOGIN, **options))

    with pytest.raises(NoToken, match=r"does not answer .*: check STREAMPROC_SASL_OAUTH_TOKEN_URL"):
        await provider.token()
    failed_at_s, _ = provider._failure
    with pytest.raises(NoToken):
        await provider.token()
    assert provider._failure[0] == failed_at_s


@pytest.fixture
def nowhere_url() -> str:
    with TokenEndpoint(Issuer()) as gone:
        return gone.url


@pytest.mark.parametrize(("options", "says"), [
    ({"sasl_mechanism": "PLAIN"}, "STREAMPROC_SASL_USERNAME: set it"),
    ({"sasl_mechanism": "PLAIN", "sasl_username": "a"}, "STREAMPROC_SASL_PASSWORD: set it"),
    ({}, "STREAMPROC_SASL_TOKEN_FILE or STREAMPROC_SASL_OAUTH_TOKEN_URL: OAUTHBEARER needs exactly one"),
    ({"sasl_oauth_token_url": "https://id/token"}, "STREAMPROC_SASL_OAUTH_CLIENT_ID: set it"),
    ({"sasl_oauth_token_url": "http://id/token"}, "STREAMPROC_SASL_OAUTH_TOKEN_URL: must start with https"),
    ({"sasl_oauth_token_url": "https://a:b@id/token"}, "STREAMPROC_SASL_OAUTH_TOKEN_URL: must name a host"),
])  # fmt: skip
def test_the_error_about_an_incomplete_login_shows_no_secret(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says) as problem:
        load_settings(**(LOGIN | {"ssl_password": SECRET, "redis": f"redis://u:{SECRET}@cache"} | options))

    assert SECRET not in str(problem.value)
