"""Guessing passwords of the page: slowed down wherever it comes from, and no way to keep the owner of one out."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from streamproc.web.access import AccessOptions, password_file, passwords, throttle as limits
from streamproc.web.access.password_file import PageUser, new_user, write_users
from streamproc.web.access.throttle import KEYS_MAX, KNOWN_MAX, WINDOW_S, LoginThrottle
from tests.waiting import until
from tests.web.access_app import Browser, Clock, Served, serving

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

PASSWORD = "correct horse battery"
GUESS = "wrong wrong wrong"
FAILED_MAX, ADDRESS_FAILED_MAX, ACCOUNT_FAILED_MAX, WAITING_MAX = 3, 12, 9, 5


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller limits, and hashes that take half the time: a hundred of the real ones take ten seconds."""
    monkeypatch.setattr(password_file, "LOG2_COST", 14)
    for name in ("FAILED_MAX", "ADDRESS_FAILED_MAX", "ACCOUNT_FAILED_MAX"):
        monkeypatch.setattr(limits, name, globals()[name])
    monkeypatch.setattr(passwords, "WAITING_MAX", WAITING_MAX)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "page-users"
    write_users(path, {name: new_user(name, "view", PASSWORD) for name in ("ada", "bob")})
    return path


def behind_proxy(users: Path) -> AccessOptions:
    return AccessOptions(users_file=str(users), trusted_proxies=("127.0.0.1/32",))


async def tried(browser: Browser, password: str = GUESS, user: str = "ada", address: str = "203.0.113.9") -> int:
    """The status of the answer to a login, from an address that the proxy reports."""
    fields = {"user": user, "password": password, "next": "/"}
    return (await browser.post("/login/password", fields, X_Forwarded_For=f"10.9.9.9, {address}")).status


async def test_after_ten_failures_a_minute_an_address_waits(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.undo()  # the real limits
    async with serving(AccessOptions(users_file=str(users)), now=clock) as served, Browser(served) as browser:
        for _ in range(10):
            assert await tried(browser) == 403
        fields = {"user": "ada", "password": PASSWORD, "next": "/"}
        slowed = await browser.post("/login/password", fields, X_Forwarded_For="203.0.113.1")  # of no trusted proxy
        assert slowed.status == 429
        assert slowed.headers["Retry-After"] == "60"
        clock.now_s += 59.5
        assert await tried(browser, PASSWORD) == 429
        clock.now_s += 1
        assert await tried(browser, PASSWORD) == 303


async def test_many_guesses_at_once_are_counted_before_they_are_checked(users: Path) -> None:
    async with serving(behind_proxy(users)) as served, Browser(served) as browser:
        answers = await asyncio.gather(*(tried(browser) for _ in range(20)))
        assert sorted(answers) == [403] * FAILED_MAX + [429] * (20 - FAILED_MAX)


async def test_a_guesser_elsewhere_keeps_no_one_out(users: Path) -> None:
    """Not the owner at another address, nor the others at his."""
    async with serving(behind_proxy(users)) as served, Browser(served) as browser, Browser(served) as ada:
        for number in range(FAILED_MAX + 2):
            assert await tried(browser) == (403 if number < FAILED_MAX else 429)
        assert await tried(browser, PASSWORD, "bob") == 303
        assert await tried(ada, PASSWORD, address="203.0.113.10") == 303


async def test_what_a_client_or_its_port_says_does_not_make_it_another(users: Path) -> None:
    async with serving(behind_proxy(users)) as served, Browser(served) as browser:
        hops = ("203.0.113.9", "203.0.113.9:5001", "203.0.113.9:5002", " 203.0.113.9 ", "::ffff:203.0.113.9")
        for number in range(FAILED_MAX + 5):
            assert await tried(browser, address=hops[number % 5]) == (403 if number < FAILED_MAX else 429)
        for number in range(FAILED_MAX + 2):  # no address: that of the proxy counts
            assert await tried(browser, address=f"x{number}") == (403 if number < FAILED_MAX else 429)
        for number in range(FAILED_MAX + 2):
            shown = await tried(browser, address=f"[2001:db8:1:2::{number:x}]:500{number % 10}")
            assert shown == (403 if number < FAILED_MAX else 429)


async def test_guesses_from_many_addresses_are_slowed_and_the_owner_is_not(users: Path) -> None:
    async with serving(behind_proxy(users)) as served, Browser(served) as ada, Browser(served) as thief:
        assert await tried(ada, PASSWORD, address="198.51.100.7") == 303
        answers = [await tried(thief, address=f"203.0.113.{number}") for number in range(ACCOUNT_FAILED_MAX + 20)]
        assert answers == [403] * ACCOUNT_FAILED_MAX + [429] * 20
        assert await tried(thief, PASSWORD, address="203.0.113.200") == 429  # in a new browser, at a new address
        assert await tried(ada, PASSWORD, address="203.0.113.201") == 303  # in a browser that is known
        async with Browser(served) as other:
            assert await tried(other, PASSWORD, address="198.51.100.7") == 303  # at an address that is known
        assert await tried(thief, PASSWORD, "bob") == 303


async def test_a_known_browser_may_not_guess_faster_and_knows_one_account(users: Path) -> None:
    async with serving(behind_proxy(users)) as served, Browser(served) as browser:
        await tried(browser, PASSWORD)
        [known] = [name for name in browser.cookies if name.endswith("-known")]
        answers = [await tried(browser, address=f"203.0.113.{number}") for number in range(FAILED_MAX + 3)]
        assert answers == [403] * FAILED_MAX + [429] * 3
        name, _, seal = browser.cookies[known].partition(".")
        for forged in (f"other.{seal}", f"{name}.{'0' * 64}", name, ".", "", "\u00fc.\u00fc"):
            browser.cookies[known] = forged
            assert await tried(browser, PASSWORD, address="203.0.113.99") == 303  # an address of its own, not known
            browser.cookies.clear()
        # Of another account: its guesses count by address, and for all of that account.
        await tried(browser, PASSWORD, address="203.0.113.150")
        answers = [await tried(browser, user="bob", address=f"192.0.2.{number}") for number in range(13)]
        assert answers == [403] * ACCOUNT_FAILED_MAX + [429] * 4


async def test_a_browser_stays_known_after_a_restart_and_not_after_another_password(users: Path) -> None:
    async def attacked(served: Served) -> None:
        async with Browser(served) as thief:
            for number in range(ACCOUNT_FAILED_MAX):
                await tried(thief, address=f"203.0.113.{number}")

    async with serving(behind_proxy(users)) as served, Browser(served) as ada:
        await tried(ada, PASSWORD)
        [cookie] = [(name, value) for name, value in ada.cookies.items() if name.endswith("-known")]
    async with serving(behind_proxy(users)) as served, Browser(served) as ada:
        name = f"{served.access.address.cookie}-known"
        ada.cookies[name] = cookie[1]
        await attacked(served)
        assert await tried(ada, PASSWORD, address="203.0.113.201") == 303
        write_users(users, {"ada": new_user("ada", "view", PASSWORD)})  # another salt
        ada.cookies = {name: cookie[1]}
        assert await tried(ada, PASSWORD, address="203.0.113.202") == 429


async def test_an_unknown_name_is_slowed_as_a_known_one_is(users: Path) -> None:
    async with serving(behind_proxy(users)) as served, Browser(served) as browser:
        for user in ("ada", "eve"):
            answers = [await tried(browser, user=user, address=f"203.0.113.{n}") for n in range(ACCOUNT_FAILED_MAX + 1)]
            assert answers == [403] * ACCOUNT_FAILED_MAX + [429]


async def test_another_site_cannot_lock_a_person_out_by_wrong_tokens() -> None:
    """It can open `/login?token=x` in a browser, whose page posts the token by itself."""
    async with serving() as served, Browser(served) as browser:
        for _ in range(60):
            page = await browser.get("/login?token=wrong")
            assert (await browser.post("/login/loopback", page.fields())).status == 403
        assert (await browser.log_in_with_token()).status == 303


async def test_a_hash_is_not_waited_for_without_end_and_known_browsers_do_not_wait_for_others(
    users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses from many addresses at many accounts fill the places in which hashes are computed."""
    held, started = threading.Event(), threading.Semaphore(0)
    real = PageUser.is_password

    def slow(self: PageUser, password: str) -> bool:
        if password == GUESS:
            started.release()
            held.wait(30)
        return real(self, password)

    monkeypatch.setattr(PageUser, "is_password", slow)
    async with serving(behind_proxy(users)) as served, Browser(served) as ada, Browser(served) as thief:
        await tried(ada, PASSWORD)
        guesses = [
            asyncio.create_task(tried(thief, user=f"u{n}", address=f"203.0.113.{n}")) for n in range(WAITING_MAX + 5)
        ]
        try:
            await until(lambda: sum(guess.done() for guess in guesses) == 5)
            assert {guess.result() for guess in guesses if guess.done()} == {503}
            assert await tried(ada, PASSWORD, address="203.0.113.250") == 303
        finally:
            held.set()
        answers = sorted(await asyncio.gather(*guesses))
    assert answers == [403] * WAITING_MAX + [503] * 5


# The counts alone.


def test_an_ipv6_customer_is_one_address_and_keys_are_bounded() -> None:
    throttle = LoginThrottle(Clock())
    waits = [throttle.attempt(f"2001:db8:1:2::{number:x}", "ada") for number in range(FAILED_MAX + 1)]
    assert waits == [0.0] * FAILED_MAX + [WINDOW_S]
    assert throttle.attempt("2001:db8:1:3::1", "ada") == 0.0
    assert [throttle.attempt(one, "bob") for one in ("::ffff:1.2.3.4", "1.2.3.4") * 2] == [0.0] * 3 + [WINDOW_S]
    for number in range(KEYS_MAX // 3 + 10):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        throttle.attempt(address, f"u{number}")
        throttle.succeeded(address, f"u{number}")
    assert len(throttle._failed) == KEYS_MAX
    assert len(throttle._known) == KNOWN_MAX


def test_an_address_that_tries_many_names_waits() -> None:
    throttle = LoginThrottle(Clock())
    waits = [throttle.attempt("192.0.2.1", f"u{number}") for number in range(ADDRESS_FAILED_MAX + 1)]
    assert waits == [0.0] * ADDRESS_FAILED_MAX + [WINDOW_S]
    assert throttle.attempt("192.0.2.2", "u0") == 0.0


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["ada", "bob", "eve"]), st.floats(0, 20)), max_size=300))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_whatever_others_try_the_owner_of_an_account_is_not_kept_out(guesses: list[tuple[int, str, float]]) -> None:
    """Neither at an address where he has logged in before, and others have not, nor in a browser of his."""
    clock = Clock()
    throttle = LoginThrottle(clock)
    throttle.attempt("198.51.100.7", "ada")
    throttle.succeeded("198.51.100.7", "ada")
    made: dict[str, list[float]] = {}
    for number, account, pause_s in guesses:
        clock.now_s += pause_s
        if throttle.attempt(f"203.0.113.{number}", account) == 0:
            made.setdefault(account, []).append(clock.now_s)
        for browser in ("", "his"):
            assert throttle.attempt("198.51.100.7", "ada", browser) == 0.0
            throttle.succeeded("198.51.100.7", "ada", browser)
    for times in made.values():  # and the guesses are slowed all the same
        for first, later in zip(times, times[ACCOUNT_FAILED_MAX:], strict=False):
            assert later - first >= WINDOW_S


def test_nothing_is_counted_for_what_was_not_answered() -> None:
    throttle = LoginThrottle(Clock())
    for _ in range(100):
        assert throttle.attempt("192.0.2.1", "ada") == 0.0
        throttle.take_back("192.0.2.1", "ada")
