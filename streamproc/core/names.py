"""Names as numbers: the 32-bit tags that stand for nodes, tools, tasks and metrics in a state."""

from __future__ import annotations

from typing import Final

import xxhash

from streamproc.core.records import TAG

NAME_SEED: Final = 1  # keeps tags of names apart from hashes of texts that consist of a name
NAMES_MAX: Final = 16_384  # names with cached tags, at most 1 KB each; past it, the cache is cleared


class Names(dict[str, int]):
    """The 32-bit tag of each name, never 0, computed on first use."""

    def __missing__(self, name: str) -> int:
        if len(self) >= NAMES_MAX:
            self.clear()
        digest = xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed=NAME_SEED)
        tag = self[name] = digest & TAG or 1
        return tag
