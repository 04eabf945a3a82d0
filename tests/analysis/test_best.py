"""``trackers best``: the right run, by conditions that are parsed and never executed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import trackers
from tests.analysis.support import write_run
from trackers.analysis.best import RunFilter
from trackers.analysis.run_stats import MetricStats, RunStats
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError
from trackers.journal.checksums import ChecksumWriter


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def names(*arguments: str) -> list[str]:
    """The names of the runs that ``trackers best`` finds."""
    done = run_cli("best", *arguments, "--json")
    assert done.exit_code == 0, done.output or done.exception
    return [entry["name"] for entry in json.loads(done.stdout)]


@pytest.fixture
def runs() -> None:
    """Four runs: by result, by curve, one NaN, one without."""
    for number, (value, lr) in enumerate([(0.5, 1e-2), (0.3, 1e-3), (math.nan, 1e-4), (0.4, 1e-4)]):
        write_run(f"r{number}", [(1, 1, {"val_loss": value}), (2, 2, {"val_loss": value + 1, "acc": number / 10})],
                  config={"lr": lr, "model": {"depth": number}}, summary={"best": value})  # fmt: skip
    write_run("none", [(1, 1, {"other": 1.0})])


@pytest.mark.heavy
def test_best_by_result_and_by_curve(runs: None) -> None:
    """By a result, or by each run's best of a curve; NaN and absent values take no place."""
    assert names("--metric", "final/best", "--mode", "min", "--top", "9") == ["r1", "r3", "r0"]
    assert names("--metric", "val_loss", "--top", "9") == ["r1", "r3", "r0"]
    assert names("--metric", "acc") == ["r3"]
    assert names("--metric", "acc", "--mode", "min") == ["r0"]
    found = json.loads(run_cli("best", "--metric", "val_loss", "--json").stdout)[0]
    assert (found["value"], found["step"], found["config"]["lr"]) == (0.3, 1, 1e-3)


def test_note_of_a_run_is_shown() -> None:
    """A place in the ranking may be due to a line that was left out."""
    path = write_run("r0", [(step, step, {"val_loss": 50.0 + step}) for step in range(9)])
    stream = path / "streams" / "rank-0.1.jsonl"
    while ChecksumWriter(stream).poll(final=True):
        pass
    stream.write_bytes(stream.read_bytes().replace(b'"val_loss":50.0', b'"val_loss":40.0'))
    done = run_cli("best", "--metric", "val_loss")
    assert done.stdout.splitlines()[1].split()[2] == "51"
    assert done.stderr.startswith("trackers: r0: 1 damaged line of the journal skipped; "), done.stderr


def test_best_with_a_condition(runs: None) -> None:
    """Only runs that fulfil the condition are ranked."""
    assert names("--metric", "val_loss", "--where", "config.lr < 1e-3") == ["r3"]
    done = run_cli("best", "--metric", "final/best", "--mode", "min", "--top", "2")
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:]] == [["r1", "r1", "0.3"], ["r3", "r3", "0.4"]]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ([], UsageError, "which metric? Give --metric val_loss;"),
        (["--metric", "val_los"], NotFound, "no run of 5 has 'val_los'; there is val_loss"),
        (["--metric", "other"], UsageError, "is a small or a large 'other' better? Give --mode min"),
        (["--metric", "acc", "--mode", "median"], UsageError, "unknown mode 'median'"),
        (["--metric", "acc", "--where", "config.lr > 1"], NotFound, "none of 5 runs fulfils"),
        (["--metric", "acc", "--where", "config.lrate > 1"], NotFound, "has the setting 'lrate'; there is lr"),
        (["--metric", "acc", "--where", "lr > 1"], UsageError, "unknown name 'lr'; a setting is config.lr"),
    ],
)
def test_bad_input_is_one_line(runs: None, arguments: list[str], error: type[Exception], said: str) -> None:
    """What can't be done is said with what is known."""
    done = run_cli("best", *arguments)
    assert isinstance(done.exception, error), done.output
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


RUN = RunStats(
    source="s", id="i", name="base-1", project="p", group="g", tags=["ablation"], status="finished", steps=100,
    config={"lr": 1e-4, "model.depth": 4, "opt": "adam", "flag": True, "a/b": 3}, summary={"best_val_loss": 0.25},
    folds={"val/loss": MetricStats(count=2, last=0.5, low=0.25, high=0.75)},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("config.lr < 1e-3", True),
        ("config.lr >= 1e-3", False),
        ("1e-5 < config.lr < 1e-3", True),
        ("config.model.depth == 4 and config.opt == 'adam'", True),
        ("config['model']['depth'] == 4", True),
        ("config['a/b'] == 3", True),
        ("not config.flag or status != 'finished'", False),
        ("'ablation' in tags", True),
        ("'x' not in tags", True),
        ("name in ['base-1', 'base-2']", True),
        ("'base' in name", True),
        ("final/best_val_loss < 0.3", True),
        ("final.best_val_loss < 0.3", True),
        ("final['best_val_loss'] * 2 == 0.5", True),
        ("min['val/loss'] == 0.25 and last['val/loss'] == 0.5 and best['val/loss'] == 0.25", True),
        ("steps / 2 == 50 and -steps < 0", True),
        ("steps / 0 > 1", False),
        ("config.nothing < 1", False),
        ("config.nothing != 1", False),
        ("not config.nothing < 1", True),
        ("config.nothing is None", True),
        ("config.lr is not None", True),
        ("config.opt < 3", False),
        ("config.opt + 1 > 0", False),
        ("gpus is None", True),
    ],
)
def test_condition_holds(text: str, holds: bool) -> None:
    """Each form of a condition, on one run; what the run lacks fulfils no comparison."""
    assert RunFilter(text)(RUN) is holds


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "config.__class__", "open('/etc/passwd')", "(lambda: 1)()", "[x for x in tags]",
     "name.__class__.__mro__", "config.lr <", "", "1 +* 2", "'a' * 10**9", "2 ** 2 ** 99", "f'{name}'", "steps := 3",
     "(" * 3000, "-" * 5000 + "1", "config.lr is 3", "name[0]", "b'x' == name", "\0"],
)  # fmt: skip
def test_condition_never_executes(text: str) -> None:
    """Calls, attributes of objects, comprehensions and broken input are refused, in one line."""
    if text == "config.__class__":  # a setting of that name, which the run hasn't
        assert not RunFilter(text)(RUN)
        return
    with pytest.raises(UsageError, match=r"\A[^\n]+\Z"):
        RunFilter(text)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="config.lr<>=!()[]'\"andortn 01e-+*/,:{}\\", max_size=30))
def test_condition_of_any_text(text: str) -> None:
    """Any text is a condition or wrong usage; nothing else is ever raised."""
    try:
        result: Any = RunFilter(text)(RUN)
    except UsageError:
        return
    assert isinstance(result, bool)


def test_best_runs_from_python() -> None:
    """The same as on the command line; in a notebook a table."""
    for number in range(4):
        write_run(f"r{number}", [(0, 0, {"val_loss": 1.0 + number})], config={"lr": number / 10, "seed": 0})
    found = trackers.best_runs("val_loss", where="config.lr > 0", top=2)
    assert [(run["id"], run["value"], run["step"], run["config"]) for run in found.runs] == [
        ("r1", 2.0, 0, {"lr": 0.1}), ("r2", 3.0, 0, {"lr": 0.2}),
    ]  # fmt: skip
    assert trackers.best_runs("val_loss", ["r3"], mode="max").runs[0]["id"] == "r3"
    assert found._repr_html_().count("<tr>") == 3
    assert ">config.lr</th>" in found._repr_html_()
    assert found.to_pandas()["config.lr"].tolist() == [0.1, 0.2]
    with pytest.raises(NotFound, match="val_loss"):
        trackers.best_runs("val_los", mode="min")
