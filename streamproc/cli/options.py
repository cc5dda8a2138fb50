"""Options that several commands share. Each wins over its ``STREAMPROC_*`` variable."""

from __future__ import annotations

from typing import Annotated

import typer

Brokers = Annotated[
    str | None,
    typer.Option(
        help="Kafka bootstrap servers. By default STREAMPROC_BROKERS, else localhost:9092.", show_default=False
    ),
]
TopicPrefix = Annotated[
    str | None,
    typer.Option(
        help="Before every topic's name. By default STREAMPROC_TOPIC_PREFIX, else streamproc.", show_default=False
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        help="A policy file, or the name of a preset. By default STREAMPROC_POLICY, else standard.", show_default=False
    ),
]
