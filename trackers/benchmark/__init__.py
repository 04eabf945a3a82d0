"""Benchmark results, made from a run's records: by the tracker, the callback and the commands alike."""
