"""The task board: its configuration, its state, transitions, guards and chains of blocked tasks."""
