"""Slows down those who guess passwords, without letting them lock out the people whose passwords they guess.

Three counts of failed logins within a minute make an attempt wait:

- of an address at an account: one guesser;
- of an address at all accounts: one guesser who tries many names;
- of an account from all addresses: many guessers, or one who has many addresses.

The last one would let anyone lock an account out, so it does not count for an address that has logged in to the account
before, and none of them count for a browser that has (`PasswordLogin` knows it by a cookie): such a browser has a count
of its own. What remains: while an account is attacked from many addresses, its owner waits in a new browser at a new
address.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from streamproc.metrics.bounded_http import network_of
from streamproc.model.newest import Newest

FAILED_MAX: Final = 10  # of an address at an account, or of a known browser
ADDRESS_FAILED_MAX: Final = 50  # at all accounts: people who share an address mistype, too
ACCOUNT_FAILED_MAX: Final = 30  # from all addresses: three that guess as fast as they may
WINDOW_S: Final = 60.0
KEYS_MAX: Final = 30_000  # about 10 MB, three for each attempt; beyond that, what failed least recently is forgotten
KNOWN_MAX: Final = 10_000  # addresses that have logged in

_Key = tuple[str, ...]


class LoginThrottle:
    """Counts failed logins. Times are those of `now`, in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: Newest[_Key, list[float]] = Newest(KEYS_MAX)
        self._known: Newest[_Key, None] = Newest(KNOWN_MAX)

    def attempt(self, address: str, account: str, browser: str = "") -> float:
        """Count an attempt as failed until `succeeded` says otherwise, so that many at once do not slip through.

        `browser` names one that has logged in to the account before. Returns the seconds to wait; 0: the attempt may be
        made.
        """
        now_s = self._now()
        counts = [(self._count(key, now_s), most) for key, most in self._limits(address, account, browser)]
        wait_s = max(
            (WINDOW_S - (now_s - failed[-most]) for failed, most in counts if len(failed) >= most), default=0.0
        )
        if wait_s <= 0:
            for failed, _ in counts:
                failed.append(now_s)
        return wait_s

    def take_back(self, address: str, account: str, browser: str = "") -> None:
        """Take back the last attempt: it was not answered."""
        for key, _ in self._limits(address, account, browser):
            if failed := self._failed.get(key):
                failed.pop()

    def succeeded(self, address: str, account: str, browser: str = "") -> None:
        """Take back the last attempt: it was no failure. The address is known to the account from now on."""
        self.take_back(address, account, browser)
        self._known[network_of(address), account] = None

    def _limits(self, address: str, account: str, browser: str) -> list[tuple[_Key, int]]:
        if browser:
            return [(("browser", browser), FAILED_MAX)]
        place = network_of(address)
        limits: list[tuple[_Key, int]] = [(("both", place, account), FAILED_MAX)]
        if (place, account) not in self._known:
            limits += [(("address", place), ADDRESS_FAILED_MAX), (("account", account), ACCOUNT_FAILED_MAX)]
        return limits

    def _count(self, key: _Key, now_s: float) -> list[float]:
        failed = self._failed[key] = self._failed.get(key, [])
        while failed and now_s - failed[0] >= WINDOW_S:
            del failed[0]
        return failed
