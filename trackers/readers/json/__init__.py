"""Training JSON logs as a source."""
