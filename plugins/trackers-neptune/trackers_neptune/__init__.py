"""Neptune's exports as a source."""
