"""The task board of a run: its configuration and state, transitions and routes, guards and chains of blocked tasks,
failures, holds and owners."""

__all__ = ("chains", "change", "config", "failures", "guards", "holds", "owners", "routes", "state", "transitions")
