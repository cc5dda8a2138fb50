"""Signals: one file for each kind of evidence that a turn brings, and the memory of it."""
