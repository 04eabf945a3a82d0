"""What ``init`` asks of the benchmark result before the first step. Loads nothing else of this tracker."""

from __future__ import annotations

from trackers.backends.shared.file_precheck import FilePrecheck


class BenchmarkPrecheck(FilePrecheck):
    """The benchmark result: its directory."""

    name = "benchmark"
    symbol = "BENCHMARK_DIR"
