"""Console logs of training programs as a source, and the benchmark results that they hold."""
