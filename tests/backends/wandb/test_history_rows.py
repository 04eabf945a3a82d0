"""Records as W&B's rows: nothing dropped, nothing twice, whatever comes again."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.backends.wandb.support import metrics
from trackers.backends.wandb.client import WandbSession
from trackers.backends.wandb.history_rows import (
    MOST_RESTART_POINTS,
    DestinationRow,
    DestinationRows,
    HistoryComparison,
    HistoryRow,
    HistoryRows,
    RestartPoint,
    add_restart_point,
    newest_restart_point,
    row_values,
    word,
)
from trackers.records import Metrics, Record

RECORDS = st.lists(
    st.tuples(st.none() | st.integers(0, 6), st.sets(st.sampled_from("abc"), min_size=1)), min_size=1, max_size=30
)


def built(records: list[Record], **fields: Any) -> list[HistoryRow]:
    rows: list[HistoryRow] = []
    builder = HistoryRows(rows.append, **fields)
    for record in records:
        assert isinstance(record, Metrics)
        builder.add(record, row_values(record))
    builder.finish()
    return rows


def destination_row(row: HistoryRow) -> DestinationRow:
    return DestinationRow(row.number, row.step, row.time, frozenset({*row.values, "_step", "_timestamp", "_runtime"}))


@pytest.mark.slow
@given(RECORDS)
def test_rows_keep_every_value_in_order_with_rising_steps(shape: list[tuple[int | None, set[str]]]) -> None:
    """Whatever the steps: every value lies in one row, in order, and W&B's steps rise, never below the training's."""
    records = metrics(*((step, {name: float(place) for name in names}) for place, (step, names) in enumerate(shape)))
    rows = built(records)
    assert sum(len(row.values) for row in rows) == sum(len(names) for _, names in shape)
    numbers = [row.number for row in rows]
    assert numbers == sorted(set(numbers))
    assert all(row.number >= (row.step or 0) for row in rows)


CALLS = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1), max_size=3)


@given(st.lists(CALLS, max_size=30), st.integers(1, 3), st.data())
def test_row_of_a_growing_step_has_its_number_whatever_comes_twice(
    steps: list[list[dict[str, int]]], apart: int, data: st.DataObject
) -> None:
    """The first value of a name at a step is in the row of that number, also after a restart; each other one that
    differs lies in a row after it, once."""
    shape = [(number * apart, values) for number, calls in enumerate(steps) for values in calls]
    records = metrics(*((step, dict(values)) for step, values in shape))
    rows: list[HistoryRow] = []
    builder, marks = HistoryRows(rows.append), []
    for record in records:
        assert isinstance(record, Metrics)
        builder.add(record, row_values(record))
        marks.append(builder.restart_point(record.seq))
    builder.finish()
    held = data.draw(st.sampled_from([-1, *(row.number for row in rows)]))
    mark = data.draw(st.sampled_from([RestartPoint(0, -1), *(mark for mark in marks if mark.last <= held)]))
    there = [row for row in rows if row.number <= held]
    held_rows = DestinationRows(destination_row(row) for row in there if row.number >= mark.first)
    again = built([record for record in records if record.seq > mark.seq], last=held, destination=held_rows, begin=mark)
    for final in (rows, there + again):
        by_number = {row.number: row for row in final}
        assert len(by_number) == len(final)
        for number, calls in enumerate(steps):
            first = {name: value for values in reversed(calls) for name, value in values.items()}
            if first:
                row = by_number[number * apart]
                assert (row.step, row.values) == (number * apart, first)
        differing = {name: [] for name in "abc"}
        for number, calls in enumerate(steps):
            for name in "abc":
                values = [value for call in calls for given, value in call.items() if given == name]
                later = [value for value in values if value != values[0]]
                differing[name] += [(number * apart, value) for value in later]
        extra = [row for row in final if row.number != row.step or by_number[row.number] is not row]
        assert all(row.step is not None and row.number > row.step for row in extra)
        for name in "abc":
            found = [(row.step, row.values[name]) for row in extra if name in row.values]
            assert set(found) == set(differing[name])


@given(st.lists(st.integers(0, 12), max_size=30))
@example([5, 4, 4, 4, 5])
@example([0, 6, 0, 0, 2, 10])
def test_values_of_steps_that_were_passed_stay_in_order(steps: list[int]) -> None:
    """Calls whose step an earlier call had, or lies behind it, are in order; those of growing steps too."""
    rows = built(metrics(*((step, {"a": float(call)}) for call, step in enumerate(steps))))
    stored = [int(row.values["a"]) for row in rows]
    late = {call for call, step in enumerate(steps) if step <= max(steps[:call], default=-1)}
    assert sorted(stored) == list(range(len(steps)))
    for some in (late, set(stored) - late):
        assert [call for call in stored if call in some] == sorted(some)


def test_step_that_leaves_no_room_above_costs_no_later_row() -> None:
    """A step at the end of 64 bits, of an older journal or another source, keeps its row and every later one."""
    rows = built(metrics((3, {"a": 1.0}), (2**63 - 1, {"a": 2.0}), (5, {"a": 3.0}), (None, {"a": 4.0})))
    assert [(row.number, row.step, row.values["a"]) for row in rows] == [
        (3, 3, 1.0), (4, 2**63 - 1, 2.0), (5, 5, 3.0), (6, None, 4.0),
    ]  # fmt: skip


@pytest.mark.slow
@given(RECORDS, st.data())
def test_rows_built_again_complete_what_the_destination_holds(
    shape: list[tuple[int | None, set[str]]], data: st.DataObject
) -> None:
    """Sent early or not, lost from any row on, begun again at any mark that is left: each value lies there once."""
    records = metrics(*((step, {name: float(place) for name in names}) for place, (step, names) in enumerate(shape)))
    rows: list[HistoryRow] = []
    builder = HistoryRows(rows.append)
    marks = []
    for record in records:
        assert isinstance(record, Metrics)
        builder.add(record, row_values(record))
        marks.append(builder.restart_point(record.seq))
        if data.draw(st.booleans()):
            builder.flush()
    builder.finish()
    held = data.draw(st.sampled_from([-1, *(row.number for row in rows)]))
    there = [row for row in rows if row.number <= held]
    mark = data.draw(st.sampled_from([RestartPoint(0, -1), *(mark for mark in marks if mark.last <= held)]))
    held_rows = DestinationRows(destination_row(row) for row in there if row.number >= mark.first)
    again = built([record for record in records if record.seq > mark.seq], last=held, destination=held_rows, begin=mark)
    assert all(row.number > held for row in again)
    final = there + again
    assert [row.number for row in final] == sorted({row.number for row in final})
    found = sorted((name, value) for row in final for name, value in row.values.items())
    assert found == sorted((name, float(place)) for place, (_, names) in enumerate(shape) for name in names)


VALUES = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.sampled_from([-1.0, -2.0, "NaN", "text"]))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1)), st.data())
def test_values_that_the_destination_has_otherwise_are_counted_and_sent(
    shape: dict[int, dict[str, Any]], data: st.DataObject
) -> None:
    """What is gone and what is changed is counted, and there once everything was sent; a second look finds nothing."""
    records = metrics(
        *((step, dict(part)) for step, values in sorted(shape.items())
          for part in (list(values.items())[:2], list(values.items())[2:]) if part)
    )  # fmt: skip
    destination = {row.number: row for row in built(records)}
    missing = changed = 0
    for number in sorted(destination):
        fate = data.draw(st.sampled_from(["there", "gone", "changed"]))
        if fate == "gone":
            missing += len(destination.pop(number).values)
        elif fate == "changed":
            name = data.draw(st.sampled_from(sorted(destination[number].values)))
            destination[number].values[name] = "another"
            changed += 1

    def there() -> list[DestinationRow]:
        rows = []
        for row in destination.values():
            stored = json.loads(json.dumps(row.values))
            words = {name: word(value) for name, value in stored.items()}
            rows.append(DestinationRow(row.number, row.step, row.time, frozenset(words), words))
        return rows

    for wanted in ((missing, changed), (0, 0)):
        comparison = HistoryComparison()

        def send(row: HistoryRow, comparison: HistoryComparison = comparison) -> None:
            if not row.held:
                comparison.send(row)
                destination[row.number] = row

        last = max(destination, default=-1)
        builder = HistoryRows(send, last, DestinationRows(there()), comparison=comparison)
        for record in records:
            assert isinstance(record, Metrics)
            builder.add(record, row_values(record))
        builder.finish()
        comparison.settle(there())
        assert (comparison.missing, comparison.changed, comparison.restored) == (*wanted, sum(wanted))


CLOSE = st.lists(
    st.tuples(st.integers(0, 1), st.sets(st.sampled_from("nxy"), min_size=1), st.integers(0, 700)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@example([(0, {"n", "x"}, 462), (0, {"n", "x", "y"}, 20), (0, {"n", "x"}, 37), (0, {"w"}, 0)], set(), set())
@example([(0, {"n", "x"}, 41), (0, {"n"}, 161), (0, {"n"}, 298), (0, {"n", "x", "y"}, 0)], {0, 1}, set())
@given(CLOSE, st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_second_values_at_a_step_are_found_whatever_their_times(
    shape: list[tuple[int, set[str], int]], spoilt: set[int], gone: set[int]
) -> None:
    """Calls some microseconds apart, of which the rows' times tell less than their values: what is there isn't sent
    again, and of what is changed or gone each value once."""
    step, time, records = 5, 1e9, []
    for place, (more, names, wait) in enumerate(shape):
        step, time = step + more, time + wait / 1e6
        records.append(Metrics(seq=place + 1, step=step, time=time, values=dict.fromkeys(names, place + 0.5)))
    destination = {row.number: row for row in built(records)}  # type: ignore[arg-type]
    places = [(number, name) for number, row in sorted(destination.items()) for name in row.values]
    changed, missing = [{places[number] for number in some if number < len(places)} for some in (spoilt - gone, gone)]
    for number, name in changed:
        destination[number].values[name] = "another"
    for number, name in missing:
        del destination[number].values[name]

    def there() -> list[DestinationRow]:
        return [
            DestinationRow(row.number, row.step, row.time, frozenset(row.values),
                           {name: word(value) for name, value in row.values.items()})
            for _, row in sorted(destination.items())
        ]  # type: ignore[misc]  # fmt: skip

    for wanted in (len(changed) + len(missing), 0):
        sent: list[HistoryRow] = []
        last, comparison = max(destination), HistoryComparison()
        builder = HistoryRows(sent.append, last, DestinationRows(there()), comparison=comparison)
        for record in records:
            builder.add(record, row_values(record))
        builder.finish()
        assert sum(len(row.values) for row in sent) == wanted
        destination.update({row.number: row for row in sent})
    found = sorted(
        (name, value) for row in destination.values() for name, value in row.values.items() if value != "another"
    )
    assert found == sorted((name, value) for record in records for name, value in record.values.items())


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=300), st.integers(-1, 400))
def test_marks_stay_few_and_never_skip_a_row(steps: list[tuple[int, int]], held: int) -> None:
    """However many marks are taken, few are kept, and the one to resume from has no row unknown to the destination."""
    marks: list[RestartPoint] = []
    seq, last = 0, -1
    for more, rows in steps:
        seq, last = seq + more, last + rows
        add_restart_point(marks, RestartPoint(seq, last))
    assert len(marks) <= MOST_RESTART_POINTS
    mark = newest_restart_point(marks, held)
    assert mark.last <= held
    assert mark == RestartPoint(0, -1) or mark in marks


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["train", "train", "train", "sample", "other"]),
        st.sets(st.sampled_from("abc"), min_size=1),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=40,
)


def streams_of(events: list[tuple[str, set[str], int, int]]) -> dict[str, list[Metrics]]:
    """Training, a sampler and late values with steps of their own, each in order of time; a time is unique."""
    found: dict[str, list[Metrics]] = {}
    step = 0
    for place, (kind, names, more, back) in enumerate(events):
        step += more if kind == "train" else 0
        prefix = {"train": "", "sample": "system/", "other": "val/"}[kind]
        values = {prefix + name: float(place) for name in names}
        at = None if kind == "sample" else step if kind == "train" else max(0, step - back)
        stream = {"train": "rank-0.1", "sample": "sampler-0.1", "other": "node-0.1"}[kind]
        record = Metrics(step=at, time=1e9 + place + back / 10, values=values, id=f"{stream}:{place}")
        found.setdefault(stream, []).append(record)
    return found


def interleaved(streams: dict[str, list[Metrics]], choose: Callable[[list[str]], str]) -> list[Metrics]:
    """One order of all records, in which each stream keeps its own."""
    left = {name: list(records) for name, records in streams.items()}
    found = []
    while any(left.values()):
        name = choose(sorted(name for name, records in left.items() if records))
        found.append(msgspec.structs.replace(left[name].pop(0), seq=len(found) + 1))
    return found


@given(EVENTS, st.data())
def test_rows_delivered_again_in_any_order_are_the_same(
    events: list[tuple[str, set[str], int, int]], data: st.DataObject
) -> None:
    """All state lost, the order of the streams too, the destination at any row, and cut off again: each value once."""
    streams = streams_of(events)
    destination: list[HistoryRow] = []

    def deliver(records: list[Metrics], stop: int, mark: RestartPoint | None = None) -> list[RestartPoint]:
        last = max((row.number for row in destination), default=-1)
        begin = mark or RestartPoint(0, -1)
        there = DestinationRows(destination_row(row) for row in destination if row.number >= begin.first)
        builder = HistoryRows(destination.append, last, there, begin)
        marks = []
        for record in records[:stop]:
            if record.seq > begin.seq:
                builder.add(record, row_values(record))
                if data.draw(st.integers(0, 3)) == 0:
                    builder.flush()
                marks.append(builder.restart_point(record.seq))
        builder.flush() if stop < len(records) else builder.finish()
        return marks

    live = interleaved(streams, lambda names: data.draw(st.sampled_from(names)))
    deliver(live, data.draw(st.integers(0, len(live))))
    del destination[data.draw(st.integers(0, len(destination))) :]
    anew = interleaved(streams, lambda names: min(names, key=lambda name: (name != "node-0.1", name)))
    marks = deliver(anew, data.draw(st.integers(0, len(anew))))
    del destination[data.draw(st.integers(0, len(destination))) :]
    last = max((row.number for row in destination), default=-1)
    deliver(
        anew,
        len(anew),
        data.draw(st.sampled_from([RestartPoint(0, -1), *(mark for mark in marks if mark.last <= last)])),
    )
    deliver(anew, len(anew))
    assert [row.number for row in destination] == sorted({row.number for row in destination})
    found = sorted((name, value) for row in destination for name, value in row.values.items())
    wanted = sorted((name, value) for records in streams.values() for r in records for name, value in r.values.items())
    assert found == wanted


@given(st.sets(st.integers(0, 3000) | st.integers(0, 2**53), max_size=30), st.integers(0, 2500), st.integers(0, 2**40))
@example(set(), 362, 594_862_388_263)
def test_rows_of_any_steps_are_fetched_in_few_requests(sparse: set[int], dense: int, begin: int) -> None:
    """Steps that count tokens lie far apart: each row comes once, in order, and gaps cost few requests."""
    steps = sorted(sparse | set(range(begin, begin + dense)))
    asked = []

    def answer(query: str, limits: dict[str, Any]) -> dict[str, Any]:
        asked.append(limits)
        there = [step for step in steps if limits["minStep"] <= step < limits["maxStep"]]
        sampled = there[:: -(-len(there) // limits["pageSize"]) or 1]  # as W&B answers where there are more
        return {"project": {"run": {"history": [json.dumps({"_step": step}) for step in sampled]}}}

    session = WandbSession.__new__(WandbSession)
    session.run = SimpleNamespace(entity="e", project="p", id="r")
    session._ask = answer  # type: ignore[method-assign]
    assert [row["_step"] for row in session.rows(0, max(steps, default=-1))] == steps
    assert len(asked) < 40 * (len(sparse) + 2) + dense // 100
