"""A token bucket without a clock: the caller passes the time."""

from __future__ import annotations


class TokenBucket:
    """Holds up to `burst` tokens and gets `per_s` more each second. It starts full."""

    def __init__(self, burst: int, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._tokens = float(burst)
        self._at_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """Return how long until a token is available; 0 if one is."""
        self._fill(now_s)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._per_s

    def take(self, now_s: float) -> None:
        """Take one token."""
        self._fill(now_s)
        self._tokens = max(0.0, self._tokens - 1)

    def _fill(self, now_s: float) -> None:
        if self._at_s is not None:
            self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
