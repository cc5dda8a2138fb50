"""The pages of `streamproc explain` for the codes of commands, which a worker reports and no detector."""

from __future__ import annotations

from typing import Final

FLEET001: Final = """FLEET001 fleet_order: a person stopped, paused or cleared the fleet, or killed runs.

Sees: a valid command on the commands topic: signed by an allowed issuer, or sent over a trusted channel.

Why: people must be able to see who issued it, when and why. Guards act on the command itself; this event notifies
people and records it, and tells the command that waits for it that a worker has accepted it. For the kill of one run
it is information: the halt of the run (OPERATOR001) follows.

False alarms: none: it is a command. Its id is that of the command, so duplicates are recognised.

Tuning: STREAMPROC_COMMAND_AUTH and STREAMPROC_COMMAND_KEY decide which commands are accepted (docs/fleet.md).

Reference: fleet commands: STOP, PAUSE, CLEAR with issuer, time and reason; kill all runs of a user or tenant.
"""
FLEET002: Final = """FLEET002 fleet_refused: an invalid command was refused.

Sees: a record of the commands topic that cannot be read, lacks a required signature, is signed by an unknown issuer or
with another key, is more than five minutes off the broker's clock, or is older than a known command of its scope. Also
a status file whose first line is not a status.

Why: either an unauthorised person tried to issue a command, or an authorised one cannot: both need attention. The
record goes to the dead-letter topic with the reason, and the command that it would displace at compaction is issued
again.

False alarms: a key that was changed in one place only; a wrong clock.

Tuning: give workers, listeners and issuers the same STREAMPROC_COMMAND_KEY; synchronise the clocks.

Reference: fleet commands: only allowed issuers are accepted; a refused command is recorded.
"""

PAGES: Final = {"FLEET001": FLEET001, "FLEET002": FLEET002}
"""By code; the first line is `CODE name: summary`."""
