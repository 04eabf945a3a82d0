"""A table in a terminal's width: what fits is whole, texts are cut, numbers never are, nothing is wider."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from trackers.analysis.fitting import fitted, in_parts, truncate
from trackers.analysis.tables import TextTable, format_value, render

HEADERS = ["name", "id", "final/best_val_loss", "final/best_val_accuracy", "trackers"]
ROWS = [
    ["resnet50-lr0.1-batch64-seed0", "8wm2uvmm", 0.2517, 0.90833, "json, wandb waiting 41.2 KB (no answer for 30 s)"],
    ["resnet50-lr0.1-batch64-seed1", "r0h4ec09", 0.24348, 0.92222, "json ✓"],
]


def table(**more: object) -> TextTable:
    """Names, ids, two results with long headers, and a text at the right."""
    return TextTable(HEADERS, ROWS, texts=2, more_texts=frozenset([4]), whole=frozenset([1]), **more)


def bare(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_what_fits_is_printed_as_in_a_pipe() -> None:
    """In a wide terminal the table is the one that a pipe gets, but for bold headers."""
    assert bare(fitted(table(), 200).text) == render(table(), "table")


def test_headers_fold_before_anything_is_cut() -> None:
    """A header that is wider than its column takes several lines, parted at its words; nothing is left out."""
    text, left_out = fitted(table(), 113)
    lines = bare(text).splitlines()
    assert left_out == []
    assert [line.split() for line in lines[:2]] == [["final/", "final/best_"], ["best_val_", "val_"]]
    assert lines[2].split() == ["name", "id", "loss", "accuracy", "trackers"]
    assert lines[3].endswith("json, wandb waiting 41.2 KB (no answer for 30 s)")


def test_texts_are_cut_and_names_in_their_middle() -> None:
    """A narrow terminal cuts texts: reasons at the end, names in the middle; ids and numbers stay whole."""
    text, left_out = fitted(table(), 60)
    assert left_out == []
    cells = re.split(r"  +", bare(text).splitlines()[-2])
    assert cells[0].startswith("resne")
    assert cells[0].endswith("seed0")
    assert "…" in cells[0]
    assert cells[1:4] == ["8wm2uvmm", "0.2517", "0.90833"]
    assert cells[4].startswith("json, wandb")
    assert cells[4].endswith("…")


def test_sign_that_all_is_well_is_never_cut() -> None:
    """Of trackers that have everything, some names may be cut, but not the sign."""
    one = TextTable(
        ["name", "trackers"],
        [
            ["a", "json, tensorboard, mlflow, trackio ✓"],
            ["b", "json waiting 2.1 MB (no answer)"],
            ["c", "wandb not begun 68.9 KB; json ✓"],
        ],
    )
    first, *others = bare(fitted(one, 27).text).splitlines()[1:]
    assert (first.startswith("a     json"), first.endswith("✓")) == (True, True)
    assert [other.endswith("…") for other in others] == [True, True]


def test_column_keeps_the_width_it_needs() -> None:
    """A column may ask for more of its texts; names of rows are cut in their middle."""
    one = TextTable(["run", "a"], [["some/very/long/name/of/a/metric last", 1.0]], least={0: 20})
    assert bare(in_parts(one, 30)).splitlines()[1] == "some/very/lon…a/metric last  1"
    assert fitted(table(least={4: 20}, spare=[2]), 62).left_out == ["final/best_val_loss"]


def test_narrow_column_comes_back_where_a_wide_one_has_gone() -> None:
    """What was left out first is shown all the same, if a column that was left out after it makes the room."""
    one = TextTable(["name", "age", "project"], [["a" * 12, "3 h", "p" * 12]], texts=3, spare=[1, 2])
    assert fitted(one, 20).left_out == ["project"]


def test_columns_without_room_are_left_out_by_name() -> None:
    """What can be spared goes first; then columns at the right; the first column always stays."""
    found = fitted(table(spare=[2]), 52)
    assert found.left_out == ["final/best_val_loss"]
    assert "0.2517" not in found.text
    assert fitted(table(), 12).left_out == HEADERS[1:]


def test_parts_below_each_other_have_all_columns() -> None:
    """Columns that have no room follow below, beside the first column again."""
    one = TextTable(
        ["run", *(f"run-{number}" for number in range(6))], [["loss", *(number / 7 for number in range(6))]]
    )
    text = bare(in_parts(one, 40))
    parts = text.split("\n\n")
    assert [part.split()[0] for part in parts] == ["run"] * len(parts)
    assert len(parts) == 2
    assert [word for part in parts for word in part.splitlines()[0].split()[1:]] == one.headers[1:]
    assert [word for part in parts for word in part.splitlines()[1].split()[1:]] == [
        format_value(n / 7) for n in range(6)
    ]


def test_best_value_is_bold_and_green_or_starred() -> None:
    """The best is marked by colour, where there are none by a star; the other digits stay below each other."""
    marked = table(tones={(1, 2): "best"})
    assert "\x1b[1;32m0.24348\x1b[0m" in fitted(marked, 200).text
    lines = fitted(marked, 200, colored=False).text.splitlines()
    assert "0.24348*" in lines[2]
    assert lines[1].index("0.2517") + len("0.2517") == lines[2].index("0.24348*") + len("0.24348")
    assert "**0.24348**" in render(marked, "markdown")
    assert r"\textbf{0.24348}" in render(marked, "latex")
    assert "*" not in render(marked, "table") + render(marked, "csv")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=5).flatmap(
        lambda headers: st.tuples(
            st.just(headers),
            st.lists(
                st.tuples(*(st.none() | st.text(max_size=30) | st.floats(width=32) for _ in headers)).map(list),
                max_size=3,
            ),
        )
    ),
    st.integers(min_value=40, max_value=120),
)
def test_no_line_is_wider_than_the_terminal(made: tuple[list[str], list[list[object]]], width: int) -> None:
    """Whatever cells and headers hold, lines fit, numbers are whole, and each column is there or named."""
    headers, rows = made
    found = fitted(TextTable(headers, rows), width)
    text = bare(found.text)
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert len(found.left_out) < len(headers)
    if not found.left_out:
        for row in rows:
            assert all(format_value(cell) in text for cell in row if isinstance(cell, float))


@pytest.mark.parametrize(
    ("size", "whole", "middle"),
    [(5, "abcd…", "ab…gh"), (2, "a…", "a…"), (1, "…", "…"), (8, "abcdefgh", "abcdefgh")],
)
def test_cut(size: int, whole: str, middle: str) -> None:
    """A text keeps its head, or its head and its tail."""
    assert (truncate("abcdefgh", size), truncate("abcdefgh", size, middle=True)) == (whole, middle)


def test_cut_of_wide_characters_keeps_the_width() -> None:
    """A character of double width is there or not: the rest stays within the cells."""
    for size in range(1, 8):
        assert cell_len(truncate("漢字漢字漢字", size, middle=True)) <= size
