"""The command that trains many runs: run."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from trackers.cli.common import AsJson, RunsDir, print_table, printable
from trackers.cli.roots import named_store, runs_root


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
    sweep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A sweep in W&B's format (YAML or JSON): method grid or random.")
    ] = None,
    name: Annotated[str, typer.Option(help="The runs' group; default of the program and its points.")] = "",
    jobs: Annotated[
        int, typer.Option(min=0, help="Runs at a time; default one for each share of the GPUs, else 1.")
    ] = 0,
    gpus: Annotated[str, typer.Option(help="GPUs to deal out: auto, none, or their numbers, as 0,1,2.")] = "auto",
    gpus_per_run: Annotated[int, typer.Option(min=1, help="GPUs that each run gets.")] = 1,
    metric: Annotated[str, typer.Option(help="What the table at the end is sorted by; default a result.")] = "",
    mode: Annotated[str, typer.Option(help="min or max; default as defined, else by the name.")] = "",
    goes_on: Annotated[
        bool,
        typer.Option("--continue", help="Continue unfinished runs: the program goes on from its own checkpoint."),
    ] = False,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker", help="Train points that no other worker of this sweep has, here or wherever --dir is shared."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands, and train nothing.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Train many runs: a grid, random draws, seeds, or a W&B sweep file; the same command again trains what is left.

    Example: trackers run --grid lr=0.1,0.01 --seeds 4 -- python train.py
    """
    import sys

    from trackers.analysis.tables import TextTable
    from trackers.errors import UsageError
    from trackers.support import progress
    from trackers.sweeps import command as of_command
    from trackers.sweeps import gpus as of_gpus
    from trackers.sweeps import program, space

    def say(line: str) -> None:
        print(f"trackers: {printable(line)}", file=sys.stderr, flush=True)

    if mode not in ("", "min", "max"):
        raise UsageError(f"unknown mode {mode!r}: known are min, max")
    search = space.of_words(grid or [], param or [], 0 if sweep else random, seeds, seed_name)
    words = list(command or [])
    if sweep is not None:
        if grid or param:
            raise UsageError("--sweep has the parameters: leave --grid and --param out")
        search, remarks = space.of_file(sweep, random)
        search.seeds, search.seed_name = seeds, seed_name
        for line in remarks:
            say(line)
        metric, mode = metric or search.metric, mode or (search.goal if not metric else "")
    typed, words = bool(words), words or search.command
    if not words:
        raise UsageError("which program? Give it after --: trackers run --grid lr=0.1,0.01 -- python train.py")
    name = name or search.name
    points = search.points(name or shlex.join(words))
    of_command.check(words, [key for point in points for key in point], macros=not typed)
    group = name or program.name_of(words, points)
    work = program.tasks(group, points)
    doubts: list[str] = []
    devices = of_gpus.gpus(gpus, gpus_per_run, doubts.append)
    if devices and jobs > len(devices):
        raise UsageError(
            f"{jobs} runs at a time, and GPUs for {len(devices)}: lower --jobs or --gpus-per-run, or --gpus none"
        )
    for line in doubts:
        say(line)
    if dry_run:
        for task in work:
            print(printable(shlex.join(of_command.arguments(words, task.point, search.nested))))
        return
    store, own = named_store(directory)
    if worker and store:
        raise UsageError("--worker needs a directory that the workers share: claims aren't kept in a store")
    root = own if store else runs_root(directory, change="written to")
    named = {key: text for key, text in (("TRACKER_PROJECT", search.project), ("WANDB_ENTITY", search.entity)) if text}
    display = progress.progress("training", "runs") if progress.is_terminal() else contextlib.nullcontext()
    with display as bar:

        def show(what: str, done: int, total: int) -> None:
            if bar is not None:
                bar.title = what
                bar(done, total)

        trained = program.Sweep(
            group, work, words, root=root, address=store, copies=[runs_root(directory)] if store else [],
            jobs=jobs or max(1, len(devices)), devices=devices, goes_on=goes_on, environment=named,
            nested=search.nested if sweep else None, say=say, show=show,
            worker=worker,
        )  # fmt: skip
        whole = trained.run()
    chosen, ranked = program.results(trained.directories(), root, trained.tasks, metric, mode, say)
    headers, rows = program.table(ranked, chosen)
    if as_json:
        listed = [
            {"run": task.id, "point": task.point, "status": task.status, "value": value} for task, value in ranked
        ]
        print(json.dumps({"sweep": group, "metric": chosen or None, "runs": listed}, indent=2))
    else:
        print_table(TextTable(headers, rows))
    again = sum(task.status not in ("finished", "there") for task in trained.tasks)
    if again:
        say(f"{again} of {len(work)} runs didn't finish; the same command trains them")
    raise typer.Exit(128 + trained.signalled if trained.signalled and not whole else 0 if whole else 1)
