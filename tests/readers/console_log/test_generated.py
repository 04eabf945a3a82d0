"""What is read of a log is what was written: each value, its name, step and time; how many rows aren't understood."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.console_log.generated import LAYOUTS, Training, training
from tests.readers.console_log.test_programs import read, rows
from tests.readers.console_log.test_whole import JUNK, counted
from trackers.records import Metrics, Start


@pytest.fixture(autouse=True, scope="module")
def _utc() -> Iterator[None]:
    """Stamps without a zone are local time; here that is UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def same(found: dict[int, dict[str, float]], due: dict[int, dict[str, float]], about: str) -> None:
    assert found.keys() == due.keys(), about
    for step, values in due.items():
        assert found[step].keys() == values.keys(), (step, about)
        for name, value in values.items():
            got = found[step][name]
            assert math.isclose(got, value, rel_tol=1e-12) or (math.isnan(got) and math.isnan(value)), (
                step,
                name,
                about,
            )


def whole(made: Training) -> None:
    """The log says what was written, and where it went back."""
    records, note = read(made.text)
    same(rows(records), made.kept(), made.text)
    starts = [record.from_step for record in records if isinstance(record, Start)]
    assert starts == [None, *(made.rows[number].step - 1 for number in made.restarts)], made.text
    assert counted(note) == 0, note
    times = made.times()
    for record in records:
        if isinstance(record, Metrics) and times[record.step or 0] is not None:
            assert record.time == times[record.step or 0], made.text


@pytest.mark.parametrize("name", LAYOUTS)
def test_generated_training_is_read_as_it_was_written(name: str) -> None:
    """Optional fields, pauses, gaps between steps and restarts included."""
    for seed in range(6):
        whole(training(name, seed))


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.integers(0, 10**9))
def test_any_generated_training_is_read_as_it_was_written(name: str, seed: int) -> None:
    """The same of many."""
    whole(training(name, seed))


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.integers(0, 10**9), st.data())
def test_lines_of_others_between_rows_change_nothing(name: str, seed: int, data: st.DataObject) -> None:
    """Nor are they counted."""
    made = training(name, seed)
    mixed = []
    for group in made.lines:
        mixed += [data.draw(st.lists(st.sampled_from(JUNK[:-1]), max_size=2)), group]
    made.lines = mixed
    whole(made)


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.integers(0, 10**9), st.data())
def test_row_that_lost_its_end_among_others_is_counted(name: str, seed: int, data: st.DataObject) -> None:
    """It has no value that wasn't written; all others are whole."""
    made = training(name, seed, restart=False)
    place = data.draw(st.integers(2, len(made.lines) - 1))
    line = made.lines[place][-1]
    if name == "olmo":  # its values are on lines of their own, of which any number may follow
        return
    last = max(line.rfind(sign, 0, len(line) - 4) for sign in (":", "=", " ", "/", "("))
    cut = data.draw(st.integers(max(len(line) * 2 // 3, last // 2), last))
    made.lines[place] = [*made.lines[place][:-1], line[:cut]]
    records, note = read(made.text)
    found, due = rows(records), made.kept()
    step = made.rows[place].step
    assert counted(note) == 1, (line[:cut], note)
    for key, value in found.pop(step, {}).items():
        assert str(value) == str(due[step].get(key)) or math.isclose(value, due[step].get(key, math.inf)), (
            line[:cut],
            key,
        )
    same(found, {number: values for number, values in due.items() if number != step}, made.text)


ALONE = ("trainer", "lightning", "ultralytics", "olmo", "bridge")
"""Of these a line is no row by itself, or holds one at its beginning only."""


@pytest.mark.heavy
@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(set(LAYOUTS) - set(ALONE))), st.integers(0, 10**9), st.data())
def test_row_that_another_writes_into_has_none_of_its_values(name: str, seed: int, data: st.DataObject) -> None:
    """Two processes write at once: the first row lost its end and is counted, the second is whole."""
    made = training(name, seed, restart=False)
    place = data.draw(st.integers(2, len(made.lines) - 2))
    line = made.lines[place][-1]
    last = max(line.rfind(sign, 0, len(line) - 4) for sign in (":", "=", " ", "/", "("))
    cut = line[: data.draw(st.integers(max(len(line) * 2 // 3, last // 2), last))]
    if cut[-1].isalpha() or cut[-1] in "_/-":  # a word like any other
        return
    made.lines[place : place + 2] = [[cut + made.lines[place + 1][0]]]
    records, note = read(made.text)
    found, due = rows(records), made.kept()
    step = made.rows[place].step
    assert counted(note) == 1, (made.lines[place], note)
    for key, value in found.pop(step, {}).items():
        written = due[step].get(key, math.inf)
        assert str(value) == str(written) or math.isclose(value, written), (made.lines[place], key)
    same(found, {number: values for number, values in due.items() if number != step}, made.text)
