"""A page of metrics, as a scraper reads it."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def get(url: str, accept: str = "") -> tuple[int, str, str]:
    """Return status, content type and text of an answer, also of an error; status 0 if nothing answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()
    except OSError:
        return 0, "", ""


class Scraped:
    """The samples of a page by name, with labels."""

    def __init__(self, text: str, *, is_openmetrics: bool = False) -> None:
        self.text = text
        parse = openmetrics if is_openmetrics else prometheus
        self.families = {family.name: family for family in parse(text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """Return one sample; None if there is none with exactly these labels."""
        return self.samples.get((name, frozenset(labels.items())))

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of a name that have these labels, among others."""
        wanted = labels.items()
        return sum(value for (own, has), value in self.samples.items() if own == name and wanted <= has)

    def series(self) -> set[Any]:
        """Return the names and labels of all samples."""
        return set(self.samples)

    def ours(self) -> set[str]:
        """Return the names of our metrics, without the suffixes of series."""
        return {name for name in self.families if name.startswith("streamproc_")}


async def scrape(url: str) -> Scraped:
    """Return the metrics of a process."""
    status, _, text = await asyncio.to_thread(get, f"{url}/metrics")
    assert status == 200, text
    return Scraped(text)


async def probe(url: str) -> tuple[int, str]:
    """Return status and text of a probe."""
    status, _, text = await asyncio.to_thread(get, url)
    return status, text
