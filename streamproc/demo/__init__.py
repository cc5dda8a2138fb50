"""``streamproc demo``: the whole path on one machine; Python packages are all it needs."""

# Nothing is imported here: `python -m streamproc.demo.broker` must not load the rest of the demo.
__all__: list[str] = []
