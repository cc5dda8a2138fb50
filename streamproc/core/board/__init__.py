"""The task board of a run: its configuration and state, transitions, guards and chains of blocked tasks."""

__all__ = ("chains", "change", "config", "guards", "state", "transitions")
