"""Policies: thresholds, budgets and actions, loaded from layers of YAML and resolved for a scope."""

from __future__ import annotations

from streamproc.policy.layers import Policy, load_policy

__all__ = ["Policy", "load_policy"]
