"""The benchmark of comparisons runs, and tells apart what was read from what was kept."""

from __future__ import annotations

import pytest

from benchmarks import analysis


@pytest.mark.processes
def test_analysis_benchmark_measures() -> None:
    """Every command answers for every run, twice the same, and each bound of the issue has its figure."""
    figures = {figure.name: figure for figure in analysis.measure(True)}
    assert all(figure.value >= 0 for figure in figures.values())
    bounds = sorted(figure.at_most for figure in figures.values() if figure.at_most is not None)
    assert bounds == [0.5, 1.0, 1.0, 5.0, 1000.0]
