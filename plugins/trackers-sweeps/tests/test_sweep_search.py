"""Searches: how points are chosen, by several workers and after kills, and which runs are stopped early."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trackers_sweeps.ledger import Ledger
from trackers_sweeps.plan import SweepPlan, SweepWords, planned
from trackers_sweeps.program import Sweep, results, table
from trackers_sweeps.search import Chooser, Curve, Search, Trial
from trackers_sweeps.space import Draw, Halving

import trackers
from tests.helpers import wait_for
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.journal.status import last_status

DRAWS = {"x": Draw("uniform", -5.0, 5.0), "y": Draw("uniform", -5.0, 5.0)}
SHARES = st.floats(0, 1)


def bowl(point: dict[str, Any]) -> float:
    """Its least value is 0, at (0.3, -1)."""
    return float((point["x"] - 0.3) ** 2 + (point["y"] + 1) ** 2)


@given(st.floats(-5, 5), st.floats(0.1, 5), SHARES, SHARES)
def test_shares_grow_with_their_values_and_stay_inside(low: float, size: float, one: float, other: float) -> None:
    """Of each distribution; whole numbers and steps are such, and a choice has its weights."""
    for draw in (
        Draw("uniform", low, low + size), Draw("uniform", -3, 4, whole=True), Draw("log_uniform", 1e-4, size),
        Draw("inv_log_uniform", 1e-4, size), Draw("normal", low, size), Draw("log_normal", 0, 1),
    ):  # fmt: skip
        first, second = draw.at(min(one, other)), draw.at(max(one, other))
        assert first <= second
        if not draw.kind.endswith("normal"):
            assert draw.low - 1e-5 * abs(draw.low) <= first <= second <= draw.high + 1e-5 * abs(draw.high)
    assert Draw("normal", low, size).at(0.5) == pytest.approx(low, rel=1e-5, abs=1e-9)
    assert Draw("log_uniform", 1e-4, 1.0).at(0.5) == pytest.approx(1e-2)
    assert Draw("uniform", 0, 100, step=10).at(one) in range(0, 101, 10)
    whole = Draw("uniform", 1, 5, whole=True)
    assert [whole.at(share) for share in (0, 0.19, 0.21, 0.99, 1)] == [1, 1, 2, 5, 5]
    choice = Draw("choice", values=[None, "b"], weights=[9.0, 1.0])
    assert [choice.at(share) for share in (0, 0.89, 0.91, 1)] == [None, None, "b", "b"]


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 3), st.integers(2, 4), st.lists(st.lists(st.integers(-20, 20), min_size=1, max_size=20), max_size=12)
)
def test_runs_are_stopped_as_by_optunas_pruner(least: int, eta: int, curves: list[list[int]]) -> None:
    """Runs one after the other, each stopped at the first rung where its best value so far is behind."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner(least, eta))
    halving, seen = Halving(least, float(eta)), dict[int, list[float]]()
    rungs = halving.rungs()
    for curve in curves:
        trial, expected, stopped = study.ask(), 0, 0
        for count in range(1, len(curve) + 1):
            best = float(min(curve[:count]))
            trial.report(best, count)
            expected = expected or count * trial.should_prune()
            if count in rungs and not stopped:
                stopped = count * halving.is_behind(best, seen.setdefault(count, []))
                seen[count].append(best)
            if expected or stopped:
                break
        assert stopped == expected
        study.tell(trial, state=optuna.trial.TrialState.PRUNED if expected else optuna.trial.TrialState.FAIL)


def chooser(folder: Path, count: int, **search: Any) -> Chooser:
    """One worker of a search."""
    ledger = Ledger(folder, "bowl")
    ledger.begin(shared=True)
    made: dict[str, Any] = {"method": "tpe", "draws": DRAWS, "fixed": {"depth": 2}, "metric": "loss", **search}
    return Chooser(Search(**made), ledger, "bowl", [f"p{number}" for number in range(count)])


def end(one: Chooser, place: int, value: float | None, state: str = "complete") -> None:
    """What a point came to."""
    trial = one.trial(place)
    assert trial is not None
    trial.state, trial.value = state, value
    one._write(place, trial)


@pytest.mark.heavy
@pytest.mark.parametrize("method", ["tpe", "cmaes"])
@pytest.mark.parametrize("goal", ["min", "max"])
def test_three_workers_find_what_chance_does_not(method: str, goal: str, tmp_path: Path) -> None:
    """They know of each other's points by files alone; one point fails, and one is stopped early."""
    pytest.importorskip("optuna" if method == "tpe" else "cmaes")
    count, sign = 90, 1 if goal == "min" else -1
    workers = [chooser(tmp_path, count, method=method, goal=goal) for _ in range(3)]
    for first in range(0, count, 3):
        points = {place: workers[place % 3].choose(place, {}) for place in range(first, first + 3)}
        for place, point in points.items():
            state = {4: "failed", 7: "pruned"}.get(place, "complete")
            end(workers[place % 3], place, None if state == "failed" else sign * bowl(point), state)
    values = [sign * trial.value for trial in workers[0].trials().values() if trial.value is not None]
    source = random.Random(1)
    by_chance = sorted(bowl({name: draw.draw(source) for name, draw in DRAWS.items()}) for _ in range(count))
    assert min(values) < 0.05
    assert sum(values[45:]) / 45 < sum(by_chance) / count / 3
    assert all(trial.point["depth"] == 2 for trial in workers[0].trials().values())


def test_point_of_a_killed_worker_is_chosen_no_second_time(tmp_path: Path) -> None:
    """Whoever claims its place trains that point; two that know the same choose the same."""
    pytest.importorskip("optuna")
    first = chooser(tmp_path, 4)
    point = first.choose(2, {})
    assert chooser(tmp_path, 4).choose(2, {}) == point
    again = chooser(tmp_path / "other", 4)
    assert again.choose(2, {}) == point
    assert again.choose(1, {}) != point


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"point": 3}', '{"units": {"x": 7.0, "y": 0.5}, "point": {"x": 1, "y": 1, "depth": 1}}',
     '{"units": {"x": 0.5}, "state": "complete", "value": 1e400}',
     '{"units": {"x": 0.5, "y": 0.5}, "state": "complete"}',
     '{"units": {"x": 0.5, "y": 0.5}, "state": "odd", "value": 1}'],
)  # fmt: skip
@pytest.mark.parametrize("method", ["tpe", "cmaes"])
def test_files_of_others_that_make_no_sense_count_as_nothing(content: str, method: str, tmp_path: Path) -> None:
    """Who shares the directory ends nobody's search by them; nothing in them is run."""
    pytest.importorskip("optuna" if method == "tpe" else "cmaes")
    one = chooser(tmp_path, 3, method=method)
    one._ledger.parameters("p0", "trial").write_text(content)
    assert one.choose(1, {}).keys() == {"x", "y", "depth"}


def test_point_that_somebody_else_planted_lies_where_the_search_draws(tmp_path: Path) -> None:
    """Who can write to a shared folder chooses no value of the command's, neither a drawn nor a fixed one."""
    pytest.importorskip("optuna")
    one = chooser(tmp_path, 2)
    honest = one.choose(0, {})
    units = dict.fromkeys(DRAWS, 0.5)
    for planted in (units, {**units, next(iter(DRAWS)): 7.0}, {}):
        evil = Trial(point=dict.fromkeys(honest, "/tmp/evil.pkl"), units=planted)
        one._ledger.write_trial("p1", msgspec.json.encode(evil))
        point = chooser(tmp_path, 2).choose(1, {})
        assert point.keys() == honest.keys()
        assert point["depth"] == 2
        assert "/tmp/evil.pkl" not in point.values()
    pruned = chooser(tmp_path, 2, method="")
    pruned._ledger.write_trial("p1", msgspec.json.encode(Trial(point={"lr": "/tmp/evil.pkl"})))
    assert pruned.choose(1, {"lr": 0.1}) == {"lr": 0.1}


def test_curve_has_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rung is a number of the metric's values; what a continued run logs again is no further one."""
    monkeypatch.chdir(tmp_path)
    more: Any = {"project": "p", "id": "one", "mode": "offline", "options": {"TRACKER_RELAY": False}}
    run = trackers.init("json", **more)
    for step, loss in enumerate([5.0, 4.0, float("nan"), 6.0]):
        run.log({"loss": loss, "other": 1.0}, step=step)
    run.finish()
    curve = Curve(RunDirectory(run.path), "loss", "min", [1, 2, 3, 4])
    curve.read()
    assert (curve.count, curve.rungs, curve.last, curve.result) == (3, {1: 5.0, 2: 4.0, 3: 4.0}, 6.0, None)
    again = trackers.init("json", **more, resume="must", step=1)
    for step in (2, 3, 4):
        again.log({"loss": 3.0}, step=step)
    again.log({"final/loss": 2.5})
    again.finish()
    curve.read()
    assert (curve.count, curve.rungs[4], curve.last, curve.result) == (5, 3.0, 3.0, 2.5)


TRAIN = """
import sys, time, trackers
loss, deaf = float(sys.argv[1]), len(sys.argv) > 2
run = trackers.init("json", project="p", options={"TRACKER_RELAY": False})
for step in range(30):
    run.log({"val_loss": loss + 1 / (step + 1)}, step=step)
    if loss > 1:
        time.sleep(0.1)
    if not deaf and run.should_stop:
        break
run.finish()
"""


@pytest.mark.processes
@pytest.mark.heavy
def test_run_that_falls_behind_is_stopped_by_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as stopped, and the reason names the rung; one that never looks is trained to its end."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    said: list[str] = []
    words = SweepWords(command=[sys.executable, "train.py", "{loss}"], grid=["loss=1,9"], name="s", gpus="none",
                       metric="val_loss", prune="2:2")  # fmt: skip
    plan = planned(words)
    sweep = Sweep(plan, root=Path("runs").absolute(), jobs=1, say=said.append)
    assert sweep.run()
    assert [task.early for task in sweep.tasks] == [False, True]
    runs = {run.read_info().name: run for run in find_runs(Path("runs/p"))}
    assert last_status(runs["loss1"]).name == "finished"
    stopped = last_status(runs["loss9"])
    assert stopped.name == "stopped"
    assert "(sweep s): val_loss" in stopped.reason
    assert "values isn't among the best of 2" in stopped.reason
    assert any("stopped early" in line for line in said)
    chosen, ranked = results(sweep.directories(), Path("runs"), sweep.tasks, plan.metric, plan.mode, said.append)
    assert [row[-1] for row in table(ranked, chosen)[1]] == ["finished", "stopped early"]
    again = Sweep(planned(words), root=Path("runs").absolute(), jobs=1, say=said.append)
    assert again.run()
    assert [(task.status, task.early) for task in again.tasks] == [("there", False), ("there", True)]


BAYES = """
method: bayes
run_cap: 12
metric: {name: val_loss, goal: minimize}
parameters:
  loss: {min: 0.0, max: 2.0}
  optimizer: {parameters: {name: {values: [adam, sgd]}}}
early_terminate: {type: hyperband, min_iter: 2, eta: 2}
name: bayes
command: [PYTHON, train.py, "${args_json}"]
"""


def forked(work: Callable[[], bool]) -> int:
    """Fork a worker; its pid."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            random.seed()
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return child


@pytest.mark.processes
@pytest.mark.slow
def test_bayes_file_of_wandb_is_searched_by_workers_though_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its runs is trained once, with ``early_terminate`` and nested parameters; values follow the best ones."""
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(BAYES.replace("PYTHON", sys.executable))
    lines = [
        "import json",
        "point = json.loads(sys.argv[1])",
        'open("done", "a").write(point["optimizer"]["name"] + "\\n")',
    ]
    script = TRAIN.replace("loss, deaf =", "\n".join([*lines, "loss, deaf ="]))
    Path("train.py").write_text(
        script.replace("float(sys.argv[1])", 'point["loss"]').replace("    if loss > 1:\n    ", "")
    )

    def work() -> bool:
        plan = planned(SweepWords(sweep=Path("sweep.yaml"), gpus="none"))
        return Sweep(plan, root=Path("runs").absolute(), jobs=1, worker=True, say=lambda line: None).run()

    workers = [forked(work) for _ in range(3)]
    try:
        wait_for(lambda: Path("done").exists())
        os.kill(workers[0], signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    finally:
        for worker in workers:
            try:
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
    assert codes[1:] == [0, 0]
    done = Path("done").read_text().split()
    assert (len(done), set(done) <= {"adam", "sgd"}) == (12, True)
    runs = list(find_runs(Path("runs")))
    assert len(runs) == 12
    statuses = [last_status(run).name for run in runs]
    assert set(statuses) == {"finished", "stopped"}
    trials = [json.loads(path.read_text()) for path in Path("runs/.sweeps/bayes").glob("*.trial.json")]
    assert [sorted(trial["units"]) for trial in trials] == [["loss", "optimizer.name"]] * 12
    assert sum(trial.get("state") == "pruned" for trial in trials) == statuses.count("stopped")
    assert sum(trial.get("state") == "complete" for trial in trials) == statuses.count("finished")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"search": "tpee", "metric": "loss"}, "unknown search 'tpee': known are tpe, cmaes"),
        ({"search": "tpe"}, "need the metric that is compared: --metric NAME"),
        ({"search": "tpe", "metric": "x"}, "is a small or a large x better? Give --mode min or --mode max"),
        ({"search": "tpe", "metric": "loss", "random": 0}, "how many points? Give --random N"),
        ({"search": "tpe", "metric": "loss", "grid": ["a=1,2"]}, "leave --grid and --seeds out"),
        ({"search": "cmaes", "metric": "loss", "param": ["lr=0..1"]}, "CMA-ES needs two parameters or more"),
        ({"search": "tpe", "metric": "loss", "param": []}, "a search needs parameters that are drawn"),
        ({"prune": "x", "metric": "loss"}, "--prune x: write the first rung, and eta: 5 or 5:3"),
        ({"prune": "5:1", "metric": "loss"}, "--prune 5:1: write"),
        ({"prune": "5"}, "need the metric that is compared"),
    ],
)
def test_search_that_cannot_begin_is_one_line(more: dict[str, Any], said: str) -> None:
    """Before anything is trained, with what to give."""
    asked: dict[str, Any] = {"command": ["t.py"], "param": ["lr=0..1", "wd=0..1"], "random": 5, "gpus": "none", **more}
    with pytest.raises(UsageError) as raised:
        planned(SweepWords(**asked))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it; grids and random draws need none."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    words: dict[str, Any] = {"command": ["python", "t.py"], "param": ["lr=0.0..1"], "random": 5, "gpus": "none"}
    with pytest.raises(UsageError, match="--search tpe needs the package optuna: pip install optuna"):
        planned(SweepWords(**words, search="tpe", metric="loss"))
    assert len(planned(SweepWords(**words, prune="3", metric="loss")).tasks) == 5


def test_dry_run_says_what_will_be_chosen() -> None:
    """Points that nobody has chosen yet have no command."""
    pytest.importorskip("optuna")
    plan = planned(
        SweepWords(command=["t.py", "{lr}"], param=["lr=0..1"], random=7, search="tpe", metric="loss", gpus="none")
    )
    assert isinstance(plan, SweepPlan)
    assert plan.commands() == ["7 points that tpe chooses: t.py '{lr}'"]
    assert len({task.id for task in plan.tasks}) == 7
    assert Trial().state == ""
