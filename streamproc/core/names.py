"""Names as numbers: the 32-bit tags that stand for nodes, tools, tasks and metrics in a state."""

from __future__ import annotations

from typing import Any, Final

import xxhash
from xxhash import xxh3_64_intdigest

from streamproc.core.records import TAG, ccall, cclass, final, u32, u64

NAME_SEED: Final = 1  # keeps tags of names apart from hashes of texts that consist of a name
COMMANDS: Final = 0x5BD1E995A3C59AC3  # keeps ids of commands and of workers' events apart from those of publishers
CACHED_NAMES_MAX: Final = 16_384  # names with cached tags, at most 1 KB each; past it, the cache is cleared


@ccall
def digest_of_id(event_id: str, published: bool) -> u64:
    """Return the hash by which a run knows an event. One that a publisher has not sent has a hash of its own: else a
    publisher could send its id first, and the event would be skipped as a duplicate."""
    digest: u64
    try:
        digest = xxh3_64_intdigest(event_id.encode())  # an `errors` argument would cost 150 ns
    except UnicodeEncodeError:
        digest = xxh3_64_intdigest(event_id.encode("utf-8", "surrogatepass"))
    return digest if published else digest ^ COMMANDS


@final
@cclass
class Names:
    """The 32-bit tag of each name, never 0, computed on first use."""

    known: dict[str, int]

    def __init__(self) -> None:
        self.known = {}

    @ccall
    def tag(self, name: Any) -> u32:
        """Return the tag of a name (a string, or of a type derived from it)."""
        known: dict[str, int] = self.known
        found: Any = known.get(name)
        if found is None:
            found = self._computed(name)
        return found  # type: ignore[no-any-return]

    def _computed(self, name: str) -> int:
        if len(self.known) >= CACHED_NAMES_MAX:
            self.known.clear()
        digest = xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed=NAME_SEED)
        tag = self.known[name] = digest & TAG or 1
        return tag
