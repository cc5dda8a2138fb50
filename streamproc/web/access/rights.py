"""Rights, and which groups of people have them. Each right includes those before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from streamproc.errors import InvalidSettings, shown

VIEW: Final = "view"  # see everything
HALT: Final = "halt"  # halt or resume one run
FLEET: Final = "fleet"  # stop, pause or clear the fleet; kill a user or tenant
ORDERED: Final = (VIEW, HALT, FLEET)
EVERYONE: Final = "*"  # as a group: all who can log in
NO_RIGHTS: Final[frozenset[str]] = frozenset()


def rights_up_to(right: str) -> frozenset[str]:
    """Return a right with those that it includes. Raises `ValueError` for an unknown one."""
    return frozenset(ORDERED[: ORDERED.index(right) + 1])


def read_groups(pairs: Iterable[str]) -> dict[str, frozenset[str]]:
    """Read ``GROUP=RIGHT`` pairs. Raises `InvalidSettings`."""
    found: dict[str, frozenset[str]] = {}
    for pair in pairs:
        group, equals, right = pair.rpartition("=")
        if not equals or not group or right not in ORDERED:
            raise InvalidSettings(f"--group {shown(pair)}: expected GROUP=RIGHT, with a right of {', '.join(ORDERED)}")
        found[group] = found.get(group, NO_RIGHTS) | rights_up_to(right)
    return found


def rights_of(groups: Iterable[str], granted: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the rights of a member of these groups; the group ``*`` has everyone as a member."""
    return NO_RIGHTS.union(*(granted.get(group, NO_RIGHTS) for group in (*groups, EVERYONE)))
