"""The Faust app of a worker: its broker, credentials and serializers, from our settings."""

from __future__ import annotations

from typing import Any

import faust
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor
from yarl import URL

from streamproc.kafka.options import connection_options, ssl_context
from streamproc.settings import Settings
from streamproc.worker.limits import (
    COMMIT_INTERVAL_S,
    FETCH_BYTES_MAX,
    HEARTBEATS_A_SESSION,
    REQUEST_TIMEOUT_S,
)


class HostlessAssignor(PartitionAssignor):
    """Faust's assignor, without its rule that a worker must come back under the same host name.

    Faust puts the address of each worker's web server, which holds its host name, into the group's metadata. A worker
    with a `STREAMPROC_INSTANCE` that returns within the session timeout gets the assignment of its predecessor back
    from the broker, without a rebalance, and so with the predecessor's address. Faust asserts that the address is its
    own. In a new container it is not, and the assertion ends the coordination with the group. We have no web server:
    nothing uses these addresses. They are sent as Faust makes them, so workers with and without this class can share a
    group.
    """

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:  # type: ignore[override]
        metadata = ClientMetadata.loads(self._decompress(assignment.user_data))
        metadata.url = str(self._url)
        user_data = self._compress(metadata.dumps())
        super().on_assignment(
            ConsumerProtocolMemberAssignment(assignment.version, assignment.assignment, user_data)  # type: ignore[arg-type]
        )


class App(faust.App):
    """Faust's app, which keeps nothing on disk and creates no directories."""

    def _create_directories(self) -> None:
        """Do nothing."""


def new_app(settings: Settings, partitions: int) -> App:
    return App(
        settings.worker_group,
        broker=[URL(f"kafka://{server}") for server in connection_options(settings)["bootstrap_servers"]],
        broker_credentials=credentials_of(settings),
        broker_client_id=settings.worker_group,
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.session_timeout_s / HEARTBEATS_A_SESSION,
        broker_request_timeout=max(REQUEST_TIMEOUT_S, settings.session_timeout_s + 1),
        broker_commit_interval=COMMIT_INTERVAL_S,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=settings.instance or None,
        consumer_max_fetch_size=FETCH_BYTES_MAX,
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        stream_wait_empty=True,
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        topic_partitions=partitions,
        topic_replication_factor=settings.replication_factor,
        web_enabled=False,
        worker_redirect_stdouts=False,
        PartitionAssignor=HostlessAssignor,
    )


def credentials_of(settings: Settings) -> Any:
    """Return credentials with the same TLS and SASL for Faust's clients as for ours."""
    options = connection_options(settings)
    if "sasl_oauth_token_provider" in options:
        return faust.OAuthCredentials(oauth_cb=options["sasl_oauth_token_provider"], ssl_context=options["ssl_context"])
    if "SASL" in settings.security_protocol:
        return faust.SASLCredentials(
            username=settings.sasl_username,
            password=settings.sasl_password.get_secret_value(),
            ssl_context=ssl_context(settings),
            mechanism=settings.sasl_mechanism,
        )
    context = ssl_context(settings)
    return faust.SSLCredentials(context=context) if context is not None else None
