"""Sessions: what the server knows about a browser that has logged in. They are in memory: a restart ends them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ID_BYTES: Final = 32  # 256 bits: cannot be guessed
AGE_S: Final = 8 * 3_600.0
IDLE_S: Final = 30 * 60.0
OF_NAME_MAX: Final = 100  # so that one person cannot end the sessions of the others
SESSIONS_MAX: Final = 10_000  # about 5 MB; beyond that, the one that was idle longest ends


@dataclass(slots=True, kw_only=True)
class Session:
    """A login. `name` says who and how, such as ``password:ada``; `rights` are among view, halt and fleet."""

    id: str
    name: str
    rights: frozenset[str]
    csrf: str
    """The token that every form of this session carries."""
    basis: str = ""
    """What the login was based on, for its method: when that changes, the session ends."""
    began_s: float = 0.0
    used_s: float = 0.0

    @property
    def issuer(self) -> str:
        """Who commands, such as ``ada (password)``: of ``password:ada`` and ``oidc:alice@example.com``, redaction takes
        the name for a secret."""
        how, _, who = self.name.partition(":")
        return f"{who} ({how})" if who else how


class Sessions:
    """The sessions of one page. Times are those of `now`, in seconds."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, *, age_s: float = AGE_S, idle_s: float = IDLE_S
    ) -> None:
        self.age_s = age_s
        self._now = now
        self._idle_s = idle_s
        self._sessions: dict[str, Session] = {}  # the one that was idle longest is first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, name: str, rights: frozenset[str], basis: str = "") -> Session:
        """Begin a session with a fresh id and a fresh CSRF token."""
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if self.alive(oldest) and len(self._sessions) < SESSIONS_MAX:
                break
            self.end(oldest)
        own = [session for session in self._sessions.values() if session.name == name]
        if len(own) >= OF_NAME_MAX:
            self.end(own[0])
        now_s = self._now()
        session = Session(
            id=secrets.token_urlsafe(ID_BYTES),
            name=name,
            rights=rights,
            csrf=secrets.token_urlsafe(ID_BYTES),
            basis=basis,
            began_s=now_s,
            used_s=now_s,
        )
        self._sessions[session.id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        """Return the session with this id; None if there is none, or it is over."""
        session = self._sessions.get(session_id)
        if session is not None and not self.alive(session):
            self.end(session)
            return None
        return session

    def use(self, session: Session) -> None:
        """Note that a person has just used the session."""
        session.used_s = self._now()
        if self._sessions.pop(session.id, None) is not None:  # one that has ended stays so
            self._sessions[session.id] = session

    def alive(self, session: Session) -> bool:
        """Return whether the session is neither ended nor too old, nor was idle for too long."""
        now_s = self._now()
        known = self._sessions.get(session.id) is session
        return known and now_s - session.began_s < self.age_s and now_s - session.used_s < self._idle_s

    def end(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)
