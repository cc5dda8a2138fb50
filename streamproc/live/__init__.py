"""The whole product in one process, without a broker: `streamproc up`, and the hooks of coding CLIs that it answers."""
