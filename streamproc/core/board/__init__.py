"""The task board of a run: its configuration and state, transitions, guards and chains of blocked tasks,
holds and owners."""

__all__ = ("chains", "change", "config", "guards", "holds", "owners", "state", "transitions")
