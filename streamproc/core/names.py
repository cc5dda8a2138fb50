"""Names as numbers: the 32-bit tags by which the state knows nodes, tools and metrics."""

from __future__ import annotations

from typing import Final

import xxhash

from streamproc.core.run_state import TAG

NAME_SEED: Final = 1  # a node that says a node's name says a text: the two must not have the same hash
NAMES_MAX: Final = 65_536  # names whose tags are kept ready; past it, all are computed again


class Names(dict[str, int]):
    """The 32-bit tag of each name, never 0, computed when it is first asked for."""

    def __missing__(self, name: str) -> int:
        if len(self) >= NAMES_MAX:
            self.clear()
        digest = xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed=NAME_SEED)
        tag = self[name] = digest & TAG or 1
        return tag
