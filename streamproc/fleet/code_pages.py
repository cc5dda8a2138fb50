"""What `streamproc explain` says of the codes of orders: no detector makes them, a worker does."""

from __future__ import annotations

from typing import Final

FLEET001: Final = """FLEET001 fleet_order: a person has stopped, paused or cleared the fleet, or killed somebody's runs.

Sees: an order on the commands topic that counts: signed by an allowed issuer, or over a trusted channel.

Why: everybody has to know who ordered it, when and why. Guards obey the order itself; this tells people, and keeps it.

False alarms: none: it is an order. Its id is that of the order, so a repeated one is recognised.

Tuning: STREAMPROC_COMMAND_AUTH and STREAMPROC_COMMAND_KEY say which orders count (docs/fleet.md).

Reference: fleet orders and people: STOP, PAUSE, CLEAR with who, when and why; kill all of a user or tenant.
"""
FLEET002: Final = """FLEET002 fleet_refused: an order that does not count was refused.

Sees: a record of the commands topic that is no order, is not signed though it must be, is signed by a stranger or with
another key, is more than five minutes off the broker's clock, or is older than one of its scope; and a status file
whose first line is no status.

Why: somebody has tried to order something, or is cut off from ordering: both must be seen. The record is in the
dead-letter topic with its reason, and what it would have displaced at compaction is given again.

False alarms: a key that was changed in one place and not in another; a clock that is wrong.

Tuning: give workers, listeners and whoever orders the same STREAMPROC_COMMAND_KEY; set the clocks.

Reference: fleet orders and people: only allowed issuers count; a refused command is recorded.
"""

PAGES: Final = {"FLEET001": FLEET001, "FLEET002": FLEET002}
"""By code; the first line is `CODE name: summary`."""
