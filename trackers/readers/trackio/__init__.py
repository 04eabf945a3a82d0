"""trackio as a source."""
