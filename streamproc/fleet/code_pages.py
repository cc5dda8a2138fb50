"""The pages of `streamproc explain` for the codes of commands, which no detector reports."""

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

FLEET003: Final = """FLEET003 fleet_strays: records outside of the home partition of their run were refused.

Sees: records of the turns topic in another partition than that of their key, of at least three runs. Each worker
reports it once an hour at most.

Why: a run lives in one partition, or a halted run could go on in another one. Usually the cause is harmless: clients
built on librdkafka choose partitions by CRC32, and the message names the setting that would fit. Otherwise a run may
try to leave the partition in which it is halted.

False alarms: none: the records are in the dead-letter topic, with their keys.

Tuning: STREAMPROC_PARTITIONER names the partitioner of all publishers.

Reference: Kafka's clients choose the partition of a record by a hash of its key, and differ in the hash.
"""
FLEET004: Final = """FLEET004 fleet_unwatched: no worker decides, on some partitions or on all, or workers decide again.

Sees: the heartbeats of the workers. A worker is gone if none came for eight seconds while the broker answered the
reader, or if it has said that it stops. A broker that has not answered the notifier for half a minute counts too:
whether workers decide is not known then. This is no event of the control topic: a notifier makes it for people.

Why: with no worker, nothing is halted, and everything else looks as if all were well.

False alarms: a fleet with a single worker is unwatched while that one restarts, which takes some seconds. Workers of
a version without heartbeats, after newer ones have run, cannot be heard.

Tuning: the triggers unwatched, partition_unwatched, disconnected and watched of a notify file; STREAMPROC_LAG_WARN_S.

Reference: operations: a circuit breaker must not be off in silence.
"""

PROVIDER001: Final = """PROVIDER001 provider_state: the breaker of a provider and model opens, probes, or closes.

Sees: calls of all runs, by provider and model, and those that failed for the provider's sake: 429, 5xx, time-outs. It
opens when, within a minute, at least half of at least 20 calls of at least three runs fail; stays open for 15 seconds
or as long as the provider asks (`Retry-After`), longer each time; then lets two probes through. An answer closes it.

Why: when every run retries by itself, a short overload becomes an outage of hours. Runs are not blamed: no run is
halted for it, and INFRA001 goes on counting each run's own failures.

False alarms: one broken run opens nothing, whatever it sends. Few runs that share one quota may.

Tuning: the section `providers` of the policy (docs/providers.md).

Reference: M. Nygard, "Release It!"; a storm of 429s that took four organisations offline for hours.
"""

PAGES: Final = {
    "FLEET001": FLEET001, "FLEET002": FLEET002, "FLEET003": FLEET003, "FLEET004": FLEET004, "PROVIDER001": PROVIDER001
}  # fmt: skip
"""By code; the first line is `CODE name: summary`."""
