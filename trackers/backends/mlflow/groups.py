"""What the parent run of a group tells of the runs below it: how many, their settings, mean and best of their results.

Written anew by each run that ends. A value that is the same again is none; MLflow shows the newest.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from trackers.backends.mlflow.client import GROUP_TAG
from trackers.metrics.roles import direction
from trackers.records import SUMMARY_PREFIX

PARENT = "mlflow.parentRunId"
MOST_RUNS = 1000
SETTING = "sweep."
"""Before the name of a setting in the parent's tags: the values that the runs have, where they differ."""
VALUES = 20
_TAG_LENGTH = 8000


def summarize(client: Any, run: Any) -> None:
    """Tell the parent of a run, if that is a group's, what is below it.

    Args:
        client: an ``MlflowClient``. run: a run that has ended, as MLflow has it.
    """
    parent_id = run.data.tags.get(PARENT)
    if not parent_id:
        return
    parent = client.get_run(parent_id)
    if GROUP_TAG not in parent.data.tags or parent.info.lifecycle_stage != "active":
        return
    found = client.search_runs([run.info.experiment_id], f"tags.`{PARENT}` = '{parent_id}'", max_results=MOST_RUNS)
    results = _results(child.data.metrics for child in found)
    told = {"runs": float(len(found)), **results}
    now = round(time.time() * 1000)
    changed = {key: value for key, value in told.items() if parent.data.metrics.get(key) != value}
    best = _best(found)
    tags = {**_settings(child.data.params for child in found), **best}
    from mlflow.entities import Metric, RunTag

    client.log_batch(
        parent_id,
        metrics=[Metric(key, value, now, 0) for key, value in changed.items()],  # each would add a point
        tags=[RunTag(key, value[:_TAG_LENGTH]) for key, value in tags.items() if parent.data.tags.get(key) != value],
    )


def _results(of_runs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Mean and best of each result; least and greatest where no name says which is better."""
    by_name: dict[str, list[float]] = {}
    for metrics in of_runs:
        for name, value in metrics.items():
            if name.startswith(SUMMARY_PREFIX) and math.isfinite(value):
                by_name.setdefault(name, []).append(value)
    told: dict[str, float] = {}
    for name, values in list(by_name.items())[:100]:
        told[f"{name}.mean"] = sum(values) / len(values)
        better = direction(name.removeprefix(SUMMARY_PREFIX))
        if better is None:
            told |= {f"{name}.min": min(values), f"{name}.max": max(values)}
        else:
            told[f"{name}.best"] = max(values) if better == "max" else min(values)
    return told


def _best(runs: Iterable[Any]) -> dict[str, str]:
    """The names of the runs with the best results."""
    best: dict[str, tuple[float, str]] = {}
    for run in runs:
        for name, value in run.data.metrics.items():
            better = direction(name.removeprefix(SUMMARY_PREFIX)) if name.startswith(SUMMARY_PREFIX) else None
            if better is None or not math.isfinite(value):
                continue
            rank = value if better == "max" else -value
            if name not in best or rank > best[name][0]:
                best[name] = rank, str(run.info.run_name)
    return {f"best.{name.removeprefix(SUMMARY_PREFIX)}"[:250]: run for name, (_, run) in list(best.items())[:50]}


def _settings(of_runs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The settings in which runs differ, each with the values that it has."""
    every = list(of_runs)
    names = dict.fromkeys(name for params in every for name in params)
    values = {name: list(dict.fromkeys(params[name] for params in every if name in params)) for name in names}
    differing = {name: found for name, found in values.items() if len(found) > 1}
    shown = {name: found[:VALUES] + ["…"] * (len(found) > VALUES) for name, found in list(differing.items())[:40]}
    return {f"{SETTING}{name}"[:250]: json.dumps(found, ensure_ascii=False) for name, found in shown.items()}
