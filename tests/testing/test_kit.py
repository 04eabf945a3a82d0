"""The conformance kit passes a tracker that keeps its promises, and names the fault of each that doesn't."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.broken_trackers import BROKEN, DoublesOnRedelivery, TearsBatches, Whole, read
from trackers.records import Config, Metrics, Start, Summary, Text
from trackers.testing import ConformanceError, Limits, Point, Stored, check_tracker, checks
from trackers.testing.checks import all_checks
from trackers.testing.driver import Driver, number
from trackers.testing.stored import differences, expected, same
from trackers.tracker import RunInfo, Status

FINISHED = Status("finished", 0)


@pytest.mark.slow
def test_whole_tracker_passes_every_check(tmp_path: Path) -> None:
    """A tracker without a fault passes all checks, and none is skipped."""
    report = check_tracker(Whole, read, directory=tmp_path)
    assert report.passed == checks()
    assert report.skipped == {}


@pytest.mark.parametrize(("broken", "check"), BROKEN.items(), ids=lambda item: getattr(item, "__name__", item))
def test_broken_tracker_fails_its_check(broken: type[Whole], check: str, tmp_path: Path) -> None:
    """The check that is about a fault sees it, and says so by name."""
    with pytest.raises(ConformanceError) as caught:
        check_tracker(broken, read, directory=tmp_path, checks=[check])
    assert caught.value.check == check
    assert f"fails the check {check!r}" in str(caught.value)


def test_every_check_is_broken_by_some_tracker() -> None:
    """No check of the kit is idle, but for those that repeat others in a harder way."""
    harder = {"lost_cursor", "older_state", "killed_while_writing"}
    assert set(BROKEN.values()) | harder == set(checks())


@pytest.mark.slow
@pytest.mark.parametrize("check", ["lost_cursor", "older_state", "killed_while_writing"])
def test_tracker_without_a_key_fails_harder_checks(check: str, tmp_path: Path) -> None:
    """A tracker that stores what it gets as often as it gets it is seen after a lost cursor and after a kill."""
    broken = TearsBatches if check == "killed_while_writing" else DoublesOnRedelivery
    with pytest.raises(ConformanceError, match=r"not logged from place|at place"):
        check_tracker(broken, read, directory=tmp_path, checks=[check])


def test_import_of_vendor_at_module_import_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker whose module loads its client package is told which."""
    (tmp_path / "heavy_client.py").write_text("")
    (tmp_path / "heavy_tracker.py").write_text(
        "import heavy_client\nfrom tests.fakes.broken_trackers import Whole\n"
        "class Heavy(Whole):\n    needs = ('heavy_client',)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from heavy_tracker import Heavy  # type: ignore[import-not-found]

    with pytest.raises(ConformanceError, match="found heavy_client imported"):
        check_tracker(Heavy, read, directory=tmp_path, checks=["import"])


@pytest.mark.slow
def test_tracker_inside_training_skips_the_kills(tmp_path: Path) -> None:
    """A tracker that lives in the training process isn't asked to outlive it."""

    class Inside(Whole):
        inside = True

    report = check_tracker(Inside, read, directory=tmp_path)
    assert {"resume", "killed_before_commit", "killed_while_writing"} <= set(report.skipped)
    assert "redelivery" in report.passed


def test_local_class_is_told_to_move(tmp_path: Path) -> None:
    """A class that no other process can import is an error that says what to do."""

    class Local(Whole):
        pass

    with pytest.raises(ConformanceError, match="top level of a module"):
        check_tracker(Local, read, directory=tmp_path, checks=["resume"])


def test_unknown_check_is_refused(tmp_path: Path) -> None:
    """A misspelt check doesn't pass by not being made."""
    with pytest.raises(ValueError, match=r"unknown checks resumee\. Known: import"):
        check_tracker(Whole, read, directory=tmp_path, checks=["resumee"])


def test_reader_that_finds_nothing_fails(tmp_path: Path) -> None:
    """An empty destination is a fault of every check that stores metrics."""
    with pytest.raises(ConformanceError, match=r"metrics that are missing: .*loss"):
        check_tracker(Whole, lambda info, state: Stored(status="finished"), directory=tmp_path, checks=["batches"])


def test_raising_tracker_is_named_with_its_error(tmp_path: Path) -> None:
    """What a tracker or a reader raises becomes part of the message, not a traceback without a check."""

    def broken_read(info: RunInfo, state: object) -> Stored:
        raise KeyError("no such run")

    with pytest.raises(ConformanceError, match="it raised KeyError: 'no such run'"):
        check_tracker(Whole, broken_read, directory=tmp_path, checks=["batches"])


def test_checks_state_their_promise() -> None:
    """Each check has a sentence that a failing author reads."""
    assert all((check.__doc__ or "").endswith(".") for check in all_checks().values())


def test_limits_change_only_what_they_say() -> None:
    """Single precision, doubles, skipped integers and replaced infinities are expected where declared, else not."""
    assert Limits().number(2**70) == 2**70
    assert Limits(big_integers="skipped").number(2**70) is None
    assert Limits(big_integers="float").number(2**70) == float(2**70)
    assert Limits(integers="float").number(2**53 + 1) == 2.0**53
    assert Limits(float32=True).number(0.1) == pytest.approx(0.1, rel=1e-7)
    assert Limits(float32=True).number(0.1) != 0.1
    assert Limits(float32=True).number(1e300) == math.inf
    assert Limits(infinity="max_float").number(-math.inf) == -sys.float_info.max
    assert Limits(infinity="max_float").number(1.5) == 1.5


def test_expected_orders_and_merges_as_declared(tmp_path: Path) -> None:
    """``order`` and ``repeated`` describe destinations that sort by step, or hold one value for each."""
    records = number(Metrics(step=step, time=float(k), values={"a": k}) for k, step in enumerate([0, 2, 1, 2]))
    info = RunInfo(id="x", name="x", project="x", directory=str(tmp_path))

    def steps(limits: Limits) -> list[tuple[int | None, float]]:
        return [(point.step, point.value) for point in expected(info, records, limits, FINISHED).metrics["a"]]

    assert steps(Limits()) == [(0, 0), (2, 1), (1, 2), (2, 3)]
    assert steps(Limits(order="step")) == [(0, 0), (1, 2), (2, 1), (2, 3)]
    assert steps(Limits(order="step", repeated="last")) == [(0, 0), (1, 2), (2, 3)]


def test_values_that_come_again_are_counted_once_while_the_step_stays(tmp_path: Path) -> None:
    """``repeated="once"``: other values are kept, and equal ones after another step, a new attempt or at no step."""
    logged = [(1, 5), (1, 5.0), (1, 6), (1, 5), (2, 5), (1, 5), (None, 7), (None, 7)]
    metrics = [Metrics(step=step, time=float(k), values={"a": value}) for k, (step, value) in enumerate(logged)]
    sample = Metrics(id="sampler-0:1", time=1.5, values={"system.cpu/load_percent": 5.0})
    again = [Metrics(step=1, time=9.0, values={"a": 5}), Metrics(step=1, time=9.5, values={"a": 5})]
    texts = [Text(step=1, time=9.0 + k, values={"t": text}) for k, text in enumerate("xxyx")]
    records = [metrics[0], sample, *metrics[1:], again[0], Start(time=9.0, rank=0), again[1], *texts]
    info = RunInfo(id="x", name="x", project="x", directory=str(tmp_path))
    found = expected(info, records, Limits(repeated="once"), FINISHED)
    assert [(point.step, point.value) for point in found.metrics["a"]] == [
        (1, 5), (1, 6), (2, 5), (1, 5), (None, 7), (None, 7), (1, 5), (1, 5),
    ]  # fmt: skip
    assert [point.value for point in found.metrics["system.cpu/load_percent"]] == [5.0]
    assert found.texts == {"t": [(1, "x"), (1, "y")]}


def test_differences_name_each_kind_of_loss() -> None:
    """Every field of a Stored that differs is one line; those that are None aren't compared."""
    want = Stored(
        {"a": [Point(0, 1.0, 5.0)]}, {"best": 1}, {"lr": 1, "m": {"d": 2}}, {"t": [(0, "x")]}, ["p"], "n", "g", "failed"
    )
    accepts = frozenset({Metrics, Summary, Config, Text})
    found = Stored({"a": [Point(0, 1.0, 6.0)]}, {"best": 2}, {"lr": 1, "m/d": 3}, {}, [], "m", "h", "finished")
    lines = list(differences(want, found, Limits(), accepts))
    assert [line.split(":")[0] for line in lines] == [
        "metric 'a'", "result 'best'", "config 'm/d'", "text 't'", "name", "group", "status", "tags",
    ]  # fmt: skip
    silent = Stored(dict(want.metrics), status="failed")
    assert list(differences(want, silent, Limits(), accepts)) == []
    assert list(differences(want, want, Limits(), accepts)) == []
    assert "status: expected 'failed', found none" in next(differences(want, Stored(want.metrics), Limits(), accepts))


def test_same_knows_nan_and_bools() -> None:
    """NaN equals itself, True equals 1 as a stored number does, and a string never equals a number."""
    assert same(math.nan, math.nan)
    assert same(True, 1.0)
    assert not same("1", 1)
    assert not same(math.nan, 0.0)
    assert same({"a": [math.nan]}, {"a": [math.nan]})


def test_driver_takes_the_destinations_word(tmp_path: Path) -> None:
    """An earlier cursor from ``open`` makes the driver begin there; a later one doesn't make it skip."""

    class Answers(Whole):
        answer = None

        def open(self, info, state):  # type: ignore[no-untyped-def]
            super().open(info, state)
            return self.answer

    info = RunInfo(id="x", name="x", project="x", directory=str(tmp_path))
    driver = Driver(Answers, info, tmp_path / "delivery.json")
    driver.open()
    driver.write(number(Metrics(step=k, time=1.0, values={"a": k}) for k in range(10)), 3)
    driver.close(FINISHED)
    from trackers.tracker import Cursor

    for answer, cursor in ((Cursor(4), 4), (Cursor(9), 4)):
        Answers.answer = answer  # type: ignore[assignment]
        again = Driver(Answers, info, tmp_path / "delivery.json")
        again.open()
        assert again.cursor == cursor
        again.close(FINISHED)


def test_kit_needs_no_pytest() -> None:
    """Plug-in authors may use any test runner: importing the kit loads neither pytest nor a vendor."""
    code = (
        "import sys, trackers.testing; print([m for m in ('pytest', 'numpy', 'wandb', 'mlflow') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
