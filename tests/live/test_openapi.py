"""`schemas/openapi.yaml` says what the server of `streamproc up` does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from streamproc.live.judge import Judge
from streamproc.live.server import LiveServer
from streamproc.live.sessions import CLIS, CliSessions
from streamproc.live.store import LiveLog
from streamproc.model.raw_events import RAW_KINDS
from streamproc.policy import load_policy
from tests.live.conftest import Up, call

FOLDER: Final = Path(__file__).parents[2] / "schemas"
PAGE: Final = yaml.safe_load((FOLDER / "openapi.yaml").read_text(encoding="utf-8"))


def stored(name: str) -> Resource[Any]:
    return Resource.from_contents(yaml.safe_load((FOLDER / name).read_text(encoding="utf-8")))


REGISTRY: Final[Registry[Any]] = Registry(retrieve=lambda uri: stored(uri.removeprefix("./")))  # type: ignore[call-arg]


def check(answer: Any, path: str, verb: str, status: int) -> None:
    """Check an answer against the page."""
    told = PAGE["paths"][path][verb]["responses"][str(status)]
    if "$ref" in told:
        told = PAGE["components"]["responses"][told["$ref"].rpartition("/")[2]]
    schema = told["content"]["application/json"]["schema"] | {"components": PAGE["components"]}
    Draft202012Validator(schema, registry=REGISTRY).validate(answer)


def test_every_route_is_told_and_no_other(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "live.db")
    judge = Judge(load_policy("standard"), log)
    app = LiveServer(judge, CliSessions(judge), log, began_ms=0).app()
    routes = {
        (re.sub(r"\{(\w+)[^}]*\}", r"{\1}", str(route.resource.canonical)), route.method.lower())
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    log.close()
    assert routes == {(path, verb) for path, told in PAGE["paths"].items() for verb in told}


def test_it_names_every_event_and_every_cli() -> None:
    named = {
        one["$ref"].removeprefix("./").removesuffix(".schema.json")
        for one in PAGE["components"]["schemas"]["Event"]["anyOf"]
    }
    assert named == set(RAW_KINDS)
    [cli, _] = PAGE["paths"]["/v1/hooks/{cli}"]["post"]["parameters"]
    assert cli["schema"]["enum"] == list(CLIS)


@pytest.mark.parametrize(
    ("verb", "path", "sent", "body", "status"),
    [
        ("post", "/v1/turns", "/v1/turns", [call("cat x", "no")] * 3, 200),
        ("post", "/v1/turns", "/v1/turns", {}, 422),
        ("post", "/v1/decide", "/v1/decide", {"run_id": "r1"}, 200),
        ("post", "/v1/decide", "/v1/decide", {}, 422),
        ("post", "/v1/commands", "/v1/commands", {"status": "CLEAR", "scope": "session:s", "by": "ada"}, 200),
        ("post", "/v1/commands", "/v1/commands", {"status": "PAUSE", "scope": "session:s"}, 422),
        ("post", "/v1/commands", "/v1/commands", {"status": "STOP", "scope": "fleet"}, 422),
        ("get", "/v1/runs", "/v1/runs", None, 200),
        ("get", "/v1/runs/{run}", "/v1/runs/r1", None, 200),
        ("get", "/v1/runs/{run}", "/v1/runs/r9", None, 404),
        ("get", "/v1/sessions", "/v1/sessions?tag=x", None, 200),
        ("get", "/v1/health", "/v1/health", None, 200),
    ],
)
def test_answers_are_as_told(up_with_a_halt: Up, verb: str, path: str, sent: str, body: Any, status: int) -> None:
    found, answer = up_with_a_halt.ask(verb.upper(), sent, body)
    assert found == status
    check(answer, path, verb, status)
