"""The Faust app of a worker: its broker, credentials and serializers, from our settings."""

from __future__ import annotations

from typing import Any

import faust
from yarl import URL

from streamproc.kafka.options import connection_options, ssl_context
from streamproc.settings import Settings
from streamproc.worker.limits import COMMIT_INTERVAL_S, FETCH_BYTES_MAX, HEARTBEATS_A_SESSION, REQUEST_TIMEOUT_S
from streamproc.worker.vendor import App, HostlessAssignor


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
