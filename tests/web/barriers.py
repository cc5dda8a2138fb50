"""What keeps people out of a page, by axe-core."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe


def barriers(page: Any, **options: Any) -> list[Any]:
    """What axe-core finds serious or critical."""
    return [
        (one["id"], node["target"], node.get("failureSummary"))
        for one in Axe().run(page, options=options).response["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
