"""The distributed worker: a Faust app that takes events to the engine and its decisions to Kafka.

`streamproc.worker.app.run_worker` runs one, `streamproc.worker.supervisor.supervise` several. Nothing is imported here,
because importing Faust takes a second.
"""

__all__: list[str] = []
