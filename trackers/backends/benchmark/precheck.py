"""Checks of the benchmark result that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from typing import ClassVar

from trackers.backends.shared.directory import FilePrecheck


class BenchmarkPrecheck(FilePrecheck):
    """The benchmark result: its directory."""

    name = "benchmark"
    symbol = "BENCHMARK_DIR"
    unedited: ClassVar[dict[str, str]] = dict.fromkeys(
        ("name", "tags", "notes", "group"), "a benchmark's result keeps the name that was benchmarked"
    )
