"""Run the examples of adapters as a user does: `python examples/integrations/NAME`."""

from __future__ import annotations

from tests.docs.pages import ROOT, blocks
from tests.programs import output_of


def printed(name: str) -> str:
    """Return the output of an example, which needs no broker, key or network."""
    return output_of(ROOT / "examples" / "integrations" / name)


def run_blocks(page: str) -> None:
    """Run the Python blocks of the page of an adapter, whose framework only this environment may have."""
    names = {"__name__": page}
    for block in blocks(ROOT / "docs" / "integrations" / page):
        if block.language == "python":
            exec(compile(block.text, str(block), "exec", dont_inherit=True), names)


def shown(page: str) -> str:
    """Return the output that the page of an adapter shows."""
    [block] = [block for block in blocks(ROOT / "docs" / "integrations" / page) if block.language == "console"]
    return block.text.partition("\n")[2]
