"""Console logs of training programs as a source."""
