"""MLflow as a source."""
