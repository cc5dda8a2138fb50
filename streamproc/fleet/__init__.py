"""Commands that people issue to a fleet of runs: signing, issuing, and the resulting state.

It exports no names: import from the modules.
"""

from __future__ import annotations

__all__: list[str] = []
