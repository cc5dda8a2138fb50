"""Which tier a run has: the one that the policy assigns, or the one that the run names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
NO_BUDGETS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType({})


class TierRules(NamedTuple):
    """Which tier a run has. Without an assigned one, and unless runs are believed, a tier that a run names can only
    lower the run's own budgets."""

    believed: bool = False
    tenants: Mapping[str, str] = NO_NAMES  # tiers that the policy assigns
    users: Mapping[str, str] = NO_NAMES  # these win over those of tenants
    budgets: Mapping[str, Mapping[str, int]] = NO_BUDGETS  # by tier: its budgets that a run may declare
    names: Mapping[str, str] = NO_NAMES  # tiers of the policy, by their names in lower case

    def known(self, name: str) -> str:
        """Return the tier of this name, whatever its case; a name that the policy does not have is returned as is."""
        return name if name in self.budgets else self.names.get(name.casefold(), name)

    def assigned(self, tenant: str, user: str) -> str:
        """Return the tier that the policy assigns; empty: none."""
        return self.users.get(user) or self.tenants.get(tenant, "")


NO_TIERS: Final = TierRules()
