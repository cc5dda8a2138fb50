"""An embedded broker that speaks Kafka's protocol: librdkafka's mock cluster, part of the confluent-kafka wheel.

It is for the demo only: it keeps 5 MB per partition and nothing on disk, creates a topic with 4 partitions at its
first use, has no administration interface, and delays a new consumer group by 3 s. It runs in its own process, to keep
its threads out of the demo's interpreter, and exits when its standard input closes, however the demo ends.
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from streamproc.errors import Unavailable

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
MISSING = "the package of the embedded broker is missing. Install it with: pip install 'streamproc[demo]'"


@contextlib.contextmanager
def embedded_broker(topics: Sequence[str]) -> Iterator[str]:
    """Run a broker with these topics while the context is open; yields its address. Raises `Unavailable`."""
    if find_spec("confluent_kafka") is None:
        raise Unavailable(MISSING)
    process = subprocess.Popen(
        [sys.executable, "-m", "streamproc.demo.broker", *topics],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to the demo, which then stops this process
    )
    try:
        yield _address(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    address = process.stdout.readline().strip() if ready else ""
    if address:
        return address
    process.kill()
    assert process.stderr is not None
    output = process.stderr.read().strip().splitlines()
    reason = output[-1] if output else f"no answer within {START_TIMEOUT_S:g} s"
    raise Unavailable(reason if reason == MISSING else f"the embedded broker did not start: {reason}")


def serve(topics: Sequence[str]) -> None:
    """Run the broker until standard input closes."""
    try:
        from confluent_kafka import Producer
    except ImportError:
        sys.exit(MISSING)
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "embedded"})
    brokers = cluster.list_topics(timeout=START_TIMEOUT_S).brokers.values()
    for topic in topics:
        cluster.list_topics(topic, timeout=START_TIMEOUT_S)  # creates it
    sys.stdout.write(",".join(f"{broker.host}:{broker.port}" for broker in brokers) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1:])
