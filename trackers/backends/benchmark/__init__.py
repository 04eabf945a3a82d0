"""The benchmark result as a tracker: one JSON file with what a run achieved."""
