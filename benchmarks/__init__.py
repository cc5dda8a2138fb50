"""What the product costs, as figures and as ratios to what else one could run: ``python -m benchmarks``."""
