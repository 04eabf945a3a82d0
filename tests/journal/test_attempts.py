"""What a run's records say, all streams and attempts together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import T0, begun_run
from trackers.journal.attempts import AttemptHistory, results_of_killed
from trackers.journal.run_directory import StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Define, Media, Metrics, Record, Start, Summary, encode


def loss(second: float, value: float) -> Metrics:
    return Metrics(step=int(second), time=T0 + second, values={"loss": value})


@pytest.mark.parametrize(
    ("main", "reduced", "expected"),
    [
        ([Summary(time=T0 + 3, values={"loss": 5.0})], [loss(1, 2.0), loss(2, 1.0)], {}),
        ([Summary(time=T0 + 1.5, values={"loss": 5.0})], [loss(1, 2.0), loss(2, 1.0)], {"final/loss": 1.0}),
        ([Define(time=T0 + 1.5, name="l*", summary=["max"])], [loss(1, 2.0), loss(2, 1.0)], {"final/loss": 2.0}),
        ([Summary(time=T0 + 1, values={"final/loss": 5.0}, derived=True), loss(2, 1.0)], [], {}),
        ([loss(1, 2.0)], [loss(2, 1.0)], {}),
        (
            [
                loss(1, 7.0),
                Summary(time=T0 + 1, values={"loss": 5.0}),
                Define(time=T0 + 1, name="l*", summary=["first"]),
                loss(2, -3.0),
                loss(3, -8.0),
            ],
            [],
            {"final/loss": 7.0},
        ),
    ],
)
def test_results_follow_from_all_streams_in_order_of_time(
    main: list[Record], reduced: list[Record], expected: dict[str, float], tmp_path: Path
) -> None:
    """What was set after the last value stays, though that is in another stream."""
    run, writer = begun_run(tmp_path / "r")
    other = StreamWriter(run.stream(StreamName("reducer", 0, 1)))
    other.write(b"".join(map(encode, [Start(time=T0), *reduced])))
    writer.write(b"".join(map(encode, main)))
    for stream in (writer, other):
        stream.close()
    assert AttemptHistory(run).results() == (expected, [])
    assert [record.values for record in results_of_killed(run, T0 + 9)] == ([expected] if expected else [])


def test_result_that_another_one_of_its_metric_replaced_is_named(tmp_path: Path) -> None:
    """Stores take it out, as a resumed run ends."""
    run, writer = begun_run(tmp_path / "r")
    said = [
        Define(time=T0, name="loss", summary=["min", "max"]),
        loss(1, 2.0),
        Summary(time=T0 + 2, values={"final/loss.min": 2.0, "final/loss.max": 2.0}, derived=True),
        Summary(time=T0 + 3, values={"loss": 5.0}),
        loss(4, 3.0),
    ]
    writer.write(b"".join(map(encode, said)))
    writer.close()
    results, replaced = AttemptHistory(run).results()
    assert (results, sorted(replaced)) == ({"final/loss": 3.0}, ["loss.max", "loss.min"])


def test_last_step_may_have_media_alone(tmp_path: Path) -> None:
    """A picture is of its step as a number is; one that was set as a result is of none."""
    run, writer = begun_run(tmp_path / "r")
    picture = Media(time=T0 + 2, step=5, name="picture", type="image", items=[])
    best = Media(time=T0 + 3, step=9, name="best", type="image", items=[], result=True)
    writer.write(b"".join(map(encode, [loss(1, 2.0), picture, best])))
    writer.close()
    assert AttemptHistory(run).last_step() == 5
