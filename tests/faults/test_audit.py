"""The audit finds faults: each mutant of the package, and each damage to a store, is seen and counted rightly."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from pathlib import Path

import pytest

from tests.backends.wandb.support import server
from tests.chaos import prepared
from tests.chaos.audit import Findings, Said, audit, read
from tests.chaos.prepared import Journal, deliver, journal
from tests.chaos.script import START_CONFIG, call
from tests.fakes.wandb_server import WandbServer
from trackers.testing import Point, Stored

__all__ = ["journal", "server"]

MUTANTS = {
    "cursor_first": ("trackio", "trackio.log.before=kill:3", "lost"),
    "unrepaired_tail": ("tensorboard", "owned.write.after=kill:4", "doubled"),
    "sent_twice": ("tensorboard", "", "doubled"),
    "new_ids": ("trackio", "trackio.log.after=kill:3", "doubled"),
    "backwards": ("trackio", "", "reordered"),
    "own_clock": ("trackio", "", "wrong_time"),
    "always_finished": ("json", "", "wrong_status"),
    "no_nan": ("trackio", "", "lost"),
}
"""Tracker that shows the mutant's fault, where a delivery dies first, and what the audit must count."""


def deliver_twice(journal: Journal, tracker: str, mutant: str, failpoint: str) -> None:
    """With a mutant at work: one delivery that may die, one to the end."""
    changes = [mutant] if mutant else []
    if failpoint:
        assert deliver(journal, tracker, failpoint=failpoint, changes=changes) == -9
    assert deliver(journal, tracker, changes=changes) == 0, (journal.directory / "output.txt").read_text()


def findings(journal: Journal, tracker: str, **more: object) -> Findings:
    stored = read(tracker, journal.run.read_info(), **more)  # type: ignore[arg-type]
    return audit(tracker, stored, prepared.SEED, journal.said, ["failed"])


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_found(mutant: str, journal: Journal, tmp_path: Path) -> None:
    """A package with this fault fails the audit, which without it passes after the same kill."""
    tracker, failpoint, count = MUTANTS[mutant]
    healthy, faulty = journal.copy(tmp_path / "healthy"), journal.copy(tmp_path / "faulty")
    with pytest.MonkeyPatch.context() as patch:
        for copy, change in ((healthy, ""), (faulty, mutant)):
            patch.setenv("TRACKIO_DIR", str(copy.directory / "trackio"))
            deliver_twice(copy, tracker, change, failpoint)
            found = findings(copy, tracker)
            assert bool(getattr(found, count)) == bool(change), found.lines[:5]
            assert bool(found.total()) == bool(change), found.lines[:5]


@pytest.mark.slow
def test_rows_of_different_steps_taken_for_one_are_found(journal: Journal, server: WandbServer) -> None:
    """Where W&B's rows begin only when a step goes back, the values between are lost, and the audit says so."""
    deliver(journal, "wandb", changes=["shared_rows"])
    found = findings(journal, "wandb", wandb_runs={name: run.dump() for name, run in server.runs.items()})
    assert found.lost


@pytest.mark.slow
def test_rows_that_were_deleted_and_brought_back_lie_where_trackio_shows_them(journal: Journal, tmp_path: Path) -> None:
    """Rows that are sent again come last in trackio's table; read by time, as trackio reads them, all is in order."""
    copy = journal.copy(tmp_path / "copy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(copy.directory / "trackio"))
        deliver(copy, "trackio")
        with contextlib.closing(sqlite3.connect(copy.directory / "trackio/chaos.db")) as base, base:
            base.execute("DELETE FROM metrics WHERE id % 7 = 3")
        assert findings(copy, "trackio").lost
        copy.run.delivery_state("trackio").unlink()
        deliver(copy, "trackio")
        assert findings(copy, "trackio").reordered
        assert not findings(copy, "trackio", deleted=True).total()


def stored_and_said(calls: int = 120) -> tuple[Stored, Said]:
    """A faultless store in memory, and what its training would have said."""
    said, stored = Said(), Stored(status="finished", texts={}, config={**START_CONFIG, "phase": {"changed": 96}})
    stored.summary = {"final/reached": 60}
    assert stored.texts is not None
    for n in range(calls):
        made = call("s", n)
        said.begun[n], said.returned[n] = 1000.0 + n, 1000.1 + n
        for name, value in made.metrics.items():
            stored.metrics.setdefault(name, []).append(Point(made.step, value, 1000.05 + n))
        if made.text:
            stored.texts.setdefault("note", []).append((made.step, made.text))
    said.configs, said.summaries = [96], [60]
    return stored, said


def counts(stored: Stored, said: Said) -> dict[str, int]:
    found = audit("json", stored, "s", said, ["finished"])
    return {name: number for name, number in vars(found).items() if isinstance(number, int) and number}


def test_faultless_store_passes() -> None:
    """Nothing is counted but what is held."""
    assert counts(*stored_and_said()) == {"held": 120}


def test_each_kind_of_damage_is_counted_as_what_it_is() -> None:
    """One call missing, there twice, moved, changed, at another time: one of that kind each, and nothing else."""
    for damage, expected in (
        ("lost", {"held": 119, "lost": 1}),
        ("doubled", {"held": 120, "doubled": 1}),
        ("moved", {"held": 120, "reordered": 1}),
        ("changed", {"held": 119, "lost": 1, "wrong_value": 1}),
        ("late", {"held": 120, "wrong_time": 1}),
    ):
        stored, said = stored_and_said()
        points = stored.metrics["n"]
        if damage == "lost":
            del points[50]
        elif damage == "doubled":
            points.append(points[50])
        elif damage == "moved":
            points.insert(52, points.pop(50))
        elif damage == "changed":
            points[50] = points[50]._replace(value=-5)
        else:
            points[50] = points[50]._replace(time=1051.5)
        found = counts(stored, said)
        if damage == "moved":
            assert set(found) == {"held", "reordered"}
        else:
            assert found == expected, damage


def test_lost_value_of_a_held_record_is_found() -> None:
    """A record that is there without one of its values counts as lost: NaN and infinities too."""
    for n in (17, 51, 85, 99):
        stored, said = stored_and_said()
        value = call("s", n).metrics["y"]
        points = stored.metrics["y"]
        place = next(k for k, p in enumerate(points) if p.value == value or (math.isnan(p.value) and math.isnan(value)))
        del points[place]
        assert counts(stored, said) == {"held": 120, "lost": 1}


def test_lost_settings_and_texts_are_found() -> None:
    """A change of configuration, a result or a text that didn't arrive is found, and so is a wrong status."""
    stored, said = stored_and_said()
    assert stored.config is not None
    assert stored.texts is not None
    stored.config["phase"] = {}
    stored.summary = {}
    stored.status = "running"
    del stored.texts["note"][2]
    assert counts(stored, said) == {"held": 120, "lost": 1, "wrong_value": 2, "wrong_status": 1}


def test_call_that_did_not_return_may_be_there_or_not() -> None:
    """A call in which training was killed is neither lost nor unknown."""
    stored, said = stored_and_said()
    del said.returned[119]
    assert counts(stored, said) == {"held": 120}
    for points in stored.metrics.values():
        if points[-1].time == 1000.05 + 119:
            points.pop()
    assert counts(stored, said) == {"held": 119}
