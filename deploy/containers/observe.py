"""The profile `observe`, asked at its published ports: the page and its login, the metrics, the alerts."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from deploy.containers.stack import HARDENED, Stack, expect, wait

PAGE: Final = "http://localhost:8414"
PROMETHEUS: Final = "http://localhost:9090"
PASSWORD: Final = "correct horse battery staple"
SCRAPED: Final = {"worker-1:9464", "worker-2:9464", "page:9464", "localhost:9090"}
SCRAPED_S: Final = 60  # it scrapes every 15 s
ALERT: Final = "StreamprocNoWorkers"
ALERT_S: Final = 240  # it fires after two minutes, and Prometheus forgets a target after some seconds
BROWSER: Final = {
    "Origin": PAGE,
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Mode": "navigate",
    "Accept": "text/html",
}


def profile(stack: Stack) -> None:
    """The profile `observe` starts, after a user was added."""
    stack.profile = ("--profile", "observe")
    words = ("page-user", "ada", "--right", "view", "--file", "/var/lib/streamproc/page-users")
    stack.compose("run", "--rm", "--no-TTY", "page", *words, given=f"{PASSWORD}\n")
    stack.compose("up", "--detach")
    services = ("page", "prometheus", "grafana")
    stack.healthy(*services)
    for service in services:
        stack.shell(service, HARDENED, "it has capabilities, may get some, or can write its root file system")


def page(stack: Stack) -> None:
    """The page asks for the password, and shows the runs to a user who has it."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    last = stack.agents[-1]
    expect(last not in _open(browser, "/"), "the page shows runs without a login")
    _open(browser, "/login/password", user="ada", password="wrong", next="/")
    expect(last not in _open(browser, "/"), "the page shows runs after a wrong password")
    _open(browser, "/login/password", user="ada", password=PASSWORD, next="/")
    wait(lambda: last in _open(browser, "/"), 30, f"the page to show {last}")


def metrics(_stack: Stack) -> None:
    """Prometheus scrapes all of it, and loads the alerts."""
    wait(lambda: _up() >= SCRAPED, SCRAPED_S, f"Prometheus to reach {sorted(SCRAPED)}")
    rules = [rule for group in _ask("rules")["groups"] for rule in group["rules"]]
    unwell = [rule["name"] for rule in rules if rule["health"] == "err"]
    expect(any(rule["name"] == ALERT for rule in rules) and not unwell, "rules are not loaded, or fail", unwell)


def alert(_stack: Stack) -> None:
    """The workers have stopped, and the alert that says so fires."""
    wait(lambda: ALERT in {one["labels"]["alertname"] for one in _ask("alerts")["alerts"] if one["state"] == "firing"},
         ALERT_S, f"{ALERT} to fire")  # fmt: skip


def _up() -> set[str]:
    return {one["metric"]["instance"] for one in _ask("query?query=up==1")["result"]}


def _ask(what: str) -> Any:
    try:
        with urllib.request.urlopen(f"{PROMETHEUS}/api/v1/{what}", timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError as problem:
        expect(False, f"Prometheus does not answer {what}", problem)


def _open(browser: urllib.request.OpenerDirector, path: str, **form: str) -> str:
    """Return the text of a page, also of one that says no."""
    data = urllib.parse.urlencode(form).encode() if form else None
    try:
        with browser.open(urllib.request.Request(PAGE + path, data, BROWSER), timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as refused:
        return refused.read().decode()
    except OSError as problem:
        expect(False, f"the page does not answer {path}", problem)
        return ""
