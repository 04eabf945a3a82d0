"""``trackers run``: many runs of one program trained."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackers.cli.common import AsJson, RunsDir, print_table, printable

if TYPE_CHECKING:
    from trackers_sweeps.python import SweepResults

app = typer.Typer()


@app.command()
def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND…",
            help="What trains a run, after --. The values follow as --NAME=VALUE, or stand where {NAME} does.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None, typer.Option(metavar="NAME=A,B", help="Train every combination of these values; repeatable.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=RANGE",
            help="What --random draws: lr=1e-5..1e-1:log, width=64..512, act=relu,gelu; repeatable.",
        ),
    ] = None,
    random: Annotated[int, typer.Option(min=0, metavar="N", help="Number of random draws.")] = 0,
    seeds: Annotated[int, typer.Option(min=0, metavar="N", help="Train each point N times, with seed=0 to N-1.")] = 0,
    seed_name: Annotated[str, typer.Option(help="Name of that parameter.")] = "seed",
    sweep: Annotated[Path | None, typer.Option(metavar="FILE", help="A sweep in W&B's format (YAML or JSON).")] = None,
    name: Annotated[str, typer.Option(help="The runs' group; default of the program and its points.")] = "",
    jobs: Annotated[
        int, typer.Option(min=0, help="Runs at a time; default one for each share of the GPUs, else 1.")
    ] = 0,
    gpus: Annotated[str, typer.Option(help="GPUs to deal out: auto, none, or their numbers, as 0,1,2.")] = "auto",
    gpus_per_run: Annotated[int, typer.Option(min=1, help="GPUs that each run gets.")] = 1,
    metric: Annotated[str, typer.Option(help="What the table at the end is sorted by; default a result.")] = "",
    mode: Annotated[str, typer.Option(help="min or max; default as defined, else by the name.")] = "",
    search: Annotated[
        str, typer.Option(metavar="METHOD", help="Choose the N points by the results so far: tpe (Optuna) or cmaes.")
    ] = "",
    prune: Annotated[
        str,
        typer.Option(
            metavar="N[:ETA]",
            help="Stop runs that at N, N*ETA, … values of the metric aren't among the best 1/ETA (ASHA; default 3).",
        ),
    ] = "",
    goes_on: Annotated[
        bool,
        typer.Option("--continue", help="Continue unfinished runs: the program goes on from its own checkpoint."),
    ] = False,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker",
            help="Train points that no other worker of this sweep has: they share --dir, a directory or a store.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands, and train nothing.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Train many runs: a grid, random draws, a search, or a W&B sweep file; the same command again trains what is left.

    Example: trackers run --grid lr=0.1,0.01 --seeds 4 -- python train.py
    """
    from trackers_sweeps.plan import SweepWords, planned
    from trackers_sweeps.python import train

    plan = planned(
        SweepWords(
            command=command or [], grid=grid or [], param=param or [], random=random, seeds=seeds, seed_name=seed_name,
            sweep=sweep, name=name, gpus=gpus, gpus_per_run=gpus_per_run, jobs=jobs, metric=metric, mode=mode,
            search=search, prune=prune,
        )
    )  # fmt: skip
    for line in plan.remarks:
        _say(line)
    if dry_run:
        for line in plan.commands():
            print(printable(line))
        return
    with _display() as show:
        trained = train(plan, directory, jobs, goes_on, worker, _say, show)
    _print_results(trained, as_json)
    raise typer.Exit(128 + trained.signalled if trained.signalled and not trained.whole else 0 if trained.whole else 1)


def _say(line: str) -> None:
    print(f"trackers: {printable(line)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _display() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal, told of what is trained now, how much is done, and of how much."""
    from trackers.support import progress

    with progress.progress("training", "runs") if progress.is_terminal() else contextlib.nullcontext() as bar:

        def show(what: str, done: int, total: int) -> None:
            if bar is not None:
                bar.title = what
                bar(done, total)

        yield show


def _print_results(trained: SweepResults, as_json: bool) -> None:
    from trackers.analysis.tables import TextTable
    from trackers_sweeps.program import table

    if as_json:
        listed = [
            {"run": task.id, "point": task.point, "status": task.status, "value": value}
            for task, value in trained.ranked
        ]
        print(json.dumps({"sweep": trained.name, "metric": trained.metric or None, "runs": listed}, indent=2))
    else:
        print_table(TextTable(*table(trained.ranked, trained.metric)))
    again = sum(row.status != "finished" for row in trained)
    if again:
        _say(f"{again} of {len(trained)} runs didn't finish; the same command trains them")
