"""The benchmark of file trackers runs and says what it measured; how fast they are is for it to tell."""

from __future__ import annotations

import pytest

from benchmarks import file_trackers


@pytest.mark.processes
def test_benchmark_measures_each_tracker_and_the_callback() -> None:
    """Every tracker that is there has its figures with their bounds, and nothing is left undelivered."""
    assert {"json", "csv", "benchmark"} <= set(file_trackers.present())
    figures = file_trackers.measure(True, ("benchmark",), records=1000)
    assert [figure.at_least for figure in figures if figure.at_least is not None] == [file_trackers.RATE]
    assert [figure.at_most for figure in figures if figure.at_most is not None] == [2.0, 1.0, 0, 100.0]
    assert figures[-2].value == 0
    assert all(figure.value >= 0 for figure in figures)
