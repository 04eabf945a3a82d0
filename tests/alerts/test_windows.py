"""Windows over a metric's last values: what each says, against the standard library, and how rules read them."""

from __future__ import annotations

import math
import re
import statistics

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trackers.alerts import windows
from trackers.alerts.rules import parse

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=60)


def of(text: str, values: list[float]) -> float | None:
    """The left side of a rule, over values of ``loss``."""
    (rule,) = parse(f"{text} > 0")
    return windows.value(rule.left, {"loss": values})


@given(NUMBERS)
def test_functions_agree_with_the_standard_library(values: list[float]) -> None:
    """Mean, median, least and largest, deviation, and the slope of a straight line through them."""
    count = len(values)
    close = lambda value: pytest.approx(value, rel=1e-6, abs=1e-6)  # noqa: E731
    assert of(f"mean(loss[{count}])", values) == close(statistics.fmean(values))
    assert of(f"median(loss[{count}])", values) == close(statistics.median(values))
    assert of(f"min(loss[{count}])", values) == min(values)
    assert of(f"max(loss[{count}])", values) == max(values)
    assert of(f"std(loss[{count}])", values) == close(statistics.pstdev(values))
    line = statistics.linear_regression(range(count), values)
    assert of(f"slope(loss[{count}])", values) == close(line.slope)
    assert of(f"quantile(loss[{count}], 0)", values) == min(values)
    assert of(f"quantile(loss[{count}], 1)", values) == max(values)


@given(NUMBERS)
def test_zscore_is_of_the_last_value_against_those_before_it(values: list[float]) -> None:
    """A window of so many values, without the one that is judged."""
    *before, last = values
    assume(statistics.pstdev(before) > 1e-3)
    expected = (last - statistics.fmean(before)) / statistics.pstdev(before)
    assert of(f"zscore(loss[{len(before)}])", values) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert of("zscore(loss[3])", [1.0, 1.0, 1.0, 2.0]) == math.inf
    assert of("zscore(loss[3])", [1.0, 1.0, 1.0, 1.0]) == 0.0


def test_window_that_isnt_full_says_nothing() -> None:
    """Neither in a sum, nor where it would divide by nothing."""
    assert of("mean(loss[4])", [1.0, 2.0, 3.0]) is None
    assert of("mean(loss[2]) + mean(loss[4])", [1.0, 2.0, 3.0]) is None
    assert of("1 / std(loss[3])", [2.0, 2.0, 2.0]) is None
    assert of("mean(loss[2])", [9.0, 1.0, 3.0]) == 2.0


def test_sums_are_read_as_one_writes_them() -> None:
    """Products before sums, from left to right; a name alone is its last value."""
    values = [1.0, 2.0, 3.0, 4.0]
    assert of("1 + 2 * mean(loss[2])", values) == 8.0
    assert of("10 - 2 - max(loss[1])", values) == 4.0
    assert of("8 / 2 / min(loss[3])", values) == 2.0
    (rule,) = parse("loss > 3 * mean(loss[2])")
    assert (rule.kind, rule.names, windows.value(rule.left, {"loss": values})) == ("windows", ("loss",), 4.0)
    (quoted,) = parse('mean("lm loss"[50]) > 2 for 60s every 1h -> stop')
    assert (quoted.names, quoted.hold_s, quoted.actions) == (("lm loss",), 60, ("stop",))
    assert windows.text(parse("quantile(loss[9], 0.5) - 2 > 0")[0].left) == "quantile(loss[9], 0.5) - 2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mean(loss) > 2", "'loss' has no window: mean(loss[50])"),
        ("mean(loss[0]) > 2", "0 is no length of a window: 1 to 10,000"),
        ("slope(loss[1]) > 2", "1 is no length of a window: 2 to 10,000"),
        ("mean(loss[99999]) > 2", "99999 is no length of a window"),
        ("mean(*loss[9]) > 2", "is a pattern: a window is of one metric"),
        ("quantile(loss[9]) > 2", "',' is expected, not ')'"),
        ("quantile(loss[9], 2) > 2", "2 is no share, 0 to 1"),
        ("mean(loss[9]) > 2 * maen(loss[9])", "'maen' is neither a number nor a window"),
        ("mean(loss[9])", "an operator is missing at its end"),
        ("mean(loss[9]) > 2 until 1", "mean takes no 'until'"),
    ],
)
def test_what_cant_be_read_is_said_with_its_place(text: str, message: str) -> None:
    """As of any other rule."""
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(text)


@given(NUMBERS, st.floats(0, 1))
def test_over_ranks_a_window_is_of_the_values_of_one_record(values: list[float], share: float) -> None:
    """A pattern without a length: quantiles as NumPy has them, and what goes with an order is none."""
    (rule,) = parse(f"quantile(step_time/rank_*, {share!r}) > 2 * median(step_time/rank_*)")
    assert (rule.names, windows.lengths(rule.left)) == (("step_time/rank_*",), {"step_time/rank_*": 0})
    found = windows.value(rule.left, {"step_time/rank_*": values})
    assert found == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-6)
    assert windows.value(rule.left, {}) is None
    assert windows.text(rule.right) == "2 * median(step_time/rank_*)"
    (quoted,) = parse('max("step time/rank_*") > 1')
    assert quoted.names == ("step time/rank_*",)
    for text in ("slope(loss/rank_*) > 1", "zscore(loss/rank_*) > 1"):
        with pytest.raises(ValueError, match="has no window"):
            parse(text)
