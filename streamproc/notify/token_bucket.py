"""A token bucket. It has no clock: whoever asks says what time it is."""

from __future__ import annotations


class Bucket:
    """Holds up to `burst` tokens and gets `per_s` more each second. It starts full."""

    def __init__(self, burst: int, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._tokens = float(burst)
        self._at_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """How long until there is a token; 0: there is one."""
        self._fill(now_s)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._per_s

    def take(self, now_s: float) -> None:
        """Take one."""
        self._fill(now_s)
        self._tokens = max(0.0, self._tokens - 1)

    def _fill(self, now_s: float) -> None:
        if self._at_s is not None:
            self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
