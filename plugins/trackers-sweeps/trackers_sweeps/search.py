"""Searches: each next point is chosen by the results so far, and runs that fall behind are stopped early.

There is no study that workers share. Each trial is a small file in the sweep's folder, written by whoever has claimed
its point; a worker that chooses a point reads them all. So any number of workers search together, a killed one's trials
are there, and nothing of what others write is run: Optuna's own storages hold pickles.

Points are chosen in unit coordinates, each parameter's share of what is drawn: TPE by Optuna (Bergstra et al., 2011),
CMA-ES by the package that Optuna uses for it (Hansen, 2016). Runs are stopped by asynchronous successive halving (Li et
al., "A System for Massively Parallel Hyperparameter Tuning", 2020), whose rungs are numbers of the metric's values.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, TrackersError, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import last_status
from trackers.journal.stream import StreamReader
from trackers.records import Metrics, Start, Summary, final_name, unnamed_float
from trackers.support import run_requests
from trackers_sweeps.ledger import Ledger
from trackers_sweeps.space import Draw, Halving, Point

METHODS = {"tpe": "optuna", "cmaes": "cmaes"}
"""Ways to choose points, and the package that each needs."""
SIGMA = 0.3
"""First standard deviation of CMA-ES, as a share of each parameter's range."""
TURN = 5000
"""Records that are read of a stream at a time."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How a sweep learns from its runs.

    method: one of :data:`METHODS`; "": the points are given. draws, fixed: the parameters. metric, goal: what is
    minimised ("min") or maximised. halving: when runs are stopped; None: never.
    """

    method: str = ""
    draws: Mapping[str, Draw] = {}
    fixed: Point = {}
    metric: str = ""
    goal: str = "min"
    halving: Halving | None = None


def check(search: Search) -> None:
    """Raise UsageError where a search can't begin."""
    if not search.metric:
        raise UsageError("a search, and runs that are stopped early, need the metric that is compared: --metric NAME")
    if search.method and importlib.util.find_spec(METHODS[search.method]) is None:
        package = METHODS[search.method]
        raise UsageError(f"--search {search.method} needs the package {package}: pip install {package}")
    if search.method and not search.draws:
        raise UsageError("a search needs parameters that are drawn: --param NAME=LOW..HIGH")
    if search.method == "cmaes" and len(search.draws) < 2:
        raise UsageError("CMA-ES needs two parameters or more: --search tpe takes one")
    for name, draw in search.draws.items() if search.method else ():
        if draw.kind == "beta":
            raise UsageError(f"parameter {name}: a beta distribution is drawn at random alone: use uniform")


class Trial(msgspec.Struct, omit_defaults=True):
    """One point and what came of it. units: its coordinates. state: complete, pruned or failed; "" while it is trained.

    value: the result, or of a pruned one its best so far. rungs: the best value at each rung that it has come to.
    generation: of CMA-ES.
    """

    point: Point = {}
    units: dict[str, float] = {}
    state: str = ""
    value: float | None = None
    rungs: dict[int, float] = {}
    generation: int = 0


class Curve:
    """The values of a metric that a run has logged so far, each step once.

    Attributes:
        count: number of values. last: the newest. result: what the run says it came to; None where it doesn't.
        rungs: the best value at each number of values in ``at``.
    """

    def __init__(self, run: RunDirectory, metric: str, goal: str, at: Sequence[int]) -> None:
        self._run, self._metric, self._at = run, metric, frozenset(at)
        self._better = min if goal == "min" else max
        self._readers: dict[str, StreamReader] = {}
        self._steps: set[Any] = set()
        self.count = 0
        self.best: float | None = None
        self.last: float | None = None
        self.result: float | None = None
        self.rungs: dict[int, float] = {}

    def read(self) -> None:
        """Take what is new."""
        for name in self._run.stream_names():
            if name.writer in ("rank", "reducer"):
                reader = self._readers.get(str(name))
                if reader is None:
                    reader = self._readers[str(name)] = StreamReader(self._run.stream(name))
                with contextlib.suppress(OSError):
                    while block := reader.read(TURN):
                        for record in block:
                            self._take(record)

    def _take(self, record: Any) -> None:
        if isinstance(record, Start) and record.from_step is not None:
            self._steps = {step for step in self._steps if not isinstance(step, int) or step <= record.from_step}
        if isinstance(record, Summary):
            for name, value in record.values.items():
                if final_name(name) == final_name(self._metric):
                    self.result = _finite(value)
        if isinstance(record, Metrics) and (value := _finite(record.values.get(self._metric))) is not None:
            self.last = value
            self.best = value if self.best is None else self._better(self.best, value)
            step = record.step if record.step is not None else record.id
            if step not in self._steps:
                self._steps.add(step)
                self.count = max(self.count, len(self._steps))
                if self.count in self._at and self.count not in self.rungs:
                    self.rungs[self.count] = self.best


def _finite(value: Any) -> float | None:
    value = unnamed_float(value)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


class Chooser:
    """The search of one sweep, as one of its workers has it.

    Args:
        ids: of the points, in their order.
    """

    def __init__(self, search: Search, ledger: Ledger, name: str, ids: Sequence[str]) -> None:
        self._search, self._ledger, self._name, self._ids = search, ledger, name, list(ids)
        self._sign = 1.0 if search.goal == "min" else -1.0
        self._ended: dict[int, Trial] = {}
        self._curves: dict[int, Curve] = {}
        self._at = search.halving.rungs() if search.halving is not None else []

    def trial(self, place: int) -> Trial | None:
        """A point's trial, if it was begun."""
        if place in self._ended:
            return self._ended[place]
        with contextlib.suppress(OSError, *UNDECODABLE):
            found = msgspec.json.decode(self._ledger.read_trial(self._ids[place]), type=Trial)
            if found.state and found.state != "pruned":
                self._ended[place] = found
            return found
        return None

    def trials(self) -> dict[int, Trial]:
        """All trials that were begun, by place."""
        return {place: found for place in range(len(self._ids)) if (found := self.trial(place)) is not None}

    def choose(self, place: int, given: Point) -> Point:
        """The point of a place that this worker has claimed: the one that an earlier worker chose, else a new one.

        Raises:
            OSError: it can't be written.
        """
        known = self.trial(place) or Trial()
        if not self._search.method:
            known.point = given
        elif self._is_drawn(known):
            known.point = self._point(known.units)
        else:
            known = self._new(place)
        known.state, known.value, known.rungs = "", None, {}
        self._ended.pop(place, None)
        self._curves.pop(place, None)
        self._write(place, known)
        return known.point

    def _is_drawn(self, trial: Trial) -> bool:
        """Whether its point lies where this search draws: who can write to the folder names no other values."""
        return trial.units.keys() == self._search.draws.keys() and all(0 <= unit <= 1 for unit in trial.units.values())

    def _point(self, units: Mapping[str, float]) -> Point:
        return {**self._search.fixed, **{name: draw.at(units[name]) for name, draw in self._search.draws.items()}}

    def _new(self, place: int) -> Trial:
        seed = int.from_bytes(hashlib.sha256(f"{self._name} {place}".encode()).digest()[:4], "big")
        known = list(filter(self._is_drawn, self.trials().values()))
        generation = 0
        if self._search.method == "tpe":
            units = self._tpe(known, seed)
        else:
            units, generation = self._cmaes(known, seed)
        return Trial(point=self._point(units), units=units, generation=generation)

    def _tpe(self, known: Sequence[Trial], seed: int) -> dict[str, float]:
        import optuna
        from optuna.distributions import FloatDistribution
        from optuna.trial import TrialState, create_trial

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        axes: Any = {name: FloatDistribution(0.0, 1.0) for name in self._search.draws}
        states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "": TrialState.RUNNING}
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(sampler=sampler)
        for trial in known:
            state = states.get(trial.state, TrialState.FAIL)
            ended = state in (TrialState.COMPLETE, TrialState.PRUNED) and trial.value is not None
            rungs = {rung: self._sign * value for rung, value in trial.rungs.items()}
            study.add_trial(
                create_trial(
                    state=state if ended or state is TrialState.RUNNING else TrialState.FAIL,
                    value=self._sign * trial.value if ended and trial.value is not None else None,
                    params=dict(trial.units), distributions=axes, intermediate_values=rungs,
                )
            )  # fmt: skip
        return {name: float(value) for name, value in study.ask(axes).params.items()}

    def _cmaes(self, known: Sequence[Trial], seed: int) -> tuple[dict[str, float], int]:
        """A point of the newest generation: that of which not as many have ended yet as make a generation."""
        import cmaes
        import numpy as np

        names = list(self._search.draws)
        bounds = np.array([[0.0, 1.0]] * len(names))
        optimizer = cmaes.CMA(mean=np.full(len(names), 0.5), sigma=SIGMA, bounds=bounds, seed=0)
        generation = 0
        while True:
            told = [
                (np.array([trial.units[name] for name in names]), self._sign * trial.value)
                for trial in known if trial.generation == generation and trial.value is not None
            ]  # fmt: skip
            if len(told) < optimizer.population_size or optimizer.should_stop():
                break
            optimizer.tell(told[: optimizer.population_size])
            generation += 1
        optimizer.reseed_rng(seed)
        return dict(zip(names, (float(unit) for unit in optimizer.ask()), strict=True)), generation

    def watch(self, place: int, directory: str) -> str:
        """Look at a run that is trained now. Returns why it was asked to stop, or "".

        Raises:
            OSError, TrackersError: what it has logged can't be read, or nothing written.
        """
        trial = self.trial(place)
        curve = self._curve(place, directory)
        curve.read()
        if trial is None or trial.state or not curve.rungs.keys() - trial.rungs.keys():
            return ""
        trial.rungs = dict(curve.rungs)
        why = self._behind(place, trial)
        if why:
            trial.state, trial.value = "pruned", curve.best
            info = RunDirectory(directory).read_info()
            attempt = int(info.attempts[-1].get("number", 1)) if info.attempts else 1
            asked = run_requests.new_request(attempt, stop=True, checkpoint=False, by=f"sweep {self._name}", reason=why)
            run_requests.ask(RunDirectory(directory).path, asked)
        self._write(place, trial)
        return why

    def _behind(self, place: int, trial: Trial) -> str:
        assert self._search.halving is not None
        rung = max(trial.rungs)
        values = [self._sign * other.rungs[rung] for number, other in self.trials().items()
                  if number != place and rung in other.rungs]  # fmt: skip
        if not self._search.halving.is_behind(self._sign * trial.rungs[rung], values):
            return ""
        reached = f"{self._search.metric} {trial.rungs[rung]:.6g} after {rung:,} values"
        return f"{reached} isn't among the best of {len(values) + 1}"

    def ended(self, place: int, directory: str | None, *, failed: bool) -> str:
        """Note what a point came to. Returns what is to be said of it: that it has no value.

        Raises:
            OSError: it can't be written.
        """
        trial = self.trial(place) or Trial()
        curve = None
        if directory is not None:
            curve = self._curve(place, directory)
            with contextlib.suppress(TrackersError):
                curve.read()
            trial.rungs = {**curve.rungs, **trial.rungs}
            pruned = trial.state == "pruned" and last_status(RunDirectory(directory)).name == "stopped"
            value = curve.result if curve.result is not None else curve.last
            trial.state, trial.value = ("pruned", curve.best) if pruned else ("complete", value)
        if failed or trial.value is None:
            trial.state = "failed"
        self._curves.pop(place, None)
        self._write(place, trial)
        return "" if failed or trial.value is not None else f"it logged no {self._search.metric}"

    def _curve(self, place: int, directory: str) -> Curve:
        known = self._curves.get(place)
        if known is None:
            run = RunDirectory(directory)
            known = self._curves[place] = Curve(run, self._search.metric, self._search.goal, self._at)
        return known

    def _write(self, place: int, trial: Trial) -> None:
        self._ledger.write_trial(self._ids[place], msgspec.json.encode(trial))
        if trial.state and trial.state != "pruned":  # that one may still be trained
            self._ended[place] = trial
