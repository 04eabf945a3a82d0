"""What is read of a log is what was written: each value, its name, step and time; how many rows aren't understood."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_generated import LAYOUTS, Training, training
from test_log_programs import read, rows
from test_log_whole import JUNK, counted

from trackers.errors import NotFound
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
    assert starts == [None, *(step - 1 for step in made.begins())], made.text
    assert counted(note) == 0, note
    times = made.times()
    for record in records:
        trained = isinstance(record, Metrics) and LAYOUTS[made.name].shapes.keys() - made.lacks <= record.values.keys()
        if isinstance(record, Metrics) and trained and times.get(record.step or 0) is not None:
            assert record.time == times[record.step or 0], made.text


@pytest.mark.parametrize("name", LAYOUTS)
def test_generated_training_is_read_as_it_was_written(name: str) -> None:
    """Optional fields, pauses, gaps between steps, evaluations, restarts, prefixes and colours included."""
    for seed in range(6):
        whole(training(name, seed))


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.integers(0, 10**9))
@example("prime", 5443)  # its longest line stands before the only one of its level
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
    made = training(name, seed, plain=True)
    place = data.draw(st.integers(2, len(made.lines) - 1))
    lines = made.lines[place]
    own = len(lines) - (2 if name in ("trainer-redrawn", "trainer-behind") else 1)  # behind it is a bar
    line = lines[own]
    if name == "olmo":  # its values are on lines of their own, of which any number may follow
        return
    last = max(line.rfind(sign, 0, len(line) - 4) for sign in (":", "=", " ", "/", "("))
    cut = data.draw(st.integers(max(len(line) * 2 // 3, last // 2), last))
    if name.startswith("keras") and re.search(r"(?:\.\d{4}|e[-+]\d\d|nan|/step)[ -]*$", line[:cut]):
        return  # a whole line, as those are that come before an epoch's last
    made.lines[place] = [*lines[:own], line[:cut], *lines[own + 1 :]]
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


def ends_anywhere(made: Training, dice: random.Random) -> None:
    """A log that ends in the midst of a line, as a killed job's does, says nothing that wasn't written."""
    content = made.text.encode()
    content = content[: dice.randrange(len(content) // 3, len(content))]
    try:
        found = rows(read(content)[0])
    except NotFound:
        return
    for step, values in found.items():
        for name, value in values.items():
            written = [row.values[name] for row in made.rows if row.step == step and name in row.values]
            same = [math.isclose(value, other) or (math.isnan(value) and math.isnan(other)) for other in written]
            assert any(same), (step, name, value, content[-400:])


@pytest.mark.parametrize("name", LAYOUTS)
def test_log_that_ends_in_mid_row_says_nothing_that_was_not_written(name: str) -> None:
    """Whatever row it is: of training, of an evaluation, or the first after a checkpoint."""
    for seed in range(3):
        ends_anywhere(training(name, seed), random.Random(seed))


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.integers(0, 10**9))
def test_any_log_that_ends_in_mid_row_says_nothing_that_was_not_written(name: str, seed: int) -> None:
    """The same of many."""
    if name == "olmo":  # which evaluation is whose is told by the row behind it alone
        return
    ends_anywhere(training(name, seed), random.Random(seed))


ALONE = (
    "trainer",
    "trainer-redrawn",
    "trainer-behind",
    "lightning",
    "ultralytics",
    "olmo",
    "bridge",
    "keras",
    "keras-2",
    "keras-plain",
)
"""Of these a line is no row by itself, or holds one at its beginning only."""


@pytest.mark.heavy
@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(set(LAYOUTS) - set(ALONE))), st.integers(0, 10**9), st.data())
def test_row_that_another_writes_into_has_none_of_its_values(name: str, seed: int, data: st.DataObject) -> None:
    """Two processes write at once: the first row lost its end and is counted, the second is whole."""
    made = training(name, seed, plain=True)
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
