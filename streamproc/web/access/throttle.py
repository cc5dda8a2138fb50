"""Slows down those who guess: after ten failed logins within a minute, an address has to wait."""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED_MAX: Final = 10
WINDOW_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000  # about 10 MB; beyond that, the one that failed least recently is forgotten
IPV6_PREFIX: Final = 64  # what one customer of a provider has


class LoginThrottle:
    """Counts failed logins by address. Times are those of `now`, in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: dict[str, deque[float]] = {}

    def attempt(self, address: str) -> float:
        """Count an attempt as failed until `succeeded` says otherwise, so that many at once do not slip through.

        Returns the seconds to wait; 0: the attempt may be made.
        """
        key, now_s = _network(address), self._now()
        failed = self._failed.pop(key, None) or deque()
        while failed and now_s - failed[0] >= WINDOW_S:
            failed.popleft()
        self._failed[key] = failed
        if len(self._failed) > ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        if len(failed) >= FAILED_MAX:
            return WINDOW_S - (now_s - failed[0])
        failed.append(now_s)
        return 0.0

    def succeeded(self, address: str) -> None:
        """Take back the last attempt of an address: it was no failure."""
        if failed := self._failed.get(_network(address)):
            failed.pop()


def _network(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is None:
        return str(ipaddress.ip_network((ip.packed, IPV6_PREFIX), strict=False))
    return str(getattr(ip, "ipv4_mapped", None) or ip)
