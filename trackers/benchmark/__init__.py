"""Document 0's result of a benchmark, made of a run's records: by the tracker, the callback and the commands alike."""
