"""A result is the last that the records say, in their order, in every store and whatever the timing."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import os
import random
import signal
import tempfile
import unittest.mock
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

import trackers
from tests import stores
from tests.backends.wandb.support import server
from tests.fakes.wandb_server import WandbServer
from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry
from trackers.backends.shared.append_file import FileShrunk
from trackers.editing import edits
from trackers.journal.attempts import results_of_killed
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader
from trackers.readers import run_data
from trackers.records import Finish, Metrics, Record, Start, Summary
from trackers.testing import Stored
from trackers.tracker import RunInfo, Status

__all__ = ["server"]

NAMES = ("loss", "val/loss", "val/acc")
GLOBS = ("val/*", "*", "val/l*")
NUMBERS = st.integers(-9, 9).map(float)
VALUES = st.dictionaries(st.sampled_from(NAMES), NUMBERS, min_size=1)
WORDS = ("min", "max", "mean", "first", "last", "none", "min,max", "copy", None)
BY_WORD = st.dictionaries(st.sampled_from(("min", "max", "last")), NUMBERS, min_size=1)
SET = st.dictionaries(st.sampled_from((*NAMES, "best")), NUMBERS, min_size=1)
KINDS_OF_EVENTS: tuple[Any, ...] = (
    st.tuples(st.just("log"), VALUES, st.integers(0, 3)),  # by how much the step grows
    st.tuples(st.just("log"), VALUES, st.integers(0, 3)),
    st.tuples(st.just("keep"), VALUES, st.just(0)),
    st.tuples(st.just("set"), SET, st.just(0)),
    st.tuples(st.just("show"), st.sampled_from((*NAMES, "best")), st.integers(1, 9)),
    st.tuples(st.just("words"), st.sampled_from(NAMES), BY_WORD),
    st.tuples(st.just("word"), st.sampled_from(NAMES), st.tuples(st.sampled_from(("min", "max")), NUMBERS)),
    st.tuples(st.just("delete"), st.sampled_from((*NAMES, "best")), st.just(0)),
    st.tuples(st.just("define"), st.sampled_from(NAMES + GLOBS), st.tuples(st.sampled_from(WORDS), st.booleans())),
    st.tuples(st.just("resume"), st.just({}), st.just(0)),
)
EVENTS: Any = st.lists(st.one_of(*KINDS_OF_EVENTS), min_size=1, max_size=14)
BACK: Any = st.tuples(st.just("back"), st.just({}), st.integers(0, 5))
"""Training goes back by so many steps."""
EVENTS_AND_REWINDS: Any = st.lists(st.one_of(*KINDS_OF_EVENTS, BACK), min_size=1, max_size=14)
KINDS = ("", "", "", "", "batch", "batch", "killed", "lost", "paused")
BORDERS = st.lists(st.sampled_from(KINDS), min_size=20, max_size=20)
"""What comes after each record: nothing, a batch's end, a kill of the delivery before its commit, one that loses
what was sent since the last commit, a delivery's end."""
FOUND: list[list[tuple[str, Any, Any]]] = [
    [
        ("define", "*", ("first", True)),
        ("log", {"val/loss": 6.0}, 0),
        ("log", {"val/loss": -2.0}, 0),
        ("define", "val/loss", ("none", True)),
    ],
    [
        ("define", "val/l*", ("first", False)),
        ("log", {"val/loss": 1.0}, 0),
        ("log", {"val/loss": 2.0}, 1),
        ("define", "val/loss", ("copy", True)),
    ],
    [
        ("define", "loss", ("min", False)),
        ("log", {"loss": 1.0}, 0),
        ("log", {"loss": 2.0}, 1),
        ("resume", {}, 0),
        ("define", "loss", (None, True)),
    ],
    [
        ("define", "loss", ("min", False)),
        ("log", {"loss": 1.0}, 0),
        ("define", "loss", ("none", True)),
        ("log", {"loss": 2.0, "val/acc": 1.0}, 1),
        ("define", "val/acc", ("none", False)),
        ("log", {"val/acc": 2.0}, 1),
        ("define", "val/acc", ("copy", True)),
        ("define", "loss", ("copy", True)),
    ],
    [
        ("set", {"val/acc": 5.0}, 0),
        ("define", "*", ("max", False)),
        ("log", {"val/loss": 7.0, "val/acc": -2.0}, 2),
        ("back", {}, 4),
        ("keep", {"val/acc": -1.0}, 0),
    ],
    [
        ("show", "best", 1),
        ("set", {"loss": 5.0}, 0),
        ("show", "val/loss", 2),
        ("show", "val/acc", 3),
        ("log", {"val/acc": 1.0}, 0),
        ("log", {"val/loss": 6.0}, 2),
        ("show", "best", 4),
        ("show", "loss", 5),
        ("show", "val/acc", 6),
        ("back", {}, 1),
    ],
    [
        ("set", {"loss": 3.0}, 0),
        ("log", {"loss": 9.0}, 1),
        ("resume", {}, 0),
        ("set", {"loss": -3.0}, 0),
        ("back", {}, 0),
    ],
    [
        ("log", {"loss": 1.0}, 0),
        ("log", {"loss": 2.0}, 1),
        ("delete", "loss", 0),
        ("set", {"best": 1.0}, 0),
    ],
    [("log", {"loss": 0.0}, 0), ("log", {"loss": 1.0}, 4), ("delete", "loss", 0), ("back", {}, 2)],
    [("log", {"loss": 0.0}, 0), ("log", {"best": 1.0}, 4), ("delete", "loss", 0), ("back", {}, 2)],
    [("log", {"loss": 0.0}, 0), ("delete", "loss", 0), ("log", {"loss": 1.0}, 4), ("back", {}, 2)],
    [("log", {"loss": 0.0}, 0), ("delete", "loss", 0), ("log", {"best": 1.0}, 4), ("back", {}, 2),
     ("log", {"best": 2.0}, 1), ("delete", "best", 0)],
    [("define", "loss", ("max", False)), ("log", {"loss": 3.0}, 0), ("log", {"loss": 4.0}, 4), ("delete", "loss", 0),
     ("back", {}, 2), ("log", {"best": 4.0}, 1)],
    [("log", {"val/loss": -9.0, "loss": -3.0}, 2), ("keep", {"val/acc": -8.0}, 0), ("back", {}, 5),
     ("show", "best", 5)],
]  # fmt: skip
"""Scripts that once left something else: of definitions that ask for less, which take effect at once, of media that are
results, before a step that training goes back to and after it, of a result that is taken back before its row is sent
again, and of results that were deleted before training went back, above its step and not."""
KILLED: list[str] = ["", "", "", "", "", "batch", "lost"] + [""] * 20
"""Where W&B's client once was killed with what a rewind had changed of the summary."""


class Expected:
    """What the calls of a script say.

    Attributes:
        results: the result of each name, a mapping where a definition asks for it. given: names that were set by hand.
    """

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.given: set[str] = set()
        self._asked: dict[str, list[str]] = {}  # words of a metric when its results were found, which keep their names
        self._values: dict[str, list[float]] = {}
        self._exact: dict[str, tuple[list[str], bool]] = {}
        self._globs: dict[str, tuple[list[str], bool]] = {}
        self._by_hand: set[str] = set()
        self._current: set[str] = set()

        self._gone: set[str] = set()

    def log(self, values: Mapping[str, float]) -> None:
        self._gone -= values.keys()
        for name, value in values.items():
            self._values.setdefault(name, []).append(value)
            if name not in self._exact and (found := self._definition(name)) is not None:
                self._exact[name] = found
                self._by_hand.discard(name)
            words, none = self._exact.get(name, ([], False))
            if not none:
                self._current.discard(name)
                self.results[name] = self._aggregates(name) if words and name not in self._by_hand else value

    def set(self, values: Mapping[str, Any]) -> None:
        self.results |= values
        self._gone -= values.keys()
        for names in (self.given, self._by_hand, self._current):
            names.update(values)

    def asks(self, name: str) -> bool:
        """Whether results by word can be set of a metric."""
        return bool((self._exact.get(name) or self._definition(name) or ([], False))[0])

    def delete(self, name: str) -> None:
        self.results.pop(name, None)
        self._gone.add(name)
        for names in (self.given, self._by_hand, self._current):
            names.discard(name)

    def define(self, name: str, summary: str | None, overwrite: bool) -> None:
        kind = self._globs if "*" in name else self._exact
        words, none = ([], False) if overwrite else kind.pop(name, ([], False))
        kind.pop(name, None)
        new = summary.split(",") if summary else []
        words = list(dict.fromkeys([*words, *(word for word in new if word not in ("none", "copy"))]))
        kind[name] = words, "none" in new if new else none
        self._by_hand.discard(name)
        for logged in self._values.keys() - self._current - self._by_hand - self._gone:
            words, none = self._definition(logged) or ([], False)
            if not none:
                self.results[logged] = self._aggregates(logged) if words else self._values[logged][-1]

    def plain(self) -> dict[str, Any]:
        """The results of a store that has no place for last values, nor for several of one name."""
        found: dict[str, Any] = {}
        for name, value in self.results.items():
            if isinstance(value, dict):
                words, none = self._exact.get(name) or self._definition(name) or ([], False)
                one = list(value) == (self._asked.get(name, []) if none and not words else words)
                found |= {name if one and len(value) == 1 else f"{name}.{word}": part for word, part in value.items()}
            elif name in self.given and not isinstance(value, str):  # a medium is kept at its step
                found[name] = value
        return found

    def _definition(self, name: str) -> tuple[list[str], bool] | None:
        matching = [glob for glob in reversed(self._globs) if name.startswith(glob[:-1])]
        return self._exact.get(name) or (self._globs[max(matching, key=len)] if matching else None)

    def _aggregates(self, name: str) -> dict[str, float]:
        values = self._values[name]
        self._asked[name] = self._definition(name)[0]  # type: ignore[index]
        known = {"min": min(values), "max": max(values), "mean": sum(values) / len(values), "first": values[0],
                 "last": values[-1]}  # fmt: skip
        return {word: known[word] for word in self._asked[name]}


class Script:
    """The calls of a script, and what they mean.

    Args:
        in_children: of each call that a child can make, whether a forked one makes it; none of the rest.
    """

    def __init__(self, place: Path, in_children: Sequence[bool] = ()) -> None:
        self.expected = Expected()
        self._place = place
        self._in_children = iter(in_children)
        self._step = 0
        self._said: list[tuple[int, str, tuple[Any, ...]]] = []  # what counts: at which step, of Expected's methods
        self.run = self._begin()

    def _begin(self, resume: str | None = None, step: int | None = None) -> Any:
        return trackers.init("json", project="p", id="r", dir=self._place, mode="offline", resume=resume, step=step)

    def _says(self, method: str, *arguments: Any, step: int | None = None) -> None:
        self._said.append((max(self.run._recorder.step, 0) if step is None else step, method, arguments))
        getattr(self.expected, method)(*arguments)

    def call(self, kind: str, what: Any, how: Any) -> None:
        if kind in ("resume", "back") or not next(self._in_children, False):
            self._call(kind, what, how)
            return
        there = kind == "delete" and what in self.run.summary
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                self._call(kind, what, how)
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        self.run, run = _Silent(self.run, there), self.run
        self._call(kind, what, how)
        self.run = run

    def _call(self, kind: str, what: Any, how: Any) -> None:
        if kind in ("log", "keep"):
            self._step += how
            self.run.log(what, step=self._step, commit=False if kind == "keep" else None)
            self._says("log", what)
        elif kind == "set":
            self.run.summary.update(what)
            self._says("set", what)
        elif kind == "show":
            self.run.summary[what] = trackers.Histogram(np_histogram=([how], [0, 1]))
            self._says("set", {what: f"shown {how}.0"})
        elif kind == "words" and self.expected.asks(what):
            self.run.summary[what] = how
            self._says("set", {what: how})
        elif kind == "word" and isinstance(self.expected.results.get(what), dict):
            self.run.summary[what][how[0]] = how[1]
            self._says("set", {what: {**self.expected.results[what], how[0]: how[1]}})
        elif kind == "delete" and what in self.run.summary:
            del self.run.summary[what]
            self._says("delete", what)
        elif kind == "define":
            self.run.define_metric(what, summary=how[0], overwrite=how[1])
            self._says("define", what, *how, step=-1)
        elif kind == "resume":
            self.run.finish()
            self.run, self._step = self._begin("must"), self._step + 1
        elif kind == "back":
            self._step = max(0, self._step - how)
            self.run.finish()
            self.run, self.expected = self._begin("must", self._step), Expected()
            self._said, said = [], self._said
            for step, method, arguments in said:
                if step <= self._step:
                    self._says(method, *arguments, step=step)


class _Silent:
    """A run that isn't called, for a child has done so. there: whether its summary has the name that is asked for."""

    def __init__(self, run: Any, there: bool) -> None:
        self._recorder = run._recorder
        self.summary = unittest.mock.MagicMock()
        self.summary.__contains__.return_value = there

    def log(self, *values: Any, **more: Any) -> None:
        pass

    define_metric = log


def play(
    events: list[tuple[str, Any, Any]], place: Path, killed: bool, in_children: Sequence[bool] = ()
) -> tuple[list[Record], Expected]:
    """Record the calls of a script, and say what they mean. The records are those of a run that finished, or was
    killed."""
    script = Script(place, in_children)
    for event in events:
        script.call(*event)
    journal = RunDirectory(Path(script.run.path))
    before = len(written(journal))
    derived = results_of_killed(journal, script.run._recorder.now()) if killed else []
    script.run.finish()
    records = written(journal)
    if killed:
        records = [*records[:before], *derived, Finish(time=records[-1].time, status="crashed")]
    return stream(records), script.expected


def written(journal: RunDirectory) -> list[Record]:
    """What training wrote, also what doesn't count any more, as a delivery gets it."""
    streams = [StreamReader(journal.stream(name)) for name in journal.stream_names() if name.writer == "rank"]
    return [record for reader in streams for record in reader.read(10_000)]


@pytest.mark.processes
@pytest.mark.parametrize("resumed", [False, True])
def test_result_of_a_final_name_stands_beside_results_by_word(tmp_path: Path, resumed: bool) -> None:
    """``final/loss`` is no ``loss.min``: it took that and ``loss.max`` away, which W&B kept. Each is read back."""
    run = trackers.init("json", project="p", id="r", dir=tmp_path, mode="offline")
    run.define_metric("loss", summary="min,max")
    run.log({"loss": 3.0}, step=0)
    if resumed:
        run.finish()
        run = trackers.init("json", project="p", id="r", dir=tmp_path, mode="offline", resume="must")
    run.summary["final/loss"] = 42.0
    run.log({"loss": 5.0}, step=1)
    assert dict(run.summary["loss"]) == {"min": 3.0, "max": 5.0}
    assert run.summary["final/loss"] == 42.0
    run.finish()
    expected = {"loss": 42.0, "loss.min": 3.0, "loss.max": 5.0}
    assert run_data.load(str(tmp_path / "p/r")).summary == expected
    run = trackers.init("json", project="p", id="r", dir=tmp_path, mode="offline", resume="must")
    run.summary["loss"] = 1.0  # which replaces all of the metric's, as before
    run.finish()
    assert run_data.load(str(tmp_path / "p/r")).summary == {"loss": 1.0}


@pytest.mark.processes
def test_result_of_a_final_name_is_read_where_a_glob_asks_for_results(tmp_path: Path) -> None:
    """``define_metric("*", summary="min")`` made reading it a KeyError."""
    run = trackers.init("json", project="p", id="r", dir=tmp_path, mode="offline")
    run.define_metric("*", summary="min")
    run.summary["final/acc"] = 1
    run.log({"final/b": 3, "loss": 2.0}, step=0)
    assert (run.summary["final/acc"], run.summary["final/b"], run.summary["acc"]) == (1, 3, 1)
    run.finish()


@pytest.mark.parametrize("killed", [False, True])
def test_value_after_a_medium_that_was_set_is_the_result(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a killed run, too, in which nothing else was set or defined."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    records, expected = play([("show", "val/loss", 2), ("log", {"val/loss": -6.0}, 0)], tmp_path, killed)
    (result,) = [record.values for record in records if isinstance(record, Summary)]
    assert result == {"final/val/loss": -6.0} == {f"final/{name}": value for name, value in expected.plain().items()}


def deliver(make: Callable[[Mapping[str, Any], int], Driver], records: list[Record], borders: list[str]) -> None:
    """Deliver with the batches, kills and pauses that are asked for."""
    run = make({}, 0)
    run.open()
    state, cursor = copy.deepcopy(run.state), run.cursor
    for place, border in enumerate(borders[: len(records) - 1], 1):
        if border == "lost":
            run = make(copy.deepcopy(state), cursor)
            run.open()
        if border in ("batch", "paused", "lost"):
            run.write(records[:place])
            state, cursor = copy.deepcopy(run.state), run.cursor
        elif border == "killed":
            state, cursor = copy.deepcopy(run.state), run.cursor
            run.write(records[:place], commit=False)
            run = make(state, cursor)
            run.open()
        if border == "paused":
            run.close(Status("running", time=records[0].time))
            run = make(run.state, run.cursor)
            run.open()
    run.write(records)
    try:
        run.close()
    except FileShrunk:  # a store that misses what a kill cost it has all delivered again
        run = make(run.state, run.cursor)
        run.open()
        run.write(records)
        run.close()


STORES: dict[str, Callable[[RunInfo], Stored]] = {
    "json": stores.read_json,
    "csv": stores.read_csv,
    "tensorboard": stores.read_tensorboard,
    "trackio": stores.read_trackio,
    "mlflow": stores.read_mlflow,
}


def scripts(check: Any) -> Any:
    """Decorator: give a test generated scripts, and those of :data:`FOUND`."""
    for events in FOUND:
        check = example(events, ["batch", "lost", "paused"] * 7, False)(check)
        check = example(events, KILLED, True)(check)
    return given(EVENTS_AND_REWINDS, BORDERS, st.booleans())(check)


@pytest.mark.heavy
@pytest.mark.parametrize("name", STORES)
def test_last_result_of_a_name_is_the_one_that_is_stored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is logged, set and defined between, of a run that is resumed, finished or killed, and wherever the
    delivery is cut or killed."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    tracker = registry.load(name)
    slow = name in ("mlflow", "trackio", "tensorboard")
    options = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}

    @settings(max_examples=8 if slow else 30, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @scripts
    def check(events: list[tuple[str, Any, Any]], borders: list[str], killed: bool) -> None:
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        records, expected = play(events, place, killed)
        info = run_info(place / "run", id=place.name, options=options)
        deliver(lambda state, cursor: Driver(tracker, info, dict(state), cursor), records, borders)
        stored = {key.removeprefix("final/"): value for key, value in (STORES[name](info).summary or {}).items()}
        own = {key: value for key, value in stored.items() if key.partition(".")[0] in (*NAMES, "best")}
        assert {key: value for key, value in own.items() if value == value} == expected.plain()  # NaN: MLflow's word

    check()


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", [pytest.param("json"), pytest.param("wandb", marks=pytest.mark.slow)])
def test_results_are_those_of_all_processes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the calls are a forked child's, of a run that finished or was killed."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    tracker = registry.load(name)
    bounds = settings(max_examples=25 if name == "json" else 12, deadline=None, database=None,
                      phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip

    @bounds
    @given(EVENTS, st.lists(st.booleans(), min_size=14, max_size=14), st.booleans())
    def check(events: list[tuple[str, Any, Any]], in_children: list[bool], killed: bool) -> None:
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        records, expected = play(events, place, killed, in_children)
        info = run_info(place / "run", id=place.name.replace("_", "x"), options={"WANDB_MODE": "offline"})
        Driver(tracker, info).deliver(records)
        if name == "json":
            stored = {
                key.removeprefix("final/"): value for key, value in (stores.read_json(info).summary or {}).items()
            }
            assert {k: v for k, v in stored.items() if k.partition(".")[0] in (*NAMES, "best")} == expected.plain()
            return
        summary = stores.read_wandb_file(info).summary or {}
        for key, value in summary.items():
            if isinstance(value, dict) and "bins" in value:
                summary[key] = f"shown {float(value['values'][0])}"
        assert {key: value for key, value in summary.items() if key in (*NAMES, "best")} == expected.results

    check()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("mode", "examples", "number"),
    [
        ("offline", 3, 0),
        ("online", 2, 0),
        *(pytest.param("offline", 8, number, marks=pytest.mark.slow) for number in range(1, 6)),
        *(pytest.param("online", 6, number, marks=pytest.mark.slow) for number in range(1, 6)),
    ],
)
def test_result_in_wandb_is_the_one_that_the_calls_say(
    mode: str, examples: int, number: int, server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of metrics that nobody defined or set, where W&B's client is killed with what it hasn't sent yet, and where
    training goes back; and ``_step`` is the step of each row whose names have no earlier value at it (but offline after
    that, where W&B rewinds nothing)."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    tracker = registry.load("wandb")

    phases = [Phase.generate] if number else [Phase.explicit, Phase.generate]

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, phases=phases,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @scripts
    def check(events: list[tuple[str, Any, Any]], borders: list[str], killed: bool) -> None:
        from trackers.backends.wandb import client

        place = Path(tempfile.mkdtemp(dir=tmp_path))
        records, expected = play(events, place, killed)
        info = run_info(place / "run", id=place.name.replace("_", "x"), options={"WANDB_MODE": mode})

        def make(state: Mapping[str, Any], cursor: int) -> Driver:
            client.abandon()
            return Driver(tracker, info, dict(state), cursor)

        deliver(make, records, borders)
        if mode == "online":
            summary, rows = server.runs[info.id].summary, server.runs[info.id].history
        else:
            stored = stores.read_wandb_file(info)
            summary, rows = stored.summary or {}, offline_rows(info)
        for name, value in summary.items():
            if isinstance(value, dict) and "bins" in value:
                summary[name] = f"shown {float(value['values'][0])}"
        assert {name: value for name, value in summary.items() if name in (*NAMES, "best")} == expected.results
        plain = {name: value for name, value in expected.plain().items() if f"final/{name}" in summary}
        assert {name: summary[f"final/{name}"] for name in plain} == plain  # as an attempt's end named it
        seen: dict[int, dict[str, float]] = {}
        kept = -1  # the last step before training went back, whose row is closed
        for record in records:
            if isinstance(record, Start) and record.from_step is not None:
                if mode == "offline":
                    break  # the rows above stay, and those that follow come after them
                kept = record.from_step
                seen = {step: values for step, values in seen.items() if step <= kept}
            elif isinstance(record, Metrics) and record.step is not None and record.step > kept:
                seen[record.step] = {**record.values, **seen.get(record.step, {})}
        by_step = {row["_step"]: row for row in rows}
        for step, values in seen.items():
            row = by_step[step]
            assert (row["global_step"], {name: row.get(name) for name in values}) == (step, values)

    check()


@pytest.mark.heavy
def test_wandb_has_no_result_that_was_set_above_the_step_training_went_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric has again what its definition asks for, and a result that was set before stays."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.setenv("WANDB_MODE", "offline")
    events = [
        ("define", "val/acc", ("max", False)),
        ("log", {"val/acc": 1.0, "loss": 5.0}, 0),
        ("set", {"loss": 2.0}, 0),
        ("log", {"val/acc": 8.0, "val/loss": 8.0}, 2),  # W&B keeps this row offline
        ("set", {"best": 4.0}, 0),
        ("words", "val/acc", {"max": 9.0}),
        ("back", {}, 1),
        ("log", {"val/acc": 2.0}, 1),
    ]
    records, expected = play(events, tmp_path, killed=False)
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    deliver(lambda state, cursor: Driver(registry.load("wandb"), info, dict(state), cursor), records, [])
    summary = stores.read_wandb_file(info).summary or {}
    named = {name: value for name, value in summary.items() if name.partition("/")[0] in ("loss", "val", "best")}
    assert named == {"loss": 2.0, "val/acc": {"max": 2.0}} == expected.results


@pytest.mark.parametrize("last", ["best", "final/best"])
def test_last_of_a_result_and_its_final_name_stays_where_training_goes_back(
    last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are one result: set by the one name, by the other and by the first again, it was the second's after that."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    begin = functools.partial(trackers.init, "json", project="p", id="r", dir=tmp_path, mode="offline")
    run = begin()
    for step, name in enumerate([last, *({"best", "final/best"} - {last}), last, "later"]):
        run.log({"loss": 1.0}, step=step)
        (run.log if name.startswith("final/") else run.summary.update)({name: step})
    run.finish()
    begin(resume="must", step=2).finish()
    assert trackers.load(run.path).summary == {"best": 2}
    records = stream(written(RunDirectory(Path(run.path))))
    for name in ("json", "csv"):
        info = run_info(tmp_path / name)
        Driver(registry.load(name), info).deliver(records)
        found = STORES[name](info).summary or {}
        assert found.get("final/best", found.get("best")) == 2


@pytest.mark.heavy
def test_result_of_texts_is_never_an_earlier_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In W&B, whatever is logged before and after definitions: what these ask for of the values that have it, or
    nothing; a text kept its first value once its maximum was asked for."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    draw = random.Random(41)
    names = [f"m{number}" for number in range(60)]
    values: dict[str, list[Any]] = {name: [] for name in names}
    asked: dict[str, list[str]] = {name: [] for name in names}
    texts = names[::3]
    run = trackers.init("json", project="p", dir=tmp_path, mode="offline")
    for step in range(8):
        for name in draw.sample(names, 15):
            words = draw.sample(("min", "max", "mean", "last"), draw.randint(1, 2))
            asked[name] = list(dict.fromkeys([*asked[name], *words]))
            run.define_metric(name, summary=",".join(words))
        row: dict[str, Any] = {name: draw.choice([1.0, -2.0, 3.0]) for name in draw.sample(names, 40)}
        row |= {
            name: draw.choice(["a", "b", "c"]) for name in row if name in texts or (values[name] and draw.randint(0, 1))
        }
        run.log(row, step=step)
        for name, value in row.items():
            values[name].append(value)
    run.finish()
    expected: dict[str, Any] = {}
    for name in names:
        counted = [value for value in values[name] if isinstance(value, float)]
        known = {"last": values[name][-1]} if values[name] else {}
        if counted:
            known |= {"min": min(counted), "max": max(counted), "mean": pytest.approx(sum(counted) / len(counted))}
        result = {word: known[word] for word in asked[name] if word in known} if asked[name] else known.get("last")
        if result:
            expected[name] = result
    records = stream(written(RunDirectory(Path(run.path))))
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    make = functools.partial(Driver, registry.load("wandb"), info)
    deliver(lambda state, cursor: make(dict(state), cursor), records, ["", "batch", ""] * 20)
    summary = stores.read_wandb_file(info).summary or {}
    assert {name: value for name, value in summary.items() if name in names} == expected


def test_what_is_set_replaces_what_was_logged_under_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, mappings, and what an earlier attempt logged, too: in W&B, which shows last values, and in a script.

    A name with a slash is another one.
    """
    monkeypatch.setenv("TRACKER_RELAY", "n")
    begin = functools.partial(trackers.init, "json", project="p", id="r", dir=tmp_path, mode="offline")
    expected = {"deep": 5, "deeper": 4, "kept": 3, "last": 2, "under": 9, "low/min": 2, "under/a": "text"}
    with begin() as run:
        run.log({"old": 1, "older": "text", "kept": 3, "low": 7, "under/a": "text"}, step=0)
        run.log({"under": {"b": 1, 'c "\\é/d': {"e": 2}, "kept": 4}}, step=0)
    with begin(resume="must") as run:
        run.summary.update({"under": 9, "low": {"min": 2}})
        run.log({"deep": {"x": 1, "y": {"z": 2}}, "deeper": 4, "t": "text", "d": 3}, step=1)
        run.summary.update({"deep": 5, "t": None, "d": {}, "old": None, "older": {}})
        run.log({"last": 2}, step=2)
        assert {name: run.summary[name] for name in run.summary} == expected
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    Driver(registry.load("wandb"), info).deliver(stream(written(RunDirectory(Path(run.path)))))
    summary = stores.read_wandb_file(info).summary or {}
    found = {name: value for name, value in summary.items() if not name.startswith(("_", "global_step", "final/"))}
    assert found == expected


def test_result_that_is_edited_takes_the_place_of_those_by_word_and_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a script sets: of a metric that has several, and of what was set in mappings; others stay."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    with trackers.init("json", project="p", dir=tmp_path, mode="offline") as run:
        run.define_metric("[kl]", summary="min,max")
        run.summary.update({"deep": {"x": 1, "y": {"z": 2}}, "deeper": 3, "own.min": 4})
        run.log({"k": 1, "l": 2}, step=0)
    directory = RunDirectory(Path(run.path))
    edits.add_results(directory, {"k": 7, "deep": 5, "final/own": 6})
    expected = {"k": 7, "deep": 5, "own": 6, "deeper": 3, "own.min": 4}
    assert trackers.load(run.path).summary == {**expected, "l.min": 2, "l.max": 2}
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    streams = [StreamReader(directory.stream(name)) for name in directory.stream_names() if name.writer != "console"]
    Driver(registry.load("wandb"), info).deliver(stream(record for reader in streams for record in reader.read(100)))
    summary = stores.read_wandb_file(info).summary or {}
    found = {name: value for name, value in summary.items() if not name.startswith(("_", "global_step", "final/"))}
    assert {**found, "own": summary["final/own"]} == {**expected, "l": {"min": 2, "max": 2}}
    assert not summary.keys() & {"final/k.min", "final/k.max"}


@pytest.mark.parametrize("name", ["acc", "final/acc"])
def test_result_that_is_edited_leaves_no_old_value_in_wandb(name: str, tmp_path: Path) -> None:
    """By either of its names, where the script set it as ``summary["acc"]``: W&B kept that beside the new one."""
    metrics = Metrics(step=0, time=T0, values={"loss": 1.0})
    records = stream([metrics, Summary(time=T0 + 1, values={"acc": 1.0, "other": 3.0})])
    edited = stream([Summary(time=T0 + 9, values={name: 2.0})], name="edits-0.1", first_seq=3)
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    run = Driver(registry.load("wandb"), info)
    run.deliver(records)
    run.deliver([*records, *edited])
    summary = stores.read_wandb_file(info).summary or {}
    assert (summary["acc"], summary.get("final/acc", 2.0), summary["other"]) == (2.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("calls", "result"),
    [
        ([("log", {"epoch": 5}), ("log", {"epoch": 7})], {"min": 5}),
        ([("log", {"epoch": 5}), ("set", {"epoch": 50}), ("log", {"val/a": 2})], 50),
        ([("log", {"epoch": 5}), ("log", {"val/a": 2}), ("log", {"epoch": 3}), ("log", {"val/a": 1})], {"min": 3}),
    ],
    ids=["minimum", "set", "again"],
)
def test_axis_that_completes_a_row_is_no_new_result(
    calls: list[tuple[str, dict[str, Any]]], result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a step metric has a result of its own in W&B, or one that was set, a row of its metrics leaves it."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", dir=tmp_path, mode="offline")
    run.define_metric("epoch", summary="min")
    run.define_metric("val/*", step_metric="epoch")
    for kind, values in [*calls, ("log", {"val/a": 3})]:
        run.log(values) if kind == "log" else run.summary.update(values)
    run.finish()
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    Driver(registry.load("wandb"), info).deliver(stream(written(RunDirectory(Path(run.path)))))
    assert (stores.read_wandb_file(info).summary or {})["epoch"] == result


def offline_rows(info: RunInfo) -> list[dict[str, Any]]:
    """The rows of a run's offline files."""
    return [
        {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for path in stores.wandb_files(info)
        for record in stores.wandb_records(path)
        if record.WhichOneof("record_type") == "history"
    ]


FIRST_AND_SECOND: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": 3}, {"a": {"q": 1}}, {"a/q": 1}), ({"a": {"q": 1}}, {"a": 3}, {"a": 3}),
    ({"a": {"q": 1, "r": 2}}, {"a": {"q": {"z": 5}}}, {"a/q/z": 5, "a/r": 2}),
    ({"a/q": 1}, {"a": 3}, {"a/q": 1, "a": 3}), ({"a": "text"}, {"a": {"q": 1}}, {"a/q": 1}),
    ({"a": 3}, {"a/q": 1}, {"a/q": 1, "a": 3}),
]  # fmt: skip
"""Values of one name, or with a slash in it, and what is there after both: a mapping that is logged is added."""


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("ways", ["log log", "log set", "set log", "set set"])
@pytest.mark.parametrize(("first", "second", "left"), FIRST_AND_SECOND)
def test_mapping_and_value_of_a_name_take_each_others_place(
    first: dict[str, Any], second: dict[str, Any], left: dict[str, Any], ways: str, resumed: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In what the script reads, in W&B's summary and in the results of every other store; in another attempt, too."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    begin = functools.partial(trackers.init, "json", project="p", id="r", dir=tmp_path, mode="offline", resume="allow")
    if ways.endswith("set") and "a/r" in left:
        left = {"a/q/z": 5}
    run: Any = begin()
    run.log({"b": 0}, step=0)
    for step, (way, values) in enumerate(zip(ways.split(), (first, second), strict=True), 1):
        if resumed and step == 2:
            run.finish()
            run = begin()
        if way == "log":
            run.log(values, step=step)
        else:
            run.summary.update(values)
    assert {name: run.summary[name] for name in run.summary if name != "b"} == left
    run.finish()
    known = {name for name in left if not ways.endswith("log") or name not in _leaves(second)}
    known = {name for name in known if not ways.startswith("log") or name not in _leaves(first)}
    results = run_data.load(str(run.path)).summary
    assert {name: value for name, value in results.items() if name in known or name not in left} == {
        name: left[name] for name in known
    }
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    Driver(registry.load("wandb"), info).deliver(stream(written(RunDirectory(Path(run.path)))))
    summary = stores.read_wandb_file(info).summary or {}
    assert {name: value for name, value in summary.items() if name.startswith("a")} == left


@pytest.mark.parametrize("ways", [" ".join(ways) for ways in itertools.product(("log", "set"), repeat=3)])
@pytest.mark.parametrize(
    ("first", "second", "third", "left"),
    [({"a": {"q": 1}}, {"a": 3}, {"a": {"q": 2}}, {"a/q": 2}), ({"a": 3}, {"a": {"q": 1}}, {"a": 4}, {"a": 4}),
     ({"a": {"q": {"z": 1}}}, {"a": {"q": 3}}, {"a": {"q": {"z": 2}}}, {"a/q/z": 2})],
)  # fmt: skip
@pytest.mark.parametrize("forked", [False, True])
def test_mapping_is_back_in_another_attempt(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any], left: dict[str, Any], ways: str, forked: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each call in an attempt of its own, or the last one in a fork: what came between is no result any more."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    begin = functools.partial(trackers.init, "json", project="p", dir=tmp_path, mode="offline")
    for step, (way, values) in enumerate(zip(ways.split(), (first, second, third), strict=True)):
        fork = forked and step == 2
        with begin(id="fork", fork_from="r@1") if fork else begin(id="r", resume="allow") as run:
            if way == "log":
                run.log({**values, "b": 0}, step=step)
            else:
                run.summary.update(values)
                run.log({"b": 0}, step=step)
            assert {name: run.summary[name] for name in run.summary if name != "b"} == _leaves(values)
    results = run_data.load(str(run.path)).summary
    assert {name: results[name] for name in results if name != "b"} == ({} if ways.endswith("log") else left)
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    Driver(registry.load("wandb"), info).deliver(stream(written(RunDirectory(Path(run.path)))))
    summary = stores.read_wandb_file(info).summary or {}
    assert {name: value for name, value in summary.items() if name.startswith("a")} == left


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "ways",
    [
        "log log log",
        *(pytest.param(ways, marks=pytest.mark.slow) for ways in ("set log log", "log set log", "log log set")),
    ],
)
@pytest.mark.parametrize("who", ["parent child parent", "parent parent child", "child child parent"])
@pytest.mark.parametrize(
    ("first", "second", "third", "left"),
    [({"a": {"q": 1}}, {"a": 3}, {"a": {"q": 2}}, {"a/q": 2}), ({"a": 3}, {"a": {"q": 1}}, {"a": 4}, {"a": 4}),
     ({"a": {"q": {"z": 1}}}, {"a": {"q": 3}}, {"a": {"q": {"z": 2}}}, {"a/q/z": 2}),
     ({"a": {"q": 1}}, {"c": 0}, {"a": 3}, {"a": 3}), ({"a": {"q": 1}}, {"a": {"r": 2}}, {"a": 3}, {"a": 3})],
)  # fmt: skip
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_mapping_of_another_process_has_its_place(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any], left: dict[str, Any], ways: str, who: str,
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Though neither knows what the other one has logged since the fork."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    calls = [*zip(who.split(), ways.split(), (first, second, third), strict=True)]
    run: Any = trackers.init("json", project="p", id="r", dir=tmp_path, mode="offline")
    run.log({"b": 0, "a/other": 5}, step=0)
    turns, done = os.pipe(), os.pipe()
    child = os.fork()

    def call(step: int) -> None:
        (run.log(calls[step][2], step=step + 1) if calls[step][1] == "log" else run.summary.update(calls[step][2]))

    if not child:
        try:
            while turn := os.read(turns[0], 1):
                call(turn[0])
                os.write(done[1], turn)
        finally:
            os._exit(0)
    for step in range(3):
        if calls[step][0] == "parent":
            call(step)
        else:
            os.write(turns[1], bytes([step]))
            os.read(done[0], 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for end in (*turns, *done):
        os.close(end)
    journal = RunDirectory(Path(run.path))
    records = written(journal) + results_of_killed(journal, run._recorder.now())
    run.finish()
    records = records if killed else written(journal)
    info = run_info(tmp_path / "run", options={"WANDB_MODE": "offline"})
    Driver(registry.load("wandb"), info).deliver(stream(records))
    summary = stores.read_wandb_file(info).summary or {}
    found = {name: value for name, value in summary.items() if name.startswith("a")}
    assert found == left | {"a/other": 5}


def _leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by their names, those in mappings joined with slashes."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _leaves(value, f"{prefix}{name}/") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def test_medium_logged_where_a_result_was_set_is_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the rows after it arrive: W&B's client has paths of a class of its own, which no state can hold."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    with trackers.init("json", project="p", id="r", dir=tmp_path, mode="offline") as run:
        run.summary.update({"m": 1, "n": 1})
        run.log({"m": trackers.Html("<b>"), "n": trackers.Html("<i>")}, step=0)
        run.log({"z": 1}, step=1)
        run.summary["n"] = 2
    info = run_info(Path(run.path), options={"WANDB_MODE": "offline"})
    Driver(registry.load("wandb"), info).deliver(stream(written(RunDirectory(Path(run.path)))))
    summary = stores.read_wandb_file(info).summary or {}
    assert (summary["m"]["_type"], summary["n"], summary["z"]) == ("html-file", 2, 1)
