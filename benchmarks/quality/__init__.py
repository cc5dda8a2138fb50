"""How well the engine tells stuck from honest, measured on labelled traces: ``python -m benchmarks.quality``."""
