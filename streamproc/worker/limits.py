"""Every bound of the worker, in one place: what it is, its unit, and why it is so."""

from __future__ import annotations

from typing import Final

# How much is done at once.

# Records stepped without a pause: about 10 ms, so that heartbeats and acknowledgements stay prompt.
SLICE_RECORDS_MAX: Final = 1_000
# Records of a partition stepped but not stored yet: past it, the partition waits for the broker.
BACKLOG_RECORDS_MAX: Final = 20_000
# A state that changes again within it is written once. A crash repeats at most so much, besides what was not committed.
STORE_LINGER_S: Final = 0.2
BATCH_BYTES: Final = 262_144  # of one batch to the broker: a full slice of states in few requests
FETCH_BYTES_MAX: Final = 4_194_304  # of one partition in one fetch: about 10 000 turns
FETCH_WAIT_MS: Final = 250  # a partition left out of a fetch that is under way waits so long for the next
# States are trees without cycles; looking for cycles among them at Python's pace cost a fifth of a turn.
GC_THRESHOLD: Final = (100_000, 50, 1_000)

# What is kept of runs.

HOT_RUNS_MAX: Final = 20_000  # decoded states, a worker: about 10 KB each, so 200 MB; the others are kept encoded
RUNS_MAX: Final = 250_000  # runs, a worker: at most 4 KiB each, so 1 GiB; past it, the one idle longest goes
STATE_BYTES_MAX: Final = 65_536  # a state is at most 4 KiB; one this large would soon be refused by the changelog
FINISHED_KEEP_MS: Final = 3_600_000  # so long a finished run still knows its latecomers and duplicates
IDLE_KEEP_MS: Final = 7 * 86_400_000  # as long as the turns topic keeps what a replay would need
SWEEP_RUNS_MAX: Final = 1_000  # expired runs that leave with one write: a sweep never holds up the decisions
HOT_ACCOUNTS_MAX: Final = 2_000  # decoded accounts, a partition of the spend topic: about 20 KB each
ACCOUNTS_MAX: Final = (
    100_000  # accounts, a partition of the spend topic: 3 to 10 KB each; past it, the one idle longest goes
)
ACCOUNT_KEEP_MS: Final = 32 * 86_400_000  # no window of an account that was idle for so long holds anything

# What is kept of runs on disk (STREAMPROC_STORE=rocksdb).

RUNS_ON_DISK_MAX: Final = 5_000_000  # runs, a worker: at most 4 KiB each, so 20 GiB; past it, the one idle longest goes
SHELF_CACHE_BYTES: Final = 134_217_728  # blocks, indexes and filters of all partitions' files, read lately
SHELF_BLOCK_BYTES: Final = 16_384  # read at once: about ten states; the index of 5 million runs is then 30 MB
SHELF_FILE_BYTES: Final = 16_777_216  # of a file: its index fits well into the 64th part of the cache that it may have
SHELF_BUFFER_BYTES: Final = 67_108_864  # written lately and not in a file yet, all partitions together
SHELF_MEMTABLE_BYTES: Final = 4_194_304  # the same, of one partition: about 2 500 states
SHELF_PENDING_MAX: Final = 2_000  # states that recovery writes at once: about 4 MiB
SHELF_LOOK_MAX: Final = 1_000  # entries of the index of ages that one write looks at: a few ms
SHELF_PAGE: Final = 1_000  # keys that are read at once where all are walked through
# Half of the time that a changelog keeps its tombstones: what is on disk for longer may hold runs that are long gone.
SHELF_AGE_MAX_MS: Final = 43_200_000

CONTROL_BYTES_MAX: Final = 262_144  # a decision is about 1 KiB; a stranger's labels and test names may be anything

# Times that are not times.

AT_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999: no calendar can write down a later moment

# Deadlines.

DEADLINE_TICK_S: Final = 1.0  # between two looks at the clocks: time-outs are minutes
# So long a partition is caught up before silence in it means anything: publishers send what they kept meanwhile. Theirs
# try again every 5 s at most.
DEADLINE_GRACE_S: Final = 15.0
DEADLINE_BLIND_S: Final = 10.0  # without a look, after which nobody knows what was kept meanwhile
DEADLINES_MAX: Final = 1_000  # appended to a partition at one look: the turns in between do not wait

# Patience with the broker.

RETRY_FIRST_S: Final = 0.5  # the first pause before trying again; each pause is twice the one before
RETRY_MAX_S: Final = 5.0  # the longest pause: a broker that is back is found within it
COMMIT_INTERVAL_S: Final = 1.0  # how often offsets are committed: a crash reads so much again
HEARTBEATS_A_SESSION: Final = 4  # heartbeats that a session survives losing, less one
REQUEST_TIMEOUT_S: Final = 40.0  # of one request, as in aiokafka; produce requests are repeated without end
DRAIN_TIMEOUT_S: Final = 10.0  # a clean stop waits so long for acknowledgements, and as long again for the commit
LEAVE_TIMEOUT_S: Final = 3.0  # and so long for connections to close, and for what is cancelled to end
CANCEL_AGAIN_S: Final = 0.2  # what does not end when it is cancelled is cancelled again
# So long after it was asked to, a worker has ended, whatever the broker does: what Kubernetes gives it is 30 s.
END_TIMEOUT_S: Final = 28.0

# Standing still.

WATCH_TICK_S: Final = 1.0  # between two looks of the watchdog at the loop
# A loop that stands still for one session is expelled from its group; the second is for a machine that is overloaded.
LOOP_STUCK_SESSIONS: Final = 2
# The interpreter is not given back for so long. No step takes a hundredth of it; a frozen machine may look the same.
INTERPRETER_STUCK_S: Final = 120.0
PROGRESS_LOOK_S: Final = 5.0
# There is something to do in a partition and nothing was committed. A request that got lost costs REQUEST_TIMEOUT_S
# before it is repeated, and a commit follows within COMMIT_INTERVAL_S.
COMMIT_STUCK_S: Final = 60.0
# A rebalance or recovery in which nothing changes. The group waits up to a minute for one that does not come back.
REBALANCE_STUCK_S: Final = 180.0
BROKER_PROBE_S: Final = 10.0  # a broker that does not answer a new connection within it is away
LIVES_MAX: Final = 5  # crashes within LIVES_WINDOW_S after which it is the supervisor's turn
LIVES_WINDOW_S: Final = 300.0
SUPERVISOR_PATIENCE_S: Final = 45.0  # a worker ends within 28 s of being asked, whatever the broker does

# Orders.

ORDERS_POLL_MS: Final = 250  # between two looks at what is to be done about orders; an order itself is heard at once
VERDICTS_MAX: Final = 1_000  # a partition: records not told yet, while another worker has the duty and may lose it
STOPS_AT_ONCE: Final = 1_000  # runs of a killed user looked at, or stopped, without a pause: a few ms
RESTATE_INTERVAL_S: Final = 5.0  # standing orders are given again at most so often, whatever is thrown at them
STATUS_FILE_POLL_S: Final = 0.5  # between two looks at the status file: a person who writes STOP waits no longer
STATUS_FILE_BYTES_MAX: Final = 65_536  # of the status file; three lines are about 200

# What people read.

REFUSAL_TEXT_MAX: Final = 500  # characters of a reason in a dead letter's header
REPORT_INTERVAL_S: Final = 60.0  # between two lines of counts in the log
