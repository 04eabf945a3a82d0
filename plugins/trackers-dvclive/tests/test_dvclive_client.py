"""DVC and DVCLive's own client read what the tracker wrote, without a Git repository."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dvc.cli import main
from dvc.repo import Repo
from dvclive import Live
from dvclive.utils import read_history
from trackers_dvclive.tracker import DvcliveTracker

from tests.helpers import T0, Driver, run_info, stream
from trackers.records import Config, Metrics, Record, Start, Summary
from trackers.testing.checks import LONG_CONFIG, metric_names, one_of_each


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repo]:
    """A DVC repository in which ``runs/baseline-a`` has everything in it."""
    options = {"DVCLIVE_DIR": str(tmp_path / "repository/runs")}
    info = run_info(tmp_path / "run", id="a", options=options)
    records: list[Record] = [
        *one_of_each(tmp_path / "run"),
        Config(time=T0, values={**LONG_CONFIG, "lr": 0.00002}),
        *(Metrics(step=step, time=T0 + step, values={"train/a": step / 4}) for step in range(5)),
        Metrics(step=4, time=T0, values={"b": float("nan"), "c": float("-inf")}),
        Metrics(time=T0, values={"system.cpu": 7.0}),
        Start(time=T0, attempt=2, from_step=2),
        Metrics(step=3, time=T0 + 3, values={**dict.fromkeys(metric_names(), 0.5), "train/a": 30, "b": math.nan}),
        Summary(time=T0, values={"best": 0.25, "word": "x"}),
    ]
    records += one_of_each(tmp_path / "run")[3:6]
    (tmp_path / "repository").mkdir()
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path / "repository")
    Repo.init(".", no_scm=True).close()
    Driver(DvcliveTracker, info).deliver(stream(records))
    with Repo(".") as opened:
        yield opened


def test_dvc_shows_metrics_parameters_and_artifacts(repository: Repo) -> None:
    """``dvc metrics show``, ``dvc params`` and the model registry find the run in its folder."""
    metrics = repository.metrics.show()[""]["data"]["runs/baseline-a/metrics.json"]["data"]
    assert (metrics["train"]["a"], metrics["final"], metrics["step"]) == (30, {
        "best": 0.25, "best_loss": 0.5, "word": "x",
    }, 0.5)  # fmt: skip
    assert math.isnan(metrics["b"])
    assert "system.cpu" not in metrics  # the machine's samples have plots of their own
    params = repository.params.show()[""]["data"]["runs/baseline-a/params.yaml"]["data"]
    assert params == {**LONG_CONFIG, "lr": 0.00002}
    assert isinstance(params["lr"], float)
    (found,) = repository.artifacts.read().values()
    assert (found["checkpoint"].type, found["checkpoint"].labels) == ("model", ["latest"])


def test_dvc_makes_a_page_of_several_pictures_of_a_step(repository: Repo) -> None:
    """``dvc plots show`` sorts the pictures of a folder by their steps, and fails where one has none."""
    assert main(["plots", "show", "--quiet"]) == 0
    page = Path("dvc_plots/index.html").read_text()
    assert page.count("baseline-a_plots_images_images") >= 2


def test_dvc_draws_every_series(repository: Repo) -> None:
    """``dvc plots show`` takes each file with its axes: metrics over the step, the machine's over the time."""
    shown: Any = repository.plots.show()["workspace"]
    definitions = shown["definitions"]["data"]["runs/baseline-a/dvc.yaml"]["data"]
    sources = {path.removeprefix("runs/baseline-a/"): found for path, found in shown["sources"]["data"].items()}
    assert "error" not in str(shown["definitions"])
    assert all("error" not in found for found in sources.values())
    series = [path for path in sources if path.startswith("plots/metrics/")]
    assert len(series) == len({*metric_names(), "train/a", "b"})
    assert definitions["runs/baseline-a/plots/metrics/train/a.tsv"] == {"x": "step"}
    values = [(row["step"], row["a"]) for row in sources["plots/metrics/train/a.tsv"]["data"]]
    assert values == [("0", "0.0"), ("1", "0.25"), ("2", "0.5"), ("3", "30")]
    assert definitions["runs/baseline-a/plots/system/system.cpu.tsv"] == {"x": "timestamp"}
    assert sources["plots/images/images/9.png"]["data"].startswith(b"\x89PNG")
    assert sources["plots/histograms/weights/9.json"]["data"][1] == {"from": 0.5, "to": 1.0, "count": 2.0}


def test_dvclive_goes_on_with_the_folder(repository: Repo) -> None:
    """DVCLive's own client resumes from it, and reads the series as its own."""
    live = Live("runs/baseline-a", resume=True, save_dvc_exp=False, dvcyaml=False)
    assert live.summary["train"]["a"] == 30
    assert live._params["lr"] == 0.00002
    assert read_history(live, "b")[0] == [3]
