"""The home of a run: the partition of the turns topic that its key hashes to.

Everything that is guaranteed about a run (one state, one order, one halt, one budget) is kept by the worker of one
partition. So a record in another partition than that of its key is no record of the run: workers refuse it, and replay,
read model and commands pass over it. This function is the only one that says where that is.

By default, publishers hash by murmur2 if they are Java's clients, aiokafka or this package, by CRC32 if they are built
on librdkafka, and by FNV-1a with Sarama. `STREAMPROC_PARTITIONER` names the hash of a deployment; `any` ends it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.errors import Problem
from streamproc.fingerprint.mask import scan

if TYPE_CHECKING:
    from streamproc.settings import Settings

ANY: Final = "any"
POSITIVE: Final = 0x7FFFFFFF


@lru_cache(maxsize=1)
def _murmur2() -> Callable[[bytes], int]:
    """Return the compiled murmur2 (0.1 µs for a UUID); else that of aiokafka, which is imported only to hash a key."""
    if scan is None:
        from aiokafka.partitioner import murmur2
    else:
        murmur2 = scan.murmur2
    return murmur2


def _by_murmur2(key: bytes, count: int) -> int:
    return (_murmur2()(key) & POSITIVE) % count


def _by_crc32(key: bytes, count: int) -> int:
    return zlib.crc32(key) % count


def _by_fnv1a(key: bytes, count: int) -> int:
    """As Sarama does: the hash is a signed number, and so is the remainder of its division; its sign goes."""
    found = 0x811C9DC5
    for byte in key:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return abs(found - (1 << 32) if found > POSITIVE else found) % count


HASHES: Final[dict[str, Callable[[bytes, int], int]]] = {"murmur2": _by_murmur2, "crc32": _by_crc32, "fnv1a": _by_fnv1a}
"""What each partitioner does with a key and the number of partitions."""


class Home:
    """Says which partition of the turns topic is the home of a run, by its key."""

    def __init__(self, partitioner: str, count: int) -> None:
        """`count` is the number of partitions; 0: not known, then every partition is a home, as with ``any``."""
        self.partitioner, self.count = partitioner, count
        self.checked = partitioner != ANY and count > 0
        """Whether records outside of their home are refused."""
        self._hash = HASHES.get(partitioner, _by_murmur2)

    def __repr__(self) -> str:
        return f"Home({self.partitioner!r}, {self.count})"

    def of(self, key: bytes) -> int:
        """Return the home of a key: where this package sends what is about the run. With ``any`` it is by murmur2."""
        return self._hash(key, self.count)

    def holds(self, key: bytes | None, partition: int) -> bool:
        """Return whether a record with this key belongs into this partition. One without a key belongs nowhere and is
        refused for that; every partition may say so."""
        return not self.checked or key is None or self._hash(key, self.count) == partition

    def problem(self, key: bytes, partition: int) -> Problem:
        """Return why a record outside of its home is refused, and what to do."""
        return Problem(
            "partition",
            f"{partition}, but the home of this run is {self.of(key)} of {self.count} by {self.partitioner}",
            "publish with the partitioner that STREAMPROC_PARTITIONER names (librdkafka: partitioner=murmur2_random), "
            "or set it to the one that all publishers use",
        )


EVERYWHERE: Final = Home(ANY, 0)
"""The rule of topics that have none."""


def home_of(settings: Settings, count: int) -> Home:
    """Return the rule of a deployment whose turns topic has `count` partitions."""
    return Home(settings.partitioner, count)


class StrayRecords(NamedTuple):
    """Records of the turns topic outside of their homes, and the rule that would fit."""

    strays: int
    records: int
    fitting: tuple[str, ...]
    """Partitioners by which all records are at home."""
    strays_fit: tuple[str, ...]
    """Those by which at least the strays are."""
    earlier_count: int
    """A smaller number of partitions by which the strays are at home; 0: none."""

    def cause(self, home: Home) -> str:
        """Return in a sentence why records stray, and what to do."""
        hashed = " or ".join(self.fitting or self.strays_fit)
        if self.fitting:
            return (
                f"publishers choose partitions by {hashed}, this process expects {home.partitioner}: set "
                f"STREAMPROC_PARTITIONER={self.fitting[0]} everywhere, or set the publishers to {home.partitioner}"
            )
        if self.earlier_count:
            return (
                f"they are at home with {self.earlier_count} partitions, and the topic has {home.count}. The number "
                "must not change: create topics under a new prefix; to replay what was published before, set "
                f"STREAMPROC_EARLIER_PARTITIONS={self.earlier_count}"
            )
        if self.strays_fit:
            return (
                f"some publishers choose partitions by {hashed}, others by {home.partitioner}: a run then lives in two "
                f"partitions. Set all publishers to {home.partitioner} (librdkafka: partitioner=murmur2_random)"
            )
        return (
            "no partitioner that this version knows puts them there: a publisher names partitions itself, or a run "
            "tries to leave its own. See the dead-letter topic for their keys"
        )


def find_strays(home: Home, records: Iterable[tuple[bytes, int]]) -> StrayRecords:
    """Compare records, by key and partition, with the rule, and find the rule that they follow."""
    seen = Counter(records)
    strays = {one for one in seen if not home.holds(*one)}
    by_name = {name: Home(name, home.count) for name in HASHES}
    strays_fit = tuple(name for name, one in by_name.items() if strays and _all_at_home(one, strays))
    fitting = tuple(name for name in strays_fit if _all_at_home(by_name[name], seen))
    first = max((partition for _, partition in strays), default=home.count) + 1
    counts = range(first, home.count) if strays else ()
    earlier = next((count for count in counts if _all_at_home(Home(home.partitioner, count), strays)), 0)
    return StrayRecords(sum(seen[one] for one in strays), seen.total(), fitting, strays_fit, earlier)


def _all_at_home(home: Home, records: Iterable[tuple[bytes, int]]) -> bool:
    return all(home.of(key) == partition for key, partition in records)
