"""The documentation builds as a site, strictly, and its links are right on GitHub and in the site."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import asyncapi_page, mkdocs_hooks
from tests.docs.pages import ROOT

ASYNCAPI = yaml.safe_load((ROOT / asyncapi_page.SOURCE).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    return folder


def text_of(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_every_page_can_be_searched(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}

    for page in ("tutorial/", "architecture/", "detectors/LOOP002/", "examples/kanban/", "CHANGELOG/"):
        assert page in found


def test_the_reference_shows_the_public_names_with_their_docstrings(site: Path) -> None:
    text = text_of(site, "api")

    for name in (
        "streamproc.monitor.Monitor.feed",
        "streamproc.client.TurnPublisher.turn",
        "streamproc.client.HaltListener.guard",
        "streamproc.client.Guard.ready",
        "streamproc.client.admission.Admission.balances",
        "streamproc.policy.load_policy",
        "streamproc.core.graph.check_graph",
        "streamproc.errors.Halted",
    ):
        assert f'id="{name}"' in text
    assert ":::" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_reference_shows_doctests_as_code(site: Path) -> None:
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text_of(site, "api")


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in ("tutorial", "architecture", "api"):
        assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://[^\"]+", text_of(site, page))


@pytest.fixture(scope="module")
def messages(site: Path) -> str:
    """The page about topics and messages, as a reader sees it: on one line, without markup."""
    article = text_of(site, "messages").partition("<article")[2].partition("</article>")[0]
    return plain(html.unescape(re.sub(r"<[^>]+>", "", article)))


def plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def test_every_topic_and_operation_is_described(messages: str) -> None:
    for channel in ASYNCAPI["channels"].values():
        assert plain(f"{channel['address']}¶ {channel['description']}") in messages
        for setting, value in channel["bindings"]["kafka"]["topicConfiguration"].items():
            assert f"{setting} {', '.join(value) if isinstance(value, list) else value}" in messages
    for operation in ASYNCAPI["operations"].values():
        assert f"{operation['title']} ({operation['action']}" in messages


def test_every_message_is_described(messages: str) -> None:
    for name, message in ASYNCAPI["components"]["messages"].items():
        assert f"{name}¶ {message['title']}. Key: " in messages


@pytest.mark.parametrize("name", ASYNCAPI["components"]["schemas"])
def test_every_field_is_described(messages: str, name: str) -> None:
    schema = ASYNCAPI["components"]["schemas"][name]
    if "schema" in schema:
        schema = json.loads((ROOT / "schemas" / schema["schema"]["$ref"]).read_text(encoding="utf-8"))
    names = list(ASYNCAPI["components"]["schemas"])
    ends = f" {names[names.index(name) + 1]}¶" if name != names[-1] else "\0"
    section = messages.partition(" Values and headers¶")[2].partition(f" {name}¶")[2].partition(ends)[0]

    for about in descriptions(schema):
        assert plain(about) in section
    for field, part in fields(schema):
        assert re.search(rf" {re.escape(field)} [^¶]*{re.escape(plain(part.get('description', '')))}", section), field


def test_the_page_about_messages_loads_nothing(site: Path) -> None:
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://[^\"]+", text_of(site, "messages"))


def test_every_link_of_the_page_about_messages_has_its_target(site: Path) -> None:
    text = text_of(site, "messages")
    targets = set(re.findall(r'href="#([^"]+)"', text))

    assert len(targets) > len(ASYNCAPI["components"]["messages"])
    assert targets <= set(re.findall(r'id="([^"]+)"', text))


def descriptions(node: Any) -> Iterator[str]:
    """Yield all descriptions in a schema, at any depth; fields of this name are not descriptions."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from descriptions(value)
    if isinstance(node, dict) and isinstance(node.get("description"), str):
        yield node["description"]


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", {}).items()


@pytest.mark.parametrize(("page", "link", "in_site"), [
    ("index.md", "[a](../schemas/asyncapi.yaml)", "[a](messages.md)"),
    ("architecture.md", "[a](glossary.md)", "[a](glossary.md)"),
    ("operations.md", "[a](../SECURITY.md#reporting)", "[a](SECURITY.md#reporting)"),
    ("detectors/LOOP001.md", "[a](../../CHANGELOG.md)", "[a](../CHANGELOG.md)"),
    ("examples/kanban/README.md", "[a](../../docs/tasks.md)", "[a](../../tasks.md)"),
    ("architecture.md", "[`a`](../streamproc/core/engine.py)", "`a`"),
    ("architecture.md", "[a](../streamproc/nowhere.py)", "[a](../streamproc/nowhere.py)"),
    ("architecture.md", "[a](https://kafka.apache.org)", "[a](https://kafka.apache.org)"),
    ("architecture.md", "```text\n[a](../SECURITY.md)\n```", "```text\n[a](../SECURITY.md)\n```"),
])  # fmt: skip
def test_a_link_leads_to_the_same_place_in_the_site(page: str, link: str, in_site: str) -> None:
    assert rewritten(page, link) == in_site


def test_a_link_to_a_source_file_leads_into_the_repository_if_it_is_known() -> None:
    link = "[a](../streamproc/core/engine.py)"

    found = rewritten("architecture.md", link, repo_url="https://example.com/o/n/")

    assert found == "[a](https://example.com/o/n/blob/main/streamproc/core/engine.py)"


def rewritten(page: str, markdown: str, repo_url: str = "") -> str:
    in_docs = (ROOT / "docs").rglob("*.md")
    known = {
        *mkdocs_hooks.outside(),
        asyncapi_page.PAGE,
        *(path.relative_to(ROOT / "docs").as_posix() for path in in_docs),
    }
    return mkdocs_hooks.rewrite(markdown, page, known, repo_url)
