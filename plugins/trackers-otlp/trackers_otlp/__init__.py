"""OpenTelemetry as a tracker: spans to an OTLP endpoint."""
