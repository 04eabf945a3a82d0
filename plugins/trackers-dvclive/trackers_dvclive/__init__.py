"""DVCLive as a tracker and a source."""
