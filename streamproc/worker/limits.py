"""Every limit of the worker: its meaning, its unit, and its reason."""

from __future__ import annotations

from typing import Final

# Batch sizes.

# Records processed without a pause, and for how long: heartbeats, acknowledgements and other partitions wait for it.
# A thousand common turns take 20 to 50 ms; a thousand of the largest events would take seconds.
SLICE_RECORDS_MAX: Final = 1_000
SLICE_S: Final = 0.05
# The pause after a slice that took `SLICE_S`. Each turn of the loop moves one piece of a fetch or of a request, up to
# 256 KiB: with a slice between any two pieces, other partitions' records and decisions would wait for many slices.
SLICE_PAUSE_S: Final = 0.005
# Between two looks at the clock, with the compiled core: 800 common turns, 7 ms. The records of a run in them are
# stepped one after the other, and its state is read and written once.
PIECE_BYTES_MAX: Final = 262_144
# ... in pure Python, and of other records than turns: at most 1 ms each, or what one statement of a full tree takes.
SLICE_CHECK_RECORDS: Final = 16
LARGE_RECORD_BYTES: Final = 4_096  # a record after which the clock is looked at in any case; a turn has about 400
# States encoded and stored at once: about 20 ms. All states that changed while the broker was away would take half a
# second.
STORE_RECORDS_MAX: Final = 1_000
# Records of a partition that are processed and not stored yet; past it, the partition waits for the broker.
BACKLOG_RECORDS_MAX: Final = 20_000
# A state that changes again within this time is written once. A crash repeats at most this much besides uncommitted
# records.
STORE_LINGER_S: Final = 0.2
# The same for accounts: many runs change one, and statements that are read again book nothing twice.
ACCOUNT_LINGER_S: Final = 1.0
# Charges that a lagging partition holds back until its states are stored, and of how many sessions and users: 15 ms of
# statements.
HELD_CHARGES_MAX: Final = 5_000
HELD_PAYERS_MAX: Final = 500
BATCH_BYTES: Final = 262_144  # of one batch to the broker: a full slice of states in a few requests
FETCH_BYTES_MAX: Final = 4_194_304  # of one partition in one fetch: about 10 000 turns
FETCH_WAIT_MS: Final = 250  # how long a partition left out of a running fetch waits for the next one
# States are trees without cycles; looking for cycles among them at Python's pace cost a fifth of a turn.
GC_THRESHOLD: Final = (100_000, 50, 1_000)

# Records that crash the process (`worker.crash_marks`).

CRASHES_IN_HAND_MAX: Final = 2  # crashes with a record alone in hand, after which it goes to the dead-letter topic
CAREFUL_SLICE: Final = 64  # records in hand together after a crash; each slice costs two commits, some milliseconds
# Records that are taken so after a crash: what a worker may have processed without a commit, its backlog.
CAREFUL_RECORDS_MAX: Final = BACKLOG_RECORDS_MAX
SUSPECTS_MAX: Final = 32  # records whose crashes are counted: Kafka allows 4 096 bytes of metadata

# Stored runs and accounts.

ACTIVE_RUNS_MAX: Final = 8_000  # states kept as objects in pure Python: about 21 KB each, so 170 MB
RUNS_MAX: Final = 250_000  # runs, a worker: at most 4 KiB each, so 1 GiB; past it, `worker.eviction` says which go
STATE_BYTES_MAX: Final = 65_536  # a state is at most 4 KiB; the changelog would soon refuse one this large
FINISHED_KEEP_MS: Final = 3_600_000  # how long a finished run recognises late events and duplicates
IDLE_KEEP_MS: Final = 7 * 86_400_000  # the retention of the turns topic, which a replay needs
# Turns of a run that is still new. A client that wants a made-up run to count as more pays for more turns.
NEW_TURNS_MAX: Final = 3
SPARED_PART: Final = 4  # new runs are spared up to a quarter of the run limit, and halted ones up to another
# Stubs of halted runs, for each run of the limit: a million in memory, 400 bytes each. Past it, halts are forgotten.
STUBS_A_RUN: Final = 4
STUB_KEEP_MS: Final = 366 * 86_400_000  # much longer than any agent waits to go on
SWEEP_RUNS_MAX: Final = 1_000  # expired runs removed in one write: a sweep never delays decisions
# Decoded accounts and all accounts, a worker: 20 KB each decoded, 1 to 10 KB each encoded. Its partitions of the spend
# topic share them equally; past its share, a partition evicts the account idle longest.
ACTIVE_ACCOUNTS_MAX: Final = 10_000
ACCOUNTS_MAX: Final = 250_000
# The same in bytes, encoded: the tree of a session with thousands of runs takes up to 0.9 MB, decoded ten times that.
ACTIVE_ACCOUNTS_BYTES_MAX: Final = 33_554_432
ACCOUNTS_BYTES_MAX: Final = 1_073_741_824
ACCOUNT_KEEP_MS: Final = 32 * 86_400_000  # every window of an account that was idle for this long is empty

# Old statuses on the topic `runs`.

STATUS_SWEEP_FIRST_S: Final = 600.0  # at most, from the start to the first reading; restarts come in rows
STATUS_SWEEP_INTERVAL_S: Final = 3_600.0  # at most, between two readings of all partitions
# Records read and tombstones written at once: 1 ms of the event loop, 3 with signatures by Ed25519. With the pause
# after each, reading (2.5 µs a record) and writing (9 µs a tombstone) take less than a hundredth of the worker; writing
# with signatures by Ed25519 (52 µs) takes two.
STATUS_SWEEP_RECORDS: Final = 350
STATUS_SWEEP_WRITES: Final = 50
STATUS_SWEEP_PAUSE_S: Final = 0.125
STATUSES_DUE_MAX: Final = 200_000  # old statuses noted at once, 170 bytes each; the next reading notes the others

# Runs in RocksDB (STREAMPROC_STORE=rocksdb).

RUNS_ON_DISK_MAX: Final = (
    5_000_000  # runs, a worker: at most 4 KiB each, so 20 GiB; past it, `worker.eviction` says which go
)
ROCKSDB_CACHE_BYTES: Final = 134_217_728  # recently read blocks, indexes and filters of all partitions' files
ROCKSDB_BLOCK_BYTES: Final = 16_384  # read at once: about ten states; the index of 5 million runs is then 30 MB
ROCKSDB_FILE_BYTES: Final = (
    16_777_216  # of a file: its index fits well into the 64th part of the cache that it may have
)
ROCKSDB_BUFFER_BYTES: Final = 67_108_864  # recent writes that are not in a file yet, all partitions together
ROCKSDB_MEMTABLE_BYTES: Final = 4_194_304  # the same for one partition: about 2 500 states
ROCKSDB_PENDING_MAX: Final = 2_000  # states that recovery writes at once: about 4 MiB
ROCKSDB_SCAN_MAX: Final = 1_000  # entries of the expiry index that one write scans: a few ms
ROCKSDB_PAGE: Final = 1_000  # keys read at once in an iteration over all
# Half of the time that a changelog keeps its tombstones: an older store may hold runs that were deleted.
ROCKSDB_AGE_MAX_MS: Final = 43_200_000

HALT_BYTES_MAX: Final = 8_192  # of the decision kept with a halted run, for its status; a longer one is kept shortened
RESUME_BYTES_MAX: Final = 8_192  # an operator's resume that is kept for guards; `streamproc resume` sends a few hundred
CONTROL_BYTES_MAX: Final = 262_144  # a decision is about 1 KiB; labels and test names can have any size

# New runs (STREAMPROC_NEW_RUNS_MAX).

# Publishers that one partition counts by name in one minute. What a record says about its publisher is a claim: all
# further names share one count.
PUBLISHERS_MAX: Final = 100
PUBLISHER_BYTES_MAX: Final = 128  # of a name: Kafka's own user names and client ids are shorter

# Deadlines.

DEADLINE_TICK_S: Final = 1.0  # between two checks: time-outs are minutes
# How long a partition must be caught up before silence in it counts: publishers first send what they have buffered.
# They try again every 5 s at most.
DEADLINE_GRACE_S: Final = 15.0
DEADLINE_BLIND_S: Final = 10.0  # without a check, after which publishers may have buffered events
DEADLINES_MAX: Final = 1_000  # appended to a partition at one check, so that turns do not wait

# Waiting for the broker.

RETRY_FIRST_S: Final = 0.5  # the first pause before trying again; each pause is twice the one before
RETRY_MAX_S: Final = 5.0  # the longest pause: a broker that is back is found within it
COMMIT_INTERVAL_S: Final = 1.0  # between two commits: a crash repeats this much
# A member learns of a rebalance by a heartbeat: at scale-in, the others wait for the session of the removed worker and
# for this. With 4 a session, partitions stood still for up to 12.6 s at a session of 10.
HEARTBEATS_A_SESSION: Final = 20
REQUEST_TIMEOUT_S: Final = 40.0  # of one request, as in aiokafka; produce requests are repeated without end
DRAIN_TIMEOUT_S: Final = 10.0  # how long a clean stop waits for acknowledgements, and again for the commit
LEAVE_TIMEOUT_S: Final = 3.0  # how long it waits for connections to close and for cancelled tasks
CANCEL_AGAIN_S: Final = 0.2  # after this time, a task that is still running is cancelled again
# A worker stops within this time, whatever the broker does: Kubernetes allows 30 s.
END_TIMEOUT_S: Final = 28.0

# Stalls.

WATCH_TICK_S: Final = 1.0  # between two checks of the loop by the watchdog
# A worker whose loop is blocked for one session is expelled from its group; the second allows for an overloaded
# machine.
LOOP_STUCK_SESSIONS: Final = 2
# Time without releasing the interpreter. No step takes a hundredth of it; a frozen machine may look the same.
INTERPRETER_STUCK_S: Final = 120.0
PROVIDER_TICK_S: Final = 0.1  # how late an open breaker may let probes through
PROVIDER_AGAIN_MS: Final = 2_000  # after which a breaker is told again that its time has come
STALL_CHECK_S: Final = 5.0
# A partition has work to do and its committed offset does not move. A lost request is repeated after REQUEST_TIMEOUT_S,
# and a commit follows within COMMIT_INTERVAL_S.
COMMIT_STUCK_S: Final = 60.0
# A rebalance or recovery without any progress. The group waits up to a minute for a member that does not come back.
REBALANCE_STUCK_S: Final = 180.0
BROKER_PROBE_S: Final = 10.0  # a broker that does not answer a new connection within this time is away
CRASHES_MAX: Final = 5  # crashes within CRASHES_WINDOW_S after which the worker exits
CRASHES_WINDOW_S: Final = 300.0
SUPERVISOR_PATIENCE_S: Final = 45.0  # a worker stops within 28 s, whatever the broker does

# Fleet commands.

COMMANDS_POLL_MS: Final = 250  # between two checks for duties; a command itself is read at once
OUTCOMES_MAX: Final = 1_000  # a partition: unpublished outcomes, kept in case the worker with the duty loses it
STOPS_AT_ONCE: Final = 1_000  # runs of a killed user for which stops are published together
RESTATE_INTERVAL_S: Final = 5.0  # standing commands are issued again at most this often
STATUS_FILE_POLL_S: Final = 0.5  # between two checks of the status file: an edit takes effect within it
STATUS_FILE_BYTES_MAX: Final = 65_536  # of the status file; three lines are about 200

# Topics beside the decisions: heartbeats, and current statuses.

SIDE_TIMEOUT_S: Final = 10.0  # of a record: a later one says more
SIDE_DENIED_S: Final = 60.0  # until the topic is looked for again, or written to, where that was not possible
SIDE_LEAVE_S: Final = 1.0  # for the last record, and for the connection to close
HEARTBEAT_SWEEP_S: Final = 3_600.0  # between two readings of the topic for workers that were silent for a day
HEARTBEAT_LAG_MS: Final = 1_000  # a delay that is reported: shorter ones are no news
ACTIVITY_INTERVAL_S: Final = 8.0  # between two current statuses of a run; with storing and reading, 10 s at most
ACTIVITY_CHUNK: Final = 20  # statuses that are made at once, in 0.5 ms: decisions wait for no more
ACTIVITY_BATCH_BYTES: Final = 131_072  # about 800 statuses: a request costs as much as ten of them

# Output.

LOG_DELAY_S: Final = 0.002  # after a halt, until it is logged: its decision leaves first
HALT_LINES_A_SECOND: Final = 100  # of halts, 30 µs each; people read fewer, and the control topic has all
REFUSAL_TEXT_MAX: Final = 500  # characters of a reason in the header of a dead letter
LAG_TICK_S: Final = 1.0  # between two looks at the ends of the partitions
REPORT_INTERVAL_S: Final = 60.0  # between two lines of counts in the log
