"""The Faust agents of a worker, as `app.agents` lists them.

`watch_turns` steps turns through the engine, `book_spend` books what runs spent to the accounts of sessions, users and
tenants, and `follow_commands` applies the commands of operators. The windows of hashes in which loops are found are
part of each run's state, in the table `runs`; the accounts are in the table `accounts`.

The agents read in-memory channels. The consumer fills them with slices of up to 1 000 records of one partition
(`worker.consumer`): a hop through a channel costs about 12 µs, which a single record could not afford.

Faust restarts an agent that raises, and the agent continues with the next slice. A slice must not be skipped, so a
failure of `watch_turns` or `book_spend` ends this run of the worker (`PartitionPipelines.accept`).
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any, NamedTuple

from streamproc.worker.fleet_commands import FleetCommands
from streamproc.worker.partition_pipeline import PartitionPipelines
from streamproc.worker.slices import Slice
from streamproc.worker.vendor import UnsuspendedChannel


class SliceChannels(NamedTuple):
    """The channels that the consumer fills."""

    turns: Any
    spend: Any


def add_slice_agents(app: Any, turns: PartitionPipelines, accounts: PartitionPipelines) -> SliceChannels:
    """Add the agents of the batch path to an app; the channels that they read."""
    turn_slices = app.channel()
    spend_slices = app.channel()

    @app.agent(turn_slices, name="watch_turns")
    async def watch_turns(stream: AsyncIterable[Slice]) -> None:
        """Step turns through the engine: decisions to the control topic, states to the table `runs`."""
        async for turn_slice in stream:
            turn_slice.apply_to(turns)

    @app.agent(spend_slices, name="book_spend")
    async def book_spend(stream: AsyncIterable[Slice]) -> None:
        """Book statements of spend to the table `accounts`."""
        async for spend_slice in stream:
            spend_slice.apply_to(accounts)

    return SliceChannels(turn_slices, spend_slices)


def add_command_agent(app: Any, commands: FleetCommands) -> UnsuspendedChannel:
    """Add the agent that follows the commands topic, on both paths; the channel that it reads."""
    command_batches = UnsuspendedChannel(app)

    @app.agent(command_batches, name="follow_commands")
    async def follow_commands(stream: AsyncIterable[Slice]) -> None:
        """Apply fleet commands. A batch that fails is read again from its first record."""
        async for batch in stream:
            batch.apply_to(commands)

    return command_batches
