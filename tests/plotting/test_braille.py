"""Curves in characters: where dots lie, axes of round numbers, colours, marks; any numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.plotting.braille import chart
from trackers.plotting.curve_math import Scale, line
from trackers.plotting.figure import Panel


def drawn(panel: Panel, width: int = 40, height: int = 10) -> list[str]:
    """The lines of a chart without colours."""
    return chart(panel, width, height, lambda style: "red").plain.split("\n")


def panel(*ys: list[float], **more: object) -> Panel:
    """A panel with a line for each list of values."""
    lines = [line(str(k), range(len(y)), y, Scale(smooth=0), style=k) for k, y in enumerate(ys)]
    return Panel("loss", "step", "loss", lines, **more)  # type: ignore[arg-type]


def test_chart_has_title_curve_and_round_axes() -> None:
    """A falling line goes from the upper left to the lower right; each line is as wide as asked for."""
    found = drawn(panel([100.0, 0.0]))
    assert found[1].startswith("100┤")
    assert found[7].startswith("  0┤")
    assert found[1][4] != " "
    assert found[7][-1] != " "
    assert "step" in found[-1]
    assert {len(text) for text in found[1:]} == {40}


def test_two_curves_keep_their_colours() -> None:
    """Each cell has the colour of the curve that it shows."""
    text = chart(panel([0.0, 0.0], [1.0, 1.0]), 40, 10, lambda style: ("red", "blue")[style])
    colours = [span.style for span in text.spans if span.style in ("red", "blue")]
    assert colours == ["blue", "red"]


def test_letters_stand_for_colours() -> None:
    """Without colours each run has a letter."""
    plain = chart(panel([0.0, 0.0], [1.0, 1.0]), 40, 10, None).plain
    assert "aaaa" in plain
    assert "bbbb" in plain


def test_gap_and_marks() -> None:
    """No line crosses a NaN, which is marked, as infinities are."""
    found = drawn(panel([1.0, math.nan, 1.0, math.inf, -math.inf, 1.0, 2.0]))
    assert "▲" in found[1]
    assert "×" in found[7]
    assert "▼" in found[7]


def test_utilisation_reaches_from_zero_to_hundred() -> None:
    """A panel's floor and ceiling are the ends of its axis."""
    found = drawn(panel([95.0, 96.0], floor=0.0, ceiling=100.0))
    assert found[1].startswith("100┤")
    assert found[7].startswith("  0┤")
    assert found[7][5:].strip() == ""


def test_whole_numbers_have_whole_ticks() -> None:
    """An axis of a few steps or epochs has no ticks between them; one of fractions has."""
    found = drawn(panel([0.0, 1.0, 2.0]), 100, 20)
    assert [text.partition("┤")[0].strip() for text in found if "┤" in text] == ["2", "1", "0"]
    assert found[-1].split() == ["0", "1", "step"]
    assert any(text.startswith("0.8┤") for text in drawn(panel([0.0, 1.5]), 100, 20))


def test_constant_value_has_its_own_label_beside_it() -> None:
    """One value is no reason for an axis of others."""
    (row,) = [text for text in drawn(panel([0.2, 0.2])) if "┤" in text]
    assert row.startswith("0.2┤")
    assert row[4] != " "


def test_smallest_number_has_a_logarithmic_axis() -> None:
    """The smallest double, which no factor of 1.2 changes, is drawn."""
    lines = [line("a", [1], [math.ulp(0.0)], Scale(smooth=0, log_y=True))]
    assert any("┤" in text for text in drawn(Panel("loss", "step", lines=lines, log_y=True)))


def test_logarithmic_axis_leaves_out_what_it_has_no_place_for() -> None:
    """Decades are at equal distances; zero and below are not drawn."""
    lines = [line("a", [1, 2, 3, 4], [1.0, 10.0, 100.0, -1.0], Scale(smooth=0, log_y=True))]
    found = drawn(Panel("loss", "step", lines=lines, log_y=True))
    rows = {text.partition("┤")[0].strip(): number for number, text in enumerate(found) if "┤" in text}
    assert list(rows) == ["100", "10", "1"]
    assert rows["10"] - rows["100"] in (rows["1"] - rows["10"], rows["1"] - rows["10"] - 1, rows["1"] - rows["10"] + 1)


def test_smoothed_curve_takes_the_place_of_the_logged_one() -> None:
    """Both in one colour couldn't be told apart."""
    noisy = [float(k % 2) for k in range(200)]
    raw, smooth = (Panel("x", lines=[line("a", range(200), noisy, Scale(smooth=weight))]) for weight in (0.0, 0.99))
    dots = [sum(char >= "\u2800" for row in drawn(one) for char in row) for one in (raw, smooth)]
    assert dots[0] > 3 * dots[1]


def test_empty_panel_says_so() -> None:
    """In as many lines as another."""
    found = drawn(Panel("loss", empty="no values yet"))
    assert found[:2] == ["loss", "no values yet"]
    assert len(found) == 10


@pytest.mark.parametrize("log_y", [False, True])
@given(
    y=st.lists(st.floats(width=64), min_size=1, max_size=30),
    width=st.integers(1, 60),
    height=st.integers(1, 20),
    offset=st.sampled_from([0.0, 1e6, 1e300, -1e300]),
)
def test_any_numbers_are_drawn_in_the_given_size(
    log_y: bool, y: list[float], width: int, height: int, offset: float
) -> None:
    """Never an error, never a line too long, whatever a run logged."""
    x = np.arange(len(y)) + offset
    one = Panel("m", "step", "m", [line("a", x, y, Scale(smooth=0, log_y=log_y))], log_y=log_y)
    found = drawn(one, width, height)
    assert len(found) == max(height, 6)
    assert max(map(len, found)) <= max(width, 24)
