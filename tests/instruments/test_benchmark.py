"""The benchmark of instruments runs and says what it measured; how fast they are is for it to tell."""

from __future__ import annotations

import pytest
import torch

from benchmarks import instruments


def test_benchmark_measures_timers_norms_and_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure that has a bound is there, and every figure is a number."""
    threads = torch.get_num_threads()
    monkeypatch.setenv("TRACKER_RELAY", "n")
    figures = {figure.name: figure for figure in instruments.measure(True)}
    torch.set_num_threads(threads)
    bounds = [figure.at_most for figure in figures.values() if figure.at_most is not None]
    assert bounds == [1.0, 1.0, 0.3, 0.1, 1.3]
    assert all(figure.value == figure.value for figure in figures.values())
    assert figures["norms, 1,000 tensors / torch's get_total_norm"].value > 0
