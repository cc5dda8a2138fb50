"""A file of users for small teams: a line for each, with a salted hash of the password (scrypt).

    ada:fleet:scrypt:15:8:1:SALT:HASH

These are the name, the right (``view``, ``halt`` or ``fleet``), and how the hash was made. `streamproc page-user`
writes it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from streamproc.errors import InvalidSettings, shown
from streamproc.web.access.rights import ORDERED

LOG2_COST: Final = 15  # 32 MiB and about 80 ms
BLOCK: Final = 8
PARALLEL: Final = 1
COSTS: Final = {"log2 cost": (14, 20), "block": (8, 16), "parallel": (1, 4)}
MEMORY_MAX: Final = 1 << 31  # what the largest of these costs needs
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
PASSWORD_MIN: Final = 12
PASSWORD_MAX: Final = 1_024  # characters
NAME_MAX: Final = 100
FILE_BYTES_MAX: Final = 1 << 20
OTHERS_WRITE: Final = 0o022


@dataclass(frozen=True, slots=True)
class PageUser:
    """A line of the file."""

    name: str
    right: str
    log2_cost: int
    block: int
    parallel: int
    salt: bytes
    hash: bytes

    def is_password(self, password: str) -> bool:
        """Return whether this is the password. Takes about 80 ms and 32 MiB, on purpose."""
        return hmac.compare_digest(self.hash_of(password), self.hash)

    def line(self) -> str:
        """Return the user as the file has it."""
        encoded = (base64.urlsafe_b64encode(part).decode() for part in (self.salt, self.hash))
        return ":".join(
            (self.name, self.right, "scrypt", *map(str, (self.log2_cost, self.block, self.parallel)), *encoded)
        )

    def hash_of(self, password: str) -> bytes:
        """Return the hash of a password with the salt and the costs of this user."""
        return hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"),
            salt=self.salt,
            n=1 << self.log2_cost,
            r=self.block,
            p=self.parallel,
            maxmem=MEMORY_MAX - 1,
            dklen=HASH_BYTES,
        )


def new_user(name: str, right: str, password: str) -> PageUser:
    """Return a user with a fresh salt. Raises `InvalidSettings`."""
    usable = 0 < len(name) <= NAME_MAX and name.isprintable() and ":" not in name and name == name.strip()
    if not usable or name[0] == "#":
        what = f"expected 1 to {NAME_MAX} printable characters, without a colon, and no # first"
        raise InvalidSettings(f"name {shown(name)}: {what}")
    if right not in ORDERED:
        raise InvalidSettings(f"--right {shown(right)}: choose among {', '.join(ORDERED)}")
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise InvalidSettings(f"password: expected {PASSWORD_MIN} to {PASSWORD_MAX} characters")
    salt = secrets.token_bytes(SALT_BYTES)
    user = PageUser(name, right, LOG2_COST, BLOCK, PARALLEL, salt, b"")
    return replace(user, hash=user.hash_of(password))


def read_users(path: Path) -> dict[str, PageUser]:
    """Read the file. Raises `InvalidSettings` with the line of a mistake, and shows no hash."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_BYTES_MAX + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InvalidSettings(f"{path}: cannot be read ({what}): make it with `streamproc page-user NAME`") from None
    if mode & OTHERS_WRITE:
        raise InvalidSettings(f"{path}: others may write it, and so give themselves rights: chmod go-w {path}")
    if len(content) > FILE_BYTES_MAX:
        raise InvalidSettings(f"{path}: more than {FILE_BYTES_MAX} bytes: use an identity provider for so many users")
    users: dict[str, PageUser] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user = _read_line(f"{path}:{number}", line.strip())
        if user.name in users:
            raise InvalidSettings(f"{path}:{number}: the user {shown(user.name)} has a line already: remove one")
        users[user.name] = user
    return users


def _read_line(place: str, line: str) -> PageUser:
    parts = line.split(":")
    if len(parts) != 8 or parts[2] != "scrypt":
        raise InvalidSettings(f"{place}: expected NAME:RIGHT:scrypt:… as `streamproc page-user NAME` writes it")
    name, right, _scrypt, *costs, salt, hashed = parts
    if not name or right not in ORDERED:
        raise InvalidSettings(f"{place}: right {shown(right)}: choose among {', '.join(ORDERED)}")
    for (what, (low, high)), cost in zip(COSTS.items(), costs, strict=True):
        if not cost.isascii() or not cost.isdigit() or len(cost) > 3 or not low <= int(cost) <= high:
            raise InvalidSettings(f"{place}: {what} of scrypt: expected {low} to {high}")
    try:
        made = [base64.b64decode(part, altchars=b"-_", validate=True) for part in (salt, hashed)]
    except ValueError:
        made = [b"", b""]
    if len(made[0]) < SALT_BYTES or len(made[1]) != HASH_BYTES:
        raise InvalidSettings(f"{place}: the salt or the hash is damaged: set the password again")
    log2_cost, block, parallel = map(int, costs)
    return PageUser(name, right, log2_cost, block, parallel, *made)


def write_users(path: Path, users: Mapping[str, PageUser]) -> None:
    """Write the file whole or not at all, readable by its owner only. Raises `InvalidSettings`."""
    text = "".join(f"{user.line()}\n" for user in users.values())
    try:
        with tempfile.NamedTemporaryFile(  # its mode is 0600
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as draft:
            draft.write(text)
            draft.flush()
            os.fsync(draft.fileno())
        Path(draft.name).replace(path)
    except OSError as error:
        raise InvalidSettings(f"{path}: cannot be written ({error.strerror}): choose another --file") from None
