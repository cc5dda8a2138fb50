"""Login by a name and a password of the password file, which is read again when it changes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from streamproc.errors import InvalidSettings
from streamproc.report.markup import Html, tag
from streamproc.web.access.login import Fields, Identity, LoginRefused, LoginSite, hidden
from streamproc.web.access.password_file import PASSWORD_MAX, PageUser, new_user, read_users
from streamproc.web.access.rights import VIEW, rights_up_to

if TYPE_CHECKING:
    from streamproc.web.access.session import Session

log = logging.getLogger(__name__)

AT_ONCE: Final = 2  # hashes that are computed: each takes 32 MiB
WRONG: Final = "The name or the password is wrong."


class PasswordLogin:
    """Logs in the users of a file. A user who is removed, or whose password changes, is logged out at once."""

    name = "password"

    def __init__(self, path: str) -> None:
        """Raises `InvalidSettings` if the file has mistakes."""
        self._path = Path(path)
        self._version: object = None
        self._users: dict[str, PageUser] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
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

    async def identify(self, _request: web.Request, fields: Fields) -> Identity:
        """Check name and password. An unknown name takes as long as a wrong password, and is told the same."""
        password = fields.get("password", "")
        user = self._current().get(fields.get("user", "").strip())
        if len(password) > PASSWORD_MAX:
            raise LoginRefused(WRONG)
        async with self._slots:
            right = await asyncio.to_thread((user or self._unknown).is_password, password)
        if user is None or not right:
            raise LoginRefused(WRONG)
        return Identity(f"{self.name}:{user.name}", rights_up_to(user.right), _basis(user))

    def current(self, session: Session, _request: web.Request | None) -> frozenset[str] | None:
        """Return the rights that the file gives now; None if the user is gone or has another password."""
        user = self._current().get(session.name.partition(":")[2])
        return rights_up_to(user.right) if user is not None and _basis(user) == session.basis else None

    def routes(self, _site: LoginSite) -> Sequence[web.RouteDef]:
        """Return no further routes."""
        return ()

    def address_hint(self) -> str:
        """Return nothing: people know their passwords."""
        return ""

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
