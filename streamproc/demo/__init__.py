"""``streamproc demo``: the whole path on one machine with nothing installed but Python packages."""
