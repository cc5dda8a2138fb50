"""An embedded broker that speaks Kafka's protocol: librdkafka's mock cluster, which the confluent-kafka wheel carries.

For the demo, not for work: it keeps 5 MB a partition and nothing on disk, makes a topic with 4 partitions when
somebody first asks for it, has no administration interface, and lets a new consumer group wait 3 s. It runs in a
process of its own, as its client and Python's threads would share one interpreter with the demo otherwise, and it
ends when the demo does, however that ends: its standard input closes.
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence

from streamproc.errors import Unavailable

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0


@contextlib.contextmanager
def embedded_broker(topics: Sequence[str]) -> Iterator[str]:
    """A broker with these topics for as long as the context is open; its address. Raises `Unavailable`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "streamproc.demo.broker", *topics],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the demo, which then closes this in order
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
    told = process.stderr.read().strip().splitlines()
    raise Unavailable(
        f"the embedded broker did not start: {told[-1] if told else f'no answer in {START_TIMEOUT_S:g} s'}"
    )


def serve(topics: Sequence[str]) -> None:
    """Be the broker until standard input closes."""
    try:
        from confluent_kafka import Producer
    except ImportError:
        sys.exit("confluent-kafka is not installed, which carries it; pip install 'streamproc[demo]'")
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "embedded"})
    brokers = cluster.list_topics(timeout=START_TIMEOUT_S).brokers.values()
    for topic in topics:
        cluster.list_topics(topic, timeout=START_TIMEOUT_S)  # asking for it makes it
    sys.stdout.write(",".join(f"{broker.host}:{broker.port}" for broker in brokers) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1:])
