"""The read model behind a real worker: signed records, accounts and dead letters as a deployment has them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import yaml

from streamproc.fleet.issuing import issue_command
from streamproc.kafka import topics as kafka_topics
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import ModelReader
from streamproc.read_model.rows import DecisionFilter, RunFilter
from streamproc.replay.published import statuses
from streamproc.settings import load_settings
from tests.waiting import until
from tests.worker.running import Topics, WorkerProcess, looping_run
from tests.worker.test_spend import spent

KEY = "k" * 32


async def test_a_deployment_is_shown_as_its_workers_publish_it(
    brokers: str, topic_prefix: str, nobodys_settings: None, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"name": "accounts", "budgets": {"maxTenantTokensPerDay": 1_000}}))
    settings = load_settings(
        brokers=brokers, topic_prefix=topic_prefix, policy=str(policy), control_key=f"workers:{KEY}",
        command_key=f"ops:{KEY}",
    )  # fmt: skip
    await kafka_topics.apply(settings)
    topics, worker = Topics(settings), WorkerProcess(settings, tmp_path / "worker.log").start()
    model = ReadModel()
    reader = ModelReader(settings, model, since_ms=int(time.time() * 1000) - 3_600_000)
    try:
        await worker.ready()
        await reader.start()
        await topics.send(looping_run("stuck"))
        await topics.send([spent("a", number, 150, tenant="acme", user="ada") for number in range(2)])
        await topics.send([(b"a", b"no event"), spent("b", 0, 300, tenant="acme", user="eve")])
        await until(lambda: reader.caught_up and model.run("stuck") and model.run("stuck").status == "halted")
        await until(lambda: model.accounts() and model.accounts()[0].spent == 600, 60)
        await until(model.refused)

        [account] = model.accounts()
        assert (account.scope, account.limit, account.unit) == ("tenant:acme", 1_000, "tokens")
        assert account.limit_at_ms is not None
        [letter] = model.refused()
        assert (letter.source_topic, letter.source_partition >= 0) == (settings.topic("turns"), True)
        running = model.run("a")
        assert (running.turns, running.total_tokens, running.user) == (2, 300, "ada")

        command, _, _ = await issue_command(settings, "STOP", "user:eve", "bob", "too dear")
        await until(lambda: model.run("b").status == "halted", 60)
        [command] = model.commands(standing=True)
        await until(lambda: model.commands(standing=True)[0].obeyed_runs == 1)
        assert (command.id, command.scope, command.by, command.state) == (command.id, "user:eve", "bob", "standing")

        published = await statuses(settings)
        for run_id, status in published.items():
            row = model.run(run_id)
            assert (row.status, row.severity) == (status.status, status.severity)
        halts = {row.run_id for row in model.decisions(DecisionFilter(severity="halt"))}
        assert halts - {"*"} == {row.run_id for row in model.runs("halted", RunFilter()).rows} == {"stuck", "b"}
        assert sum(model.skipped.values()) == 1  # of turns: the one that is no event
    finally:
        await reader.stop()
        model.close()
        worker.end(signal.SIGKILL)
