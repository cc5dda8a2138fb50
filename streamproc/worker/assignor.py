"""Faust's assignor, without its rule that a worker must come back under the same host name.

Faust puts the address of each worker's web server, which holds its host name, into the group's metadata. A worker with
a `STREAMPROC_INSTANCE` that returns within the session timeout gets the assignment of its predecessor back from the
broker, without a rebalance, and so with the predecessor's address. Faust asserts that the address is its own. In a new
container it is not, and the assertion ends the coordination with the group. We have no web server: nothing uses these
addresses. They are sent as Faust makes them, so workers with and without this class can share a group.
"""

from __future__ import annotations

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor


class HostlessAssignor(PartitionAssignor):
    """Accepts an assignment that was made for another host."""

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:  # type: ignore[override]
        metadata = ClientMetadata.loads(self._decompress(assignment.user_data))
        metadata.url = str(self._url)
        user_data = self._compress(metadata.dumps())
        super().on_assignment(
            ConsumerProtocolMemberAssignment(assignment.version, assignment.assignment, user_data)  # type: ignore[arg-type]
        )
