"""Hardware samples: taken by a process on each node."""
