"""What signatures cost: signing and checking a decision. Also the keys for the parts that measure a signing worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.sizes import Sizes
from benchmarks.table import BenchmarkDefect, Row
from benchmarks.timing import best_median, in_pieces, piece_us
from streamproc.fleet.keyring import Keyring, new_keys
from streamproc.fleet.record_signing import LogPlace, RecordSigner
from streamproc.model.signing_keys import SigningKey

KINDS: Final[dict[str, tuple[SigningKey, SigningKey]]] = {
    "HMAC": new_keys("bench", ed25519=False),
    "Ed25519": new_keys("bench", ed25519=True),
}
"""For each kind, the worker's key and the readers' key."""

RECORDS: Final = 1_000
PIECE: Final = 20
VALUE: Final = b'{"id":"' + b"x" * 1_000 + b'"}'  # decisions are about 1 KB


class Signed:
    """A record as a consumer returns it."""

    timestamp_type = 1
    value = VALUE

    def __init__(self, number: int) -> None:
        self.key = f"run-{number}".encode()
        self.timestamp = number
        self.headers: tuple[tuple[str, bytes], ...] = ()


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of signatures."""
    for kind, (worker, reader) in KINDS.items():
        signer = RecordSigner(Keyring([worker]), "streamproc", required=True)
        verifier = RecordSigner(Keyring([reader]), "streamproc", required=True)
        records = [Signed(number) for number in range(RECORDS)]
        sign_us = _us(sizes, lambda record, by=signer: _sign(by, record), records)
        check_us = _us(sizes, lambda record, by=verifier: by.check("control", record), records)
        if verifier.check("control", records[-1]).signed_ms != records[-1].timestamp:
            raise BenchmarkDefect(f"{kind}: the signature is not the one that was made")
        name = kind.lower()
        yield Row(f"signing.{name}.sign", f"signing a decision of 1 KB, {kind}", sign_us, "µs")
        yield Row(f"signing.{name}.check", f"checking that signature, {kind}", check_us, "µs")


def _sign(signer: RecordSigner, record: Signed) -> None:
    place = LogPlace(0, record.timestamp, record.timestamp)
    record.headers = (signer.sign("control", record.key, record.value, place),)


def _us(sizes: Sizes, work: Callable[[Any], Any], records: list[Signed]) -> float:
    def all_of(piece: Any) -> None:
        for record in piece:
            work(record)

    pieces = in_pieces(records, PIECE)
    return best_median([[piece_us(all_of, piece, PIECE) for piece in pieces] for _ in range(sizes.rounds)])
