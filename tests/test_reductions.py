"""Values across ranks: the arithmetic, checked against the statistics of all samples taken together."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trackers
from trackers import All, Max, Mean, Min, MinMax, Std, Sum
from trackers.journal.stream import StreamReader
from trackers.ranks.contribution import ReductionRow
from trackers.records import Metrics, Number, Summary
from trackers.reductions import KINDS, Layout, Norm, Range, Reduction, SampleStd
from trackers.values.device_copy import transfer

samples = st.lists(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=5), min_size=1, max_size=8
)


def reduced(*values: Reduction | None) -> dict[str, Number]:
    """One value, logged on as many ranks as there are reductions; None: not on that rank."""
    layout = Layout(["x"], [next(value.kind for value in values if value is not None)])
    rows = {rank: [None] * layout.width if value is None else list(value.parts) for rank, value in enumerate(values)}
    return layout.reduce(rows)


@pytest.mark.slow
@given(samples)
def test_numbers_are_those_of_all_samples_together(ranks: list[list[float]]) -> None:
    """Mean, sum, extremes and deviation over ranks are those of the pooled samples, however they were shared out."""
    pooled = [value for rank in ranks for value in rank]
    assert reduced(*(Mean(math.fsum(rank), len(rank)) for rank in ranks))["x"] == pytest.approx(
        statistics.fmean(pooled), abs=1e-6
    )
    assert reduced(*(Sum(math.fsum(rank)) for rank in ranks))["x"] == pytest.approx(math.fsum(pooled), abs=1e-6)
    assert reduced(*(Min(min(rank)) for rank in ranks)) == {"x": min(pooled)}
    assert reduced(*(Max(max(rank)) for rank in ranks)) == {"x": max(pooled)}
    both = {"x/min": min(pooled), "x/max": max(pooled)}
    assert reduced(*(MinMax(min(rank), max(rank)) for rank in ranks)) == both
    spreads = [(statistics.fmean(rank), statistics.pvariance(rank) * len(rank), len(rank)) for rank in ranks]
    assert reduced(*(Std(*spread) for spread in spreads))["x"] == pytest.approx(
        statistics.pstdev(pooled), rel=1e-6, abs=1e-4
    )
    sample = reduced(*(SampleStd(*spread) for spread in spreads))["x"]
    assert sample == pytest.approx(
        statistics.stdev(pooled) if len(pooled) > 1 else math.nan, rel=1e-6, abs=1e-4, nan_ok=True
    )
    assert reduced(*(Norm(math.hypot(*rank)) for rank in ranks))["x"] == pytest.approx(math.hypot(*pooled))
    ends = reduced(*(Range(min(rank), max(rank)) for rank in ranks))["x"]
    assert ends == pytest.approx(max(pooled) - min(pooled))


@pytest.mark.heavy
@given(st.permutations(list(range(6))), st.lists(st.floats(-1e300, 1e300), min_size=6, max_size=6))
def test_order_of_ranks_makes_no_difference(order: list[int], values: list[float]) -> None:
    """The same parts give the same bits, in whatever order ranks arrive."""
    for kind in (Mean, Sum, Std, SampleStd, Norm, Range, All, MinMax):
        layout = Layout(["x"], [kind.kind])
        rows = {rank: list(kind(values[rank]).parts) for rank in range(6)}
        shuffled = {rank: rows[rank] for rank in order}
        assert repr(layout.reduce(rows)) == repr(layout.reduce(shuffled))


def test_mean_is_never_a_mean_of_means() -> None:
    """A rank with more samples counts for more; one without any counts for nothing."""
    assert reduced(Mean(30.0, 10), Mean(1.0, 1), Mean(0.0, 0))["x"] == 31 / 11
    assert math.isnan(reduced(Mean(0.0, 0), Mean(0.0, 0))["x"])


def test_all_names_the_ranks() -> None:
    """Every rank's value is kept under its own number, also where some have none."""
    assert reduced(All(1.0), None, All(3.0)) == {"x/rank_0": 1.0, "x/rank_2": 3.0}


def test_nan_and_infinity_stay_visible() -> None:
    """A bad rank shows in the number of all ranks, wherever it stands."""
    nan, inf = math.nan, math.inf
    for kind in (Mean, Sum, Min, Max, Std, Norm, Range, SampleStd):
        assert math.isnan(reduced(kind(1.0), kind(nan))["x"])
        assert math.isnan(reduced(kind(nan), kind(1.0))["x"])
    assert reduced(Max(inf), Max(1.0)) == {"x": inf}
    assert reduced(Min(inf), Min(-inf)) == {"x": -inf}
    assert math.isnan(reduced(Sum(inf), Sum(-inf))["x"])
    assert reduced(Sum(1e308), Sum(1e308)) == {"x": inf}


def test_value_on_no_rank_is_absent() -> None:
    """What no rank has is no number, not 0."""
    assert Layout(["a", "b"], ["mean", "sum"]).reduce({0: [None, None, 2.0]}) == {"b": 2.0}


@pytest.mark.parametrize("kind", KINDS.values())
def test_parts_are_as_wide_as_the_kind_says(kind: Any) -> None:
    """A row's places follow from the kinds alone."""
    assert len(kind(1.0).parts) == kind.width
    assert "1.0" in repr(kind(1.0))


def test_bad_part_leaves_out_one_value() -> None:
    """A reduction of something that isn't a number is named; the others of the call are kept."""
    added = ReductionRow({"a": Max("high"), "b": Mean(2.0, 4), "c": Sum([1])}, transfer)
    assert added.layout.names == ("b",)
    assert added.row({}) == [2.0, 4]
    assert len(added.problems) == 2


def test_value_whose_part_never_arrived_is_not_there() -> None:
    """Half a mean is none."""
    moving = object()
    added = ReductionRow({"a": Mean(1.0, moving), "b": Max(3.0)}, lambda part: part)
    assert added.row({0: 1.0, 2: 3.0}) == [None, None, 3.0]


def test_single_process_records_the_values_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Without other ranks a reduction is its own result, at the step it was logged, beside plain values and results."""
    import numpy as np
    import torch

    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    run.define_metric("loss", summary="min")
    run.log({"loss": Mean(torch.tensor(6.0), np.float32(2)), "lr": 0.1, "t": {"step": MinMax(2, 5)}}, step=3)
    run.log({"loss": Mean(1.0), "final/best": Max(7)}, step=4)
    run.log({"bad": Sum("no")}, step=5)
    run.finish()
    found = StreamReader(Path(run.dir, "streams/rank-0.1.jsonl")).read(100)
    rows = [(record.step, record.values) for record in found if isinstance(record, Metrics)]
    assert rows == [(3, {"loss": 3.0, "lr": 0.1, "t/step/min": 2.0, "t/step/max": 5.0}), (4, {"loss": 1.0})]
    results = [(record.values, record.within) for record in found if isinstance(record, Summary)]
    assert results == [({}, {"t/step": "t"}), ({"final/best": 7.0}, {}), ({"final/loss": 1.0}, {})]
    assert "bad: str can't be recorded" in capfd.readouterr().err
