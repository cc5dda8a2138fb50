"""Measure how well the engine separates stuck from healthy runs: ``python -m benchmarks.quality``."""
