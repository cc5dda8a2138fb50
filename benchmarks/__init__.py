"""What streamproc costs, in figures and in ratios to the alternatives: ``python -m benchmarks``."""
