"""``compare_wandb_runs``: how busy the GPUs of several runs were."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from trackers.analysis.gpu_report import COMPUTE, GpuSeries, average, stats
from trackers.analysis.tables import plain
from trackers.cli.scripts import wandb_query
from trackers.cli.scripts.wandb_query import Query
from trackers.errors import NotFound
from trackers.readers.reader import SourceRun
from trackers.records import name_floats

NAME = "compare_wandb_runs"
NEWEST = 5
LABELS = {"gpu/memory_util_avg": "GPU Memory Util", "gpu/compute_util_avg": "GPU Compute Util"}
FIELDS = {"gpu/memory_util_avg": "memory", "gpu/compute_util_avg": COMPUTE}
"""W&B's own fields that stand for these where the trainer didn't log them."""


def main(arguments: Sequence[str]) -> int:
    """Run the program; 1 where none of the runs has such metrics, or a run isn't there."""
    made = wandb_query.parser(NAME, "Compare the GPU metrics of several W&B runs, averaged over time.")
    made.add_argument("--run-name", nargs="+", action="extend", default=[], help=f"runs; default the {NEWEST} newest")
    made.add_argument("--run-id", nargs="+", action="extend", default=[], help="runs by id")
    made.add_argument("--keys", nargs="+", default=list(LABELS), help=f"metrics; default {', '.join(LABELS)}")
    options = made.parse_args(arguments)
    query = Query(options)
    chosen = [(name, None) for name in options.run_name] + [(None, id) for id in options.run_id]
    runs, missing = [], 0
    for name, id in chosen:
        try:
            runs.append(query.run(name, id))
        except NotFound as error:
            print(f"Run not found: {plain(str(name or id))} ({plain(str(error))})", file=sys.stderr)
            missing += 1
    if not chosen:
        runs = query.newest(NEWEST)
    found = []
    for run in runs:
        try:
            found.append((run, _averages(query, run, options.keys)))
        except NotFound as error:
            print(f"Run can't be read: {plain(run.name)} ({plain(str(error))})", file=sys.stderr)
            missing += 1
    if options.json:
        listed = [{**wandb_query.described(run), "averages": name_floats(averages)} for run, averages in found]
        print(json.dumps(listed, indent=2))
    else:
        for run, averages in found:
            _print(run, averages)
    return 0 if any(averages for _, averages in found) and not missing else 1


def _averages(query: Query, run: SourceRun, keys: Sequence[str]) -> dict[str, float]:
    gpus = GpuSeries().gather(query.records(run), others="")
    found = {}
    for key in keys:
        if key in gpus.others:
            found[key] = stats(gpus.others[key]).average
        elif key in FIELDS:
            series = [average(fields[FIELDS[key]]) for fields in gpus.series.values() if FIELDS[key] in fields]
            if series:
                found[key] = sum(series) / len(series)
    return found


def _print(run: SourceRun, averages: dict[str, float]) -> None:
    print(f"{plain(run.name)}:")
    for key, value in averages.items():
        label = LABELS.get(key)
        print(f"  {label}: {value:.2f}%" if label else f"  {plain(key)}: {value:.6g}")
    if not averages:
        print("  No GPU metrics found in this run")
    print()
