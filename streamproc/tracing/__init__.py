"""OpenTelemetry's traces: the span that a turn comes from, and the spans of halts and guards.

Nothing here imports OpenTelemetry: a program that has spans has imported it.
"""
