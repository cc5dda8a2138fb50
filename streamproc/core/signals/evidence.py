"""Evidence: the last few hashes and numbers of failing tests, shown with a halt. No detector counts them."""

from __future__ import annotations

from typing import Final

from streamproc.core.records import Record, Values, cclass, final

RECENT_MAX: Final = 5


@final
@cclass
class RecentHashes(Record):
    """The last few of each kind, oldest first."""

    outputs: Values  # hashes of texts
    artifacts: Values  # hashes of artifacts and pages
    failing_sets: Values  # hashes of sets of failing tests
    failing_counts: Values  # numbers of failing tests

    def __init__(self) -> None:
        self.outputs, self.artifacts = Values(RECENT_MAX), Values(RECENT_MAX)
        self.failing_sets, self.failing_counts = Values(RECENT_MAX), Values(RECENT_MAX)
        super().__init__(self.outputs, self.artifacts, self.failing_sets, self.failing_counts)
