"""Login by a name and a password of the password file, which is read again when it changes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from streamproc.errors import InvalidSettings
from streamproc.kafka.log_limit import LogLimit
from streamproc.model.escaping import escape
from streamproc.report.markup import Html, tag
from streamproc.web.access.client_address import TrustedProxies, client_address
from streamproc.web.access.headers import cookie_values
from streamproc.web.access.login import Fields, Identity, LoginMethod, LoginRefused, hidden, known_browser_cookie
from streamproc.web.access.password_file import NAME_MAX, PASSWORD_MAX, PageUser, new_user, read_users
from streamproc.web.access.rights import VIEW, rights_up_to
from streamproc.web.access.session import Session
from streamproc.web.access.throttle import LoginThrottle

log = logging.getLogger(__name__)

AT_ONCE: Final = 2  # hashes that are computed: each takes 32 MiB
AT_ONCE_OF_KNOWN: Final = 1  # besides those
WAITING_MAX: Final = 40  # logins from browsers that are not known: about two seconds
BROWSER_BYTES: Final = 16
WRONG: Final = "The name or the password is wrong."


class PasswordLogin(LoginMethod):
    """Logs in the users of a file. A user who is removed, or whose password changes, is logged out at once.

    Guesses are slowed down. A browser that has logged in before is known by a cookie, so guesses from elsewhere do not
    keep its person out.
    """

    name = "password"

    def __init__(self, path: str, proxies: TrustedProxies = (), *, now: Callable[[], float] = time.monotonic) -> None:
        """Raises `InvalidSettings` if the file has mistakes."""
        self._path = Path(path)
        self._version: object = None
        self._users: dict[str, PageUser] = {}
        self._proxies = proxies
        self._throttle = LoginThrottle(now)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._slots_of_known = asyncio.Semaphore(AT_ONCE_OF_KNOWN)
        self._waiting = 0
        self._slowed = LogLimit(log, now)
        self._unknown = new_user("unknown", VIEW, "x" * PASSWORD_MAX)
        self._users = read_users(self._path)

    def form(self, _request: web.Request, back_to: str) -> Html:
        """Return the form for a name and a password."""
        name = tag("input", name="user", autocomplete="username", required=True, maxlength=100)
        password = tag(
            "input",
            name="password",
            type="password",
            autocomplete="current-password",
            required=True,
            maxlength=PASSWORD_MAX,
        )
        return tag(
            "form",
            hidden("next", back_to),
            tag("p", tag("label", "Name ", name)),
            tag("p", tag("label", "Password ", password)),
            tag("button", "Log in"),
            method="post",
            action="/login/password",
        )

    async def identify(self, request: web.Request, fields: Fields) -> Identity:
        """Check name and password. An unknown name takes as long as a wrong password, and is told the same."""
        account, password = fields.get("user", "").strip(), fields.get("password", "")
        user = self._current().get(account)
        browser = self._known_browser(request, user)
        attempt = (client_address(request, self._proxies), account[:NAME_MAX], browser)
        if wait_s := self._throttle.attempt(*attempt):
            if user is not None:  # not what was typed: that may be a password
                self._slowed(logging.WARNING, user.name, "logins of %s wait: too many have failed", escape(user.name))
            headers = {"Retry-After": str(math.ceil(wait_s))}
            raise web.HTTPTooManyRequests(text="Too many failed logins: wait a minute.\n", headers=headers)
        if len(password) > PASSWORD_MAX:
            raise LoginRefused(WRONG)
        if not await self._is_password(user or self._unknown, password, attempt) or user is None:
            raise LoginRefused(WRONG)
        self._throttle.succeeded(*attempt)
        rights = rights_up_to(user.right)
        return Identity(f"{self.name}:{user.name}", rights, _basis(user), known_browser=_new_browser(user))

    async def _is_password(self, user: PageUser, password: str, attempt: tuple[str, str, str]) -> bool:
        """Compute a hash, not too many at once: those of known browsers do not wait for the others."""
        known = attempt[2] != ""
        if not known and self._waiting >= WAITING_MAX:
            self._throttle.take_back(*attempt)
            raise web.HTTPServiceUnavailable(text="Too many people log in at once: try again.\n")
        self._waiting += not known
        try:
            async with self._slots_of_known if known else self._slots:
                return await asyncio.to_thread(user.is_password, password)
        finally:
            self._waiting -= not known

    def _known_browser(self, request: web.Request, user: PageUser | None) -> str:
        """Return what names the browser among those that have logged in to this account; empty if it has not."""
        for value in cookie_values(request, known_browser_cookie(self.site.address)) if user else ():
            name, _, seal = value.partition(".")
            if user and hmac.compare_digest(seal.encode("utf-8", "surrogateescape"), _seal(user, name).encode()):
                return name
        return ""

    def current(self, session: Session, _request: web.Request | None) -> frozenset[str] | None:
        """Return the rights that the file gives now; None if the user is gone or has another password."""
        user = self._current().get(session.name.partition(":")[2])
        return rights_up_to(user.right) if user is not None and _basis(user) == session.basis else None

    def _current(self) -> dict[str, PageUser]:
        """Return the users of the file as it is now. With a file that cannot be used, no user can log in."""
        try:
            found = self._path.stat()
            version: object = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        except OSError:
            version = "missing"
        if version != self._version:
            self._version = version
            try:
                self._users = read_users(self._path)
            except InvalidSettings as error:
                self._users = {}
                log.error("no user can log in: %s", error)  # a mistake in a file, not in the program
        return self._users


def _basis(user: PageUser) -> str:
    return hashlib.sha256(user.salt + user.hash).hexdigest()


def _seal(user: PageUser, browser: str) -> str:
    """Return what shows that this browser has logged in with the password that the user has now."""
    return hmac.digest(_basis(user).encode(), f"browser\0{browser}".encode("utf-8", "surrogateescape"), "sha256").hex()


def _new_browser(user: PageUser) -> str:
    name = secrets.token_urlsafe(BROWSER_BYTES)
    return f"{name}.{_seal(user, name)}"
