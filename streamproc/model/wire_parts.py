"""The parts of fingerprinted events (`streamproc.model.wire`): texts, calls, tests, errors, usage, findings.

The positions in array-like types are part of the format: add fields only at the end, with a default. Names and lists
have maximum lengths, above what our publisher sends, to bound the work and the memory of one event.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

ITEMS_MAX: Final = 1_024  # calls or metrics of a turn; parallel calls are dozens, and each costs up to 6 µs
BATCH_MAX: Final = 256  # tasks, moves, dependencies or items of one board event; our publisher sends as many
PAIRS_MAX: Final = 256  # labels, budgets, or proofs by guard

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Name = Annotated[str, msgspec.Meta(max_length=256)]
Scope = Annotated[str, msgspec.Meta(max_length=128)]
Excerpt = Annotated[str, msgspec.Meta(max_length=1_024)]
Items = msgspec.Meta(max_length=ITEMS_MAX)
Batch = msgspec.Meta(max_length=BATCH_MAX)
Pairs = msgspec.Meta(max_length=PAIRS_MAX)
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # with a larger one, a state cannot be stored
Hash = Annotated[int, msgspec.Meta(ge=0)]

HAND_OVER_MAX: Final = 120  # characters; a shorter text beside `next` only announces it: "Next speaker: coder"

NO_ANSWER: Final = 0
ANSWERED: Final = 1
FAILED: Final = 2
FAILED_RETRYABLE: Final = 3
FAILED_RUN: Final = 4

WAITS: Final = 1  # bit of `Call.marks`: the answer is about something that still runs, so the call is a poll
WRITES: Final = 2  # the call puts a text into something, so its answers may differ only because of the call itself
EDITS: Final = 4  # the call changes a file, by the form of its arguments, whatever its size and its answer
LONG_ANSWER: Final = 8  # the answer is longer than an acknowledgement
PASSED: Final = 16  # the answer says that a check has passed

CUT_OFF: Final = "length"  # values of `Turn.stop_reason`: the answer was cut off at a limit of tokens ...
EMPTY: Final = "empty"  # ... or ended without a text and without a call
MALFORMED: Final = "malformed"  # ... or was a call that could not be read

SEVERITIES: Final = ("info", "low", "medium", "high", "critical")


class Content(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The fingerprint of a text.

    `exact` and `norm` are xxh3-64 of the text as it is and normalised; `sim` is a 64-bit SimHash (0: text too short);
    `size` counts characters (0: a structured output of numbers and single words); `about` hashes the numbers and names
    in the text, or the names of an artifact's files (0: none, or not computed).
    """

    exact: Hash
    norm: Hash
    sim: Hash = 0
    size: Count = 0
    about: Hash = 0


class Call(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A tool call.

    `key` hashes the name and the canonical arguments, `exact` and `norm` the answer. `outcome` is NO_ANSWER, ANSWERED,
    FAILED, FAILED_RETRYABLE (a 429, a 5xx, a time-out) or FAILED_RUN (an error with a result: a command that ran and
    exited with 1). `marks` are the bits WAITS, WRITES, EDITS, LONG_ANSWER and PASSED; of
    calls that were not answered WAITS and EDITS, of those that failed EDITS.
    """

    name: Name
    key: Hash
    exact: Hash = 0
    norm: Hash = 0
    outcome: int = NO_ANSWER
    sim: Hash = 0
    marks: Count = 0


class Tests(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A verifier's result.

    A hash of the sorted failing ids (0: none, or ids not sent), how many tests fail, pass and exist, and the first
    three failing ids.
    """

    failing_set: Hash
    failing: Count
    passed: Count | None = None
    total: Count | None = None
    sample: Annotated[tuple[Name, ...], Batch] = ()


class Errors(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The errors of a turn.

    The hash of the error signature, exact and normalised, the number of errors, a redacted excerpt and the class of the
    first, and whether all of them are retryable infrastructure failures.
    """

    signature: Hash
    norm: Hash
    count: Count
    excerpt: Excerpt = ""
    error_class: Name = ""
    retryable: bool = False


class Issue(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A finding of a review that is open: a hash of its id, how severe it is (0 to 4, as `SEVERITIES`; -1: not told),
    and the id itself where it is a name and no sentence."""

    key: Hash
    severity: int = -1
    name: Name = ""


class Usage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Measured spend of a turn: tokens, integer micro-USD (None: cost not known), milliseconds.

    Tokens that were read from a cache, or written to one, are a part of the input.
    """

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    total_tokens: Count = 0
    cost_usd_micro: Count | None = None
    duration_ms: Count = 0
    cache_write_tokens: Count = 0
