"""Checks of the benchmark result that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.directory import FilePrecheck


class BenchmarkPrecheck(FilePrecheck):
    """The benchmark result: its directory."""

    name = "benchmark"
    symbol = "BENCHMARK_DIR"
