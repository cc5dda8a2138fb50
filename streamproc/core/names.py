"""Names as numbers: the 32-bit tags by which the state knows nodes, tools and metrics."""

from __future__ import annotations

from typing import Final

import xxhash

from streamproc.core.run import TAG

NAME_SEED: Final = 1  # a node that says a node's name says a text: the two must not have the same hash
NAMES_MAX: Final = 65_536  # names whose tags are kept ready; past it, all are computed again


class Names:
    """Tags of names, each computed once. `tags` may be read directly: a method call costs as much as a look-up."""

    __slots__ = ("tags",)

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}

    def tag(self, name: str) -> int:
        """The 32-bit tag of a name; never 0."""
        tag = self.tags.get(name)
        if tag is None:
            if len(self.tags) >= NAMES_MAX:
                self.tags.clear()
            digest = xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed=NAME_SEED)
            tag = self.tags[name] = digest & TAG or 1
        return tag
