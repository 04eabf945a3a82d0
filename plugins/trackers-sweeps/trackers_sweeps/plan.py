"""What a sweep trains, before it trains anything: its points, each with a run of its own, the command, the GPUs."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UsageError
from trackers.metrics.roles import direction
from trackers_sweeps import command as of_command
from trackers_sweeps import space
from trackers_sweeps.command import text_of
from trackers_sweeps.gpus import gpus
from trackers_sweeps.ledger import LONGEST, file_name_part
from trackers_sweeps.search import METHODS, Search, check
from trackers_sweeps.space import MOST_POINTS, Halving, Point, Space, Word


class Task(msgspec.Struct):
    """One point. status: waiting, running, finished, failed, stopped, or there (it had finished before).

    early: it was stopped early, since it fell behind.
    """

    point: Point
    id: str
    name: str
    status: str = "waiting"
    code: int | None = None
    seconds: float = 0.0
    early: bool = False


def tasks(name: str, points: Sequence[Point]) -> list[Task]:
    """A task for each point, each with an id of its own that is the same every time."""
    work = []
    for point in points:
        digest = hashlib.sha256(msgspec.json.encode([name, point], order="sorted")).hexdigest()[:10]
        work.append(Task(point, f"{file_name_part(name)[:LONGEST]}-{digest}", label(point) or digest))
    return work


def label(point: Point) -> str:
    """The name of a point's run."""
    text = "-".join(f"{key.rpartition('.')[2]}{text_of(value)}" for key, value in point.items())
    return file_name_part(text)[:100]


class SweepWords(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep as it is asked for: ``trackers run --help`` explains each."""

    command: Sequence[str] = ()
    grid: Sequence[Word] = ()
    param: Sequence[Word] = ()
    random: int = 0
    seeds: int = 0
    seed_name: str = "seed"
    sweep: Path | None = None
    name: str = ""
    gpus: str = "auto"
    gpus_per_run: int = 1
    jobs: int = 0
    metric: str = ""
    mode: str = ""
    search: str = ""
    prune: str = ""


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is trained, and how.

    name: the runs' group. command: see :func:`trackers_sweeps.command.arguments`. devices: of each run at a time, see
    :func:`trackers_sweeps.gpus.gpus`. environment: more variables for the programs. nested: see
    :func:`trackers_sweeps.command.tree`. of_file: the parameters are those of a W&B sweep, which ``wandb.config`` has.
    metric, mode: what the results are sorted by. search: how it learns from its runs; None: it doesn't. remarks: what
    isn't as it was asked for.
    """

    name: str
    tasks: Sequence[Task]
    command: Sequence[str]
    devices: Sequence[Sequence[str]] = ()
    environment: Mapping[str, str] = {}
    nested: Mapping[str, Sequence[str]] = {}
    of_file: bool = False
    metric: str = ""
    mode: str = ""
    search: Search | None = None
    remarks: Sequence[str] = ()

    def commands(self) -> list[str]:
        """The command of each point, as a shell takes it; of points that aren't chosen yet, how many there are."""
        if self.search is not None and self.search.method:
            return [f"{len(self.tasks)} points that {self.search.method} chooses: {shlex.join(self.command)}"]
        return [shlex.join(of_command.arguments(self.command, task.point, self.nested)) for task in self.tasks]


def planned(asked: SweepWords) -> SweepPlan:
    """The plan of a sweep.

    Raises:
        UsageError: words that make no sense, alone or together. NotFound: no such file.
    """
    if asked.mode not in ("", "min", "max"):
        raise UsageError(f"unknown mode {asked.mode!r}: known are min, max")
    search, remarks = _space(asked)
    # A sweep file's goal is that of its own metric.
    mode = asked.mode or (search.goal if asked.sweep is not None and not asked.metric else "")
    words = list(asked.command) or search.command
    if not words:
        raise UsageError("which program? Give it after --: trackers run --grid lr=0.1,0.01 -- python train.py")
    name = asked.name or search.name
    learns = _search(search, asked, mode)
    chosen = learns is not None and bool(learns.method)
    points = [] if chosen else search.points(name or shlex.join(words))
    names = [*search.fixed, *search.draws] if chosen else [key for point in points for key in point]
    of_command.check(words, names, macros=not asked.command)
    group = name or name_of(words, points or [{"drawn": names}])
    work = _unknown(group, search.count) if chosen else tasks(group, points)
    devices = gpus(asked.gpus, asked.gpus_per_run, remarks.append)
    if devices and asked.jobs > len(devices):
        raise UsageError(
            f"{asked.jobs} runs at a time, and GPUs for {len(devices)}: lower --jobs or --gpus-per-run, or --gpus none"
        )
    variables = {"TRACKER_PROJECT": search.project, "WANDB_ENTITY": search.entity}
    return SweepPlan(
        name=group, tasks=work, command=words, devices=devices,
        environment={variable: text for variable, text in variables.items() if text},
        nested=search.nested, of_file=asked.sweep is not None,
        metric=asked.metric or search.metric, mode=mode, search=learns, remarks=remarks,
    )  # fmt: skip


def _search(space: Space, asked: SweepWords, mode: str) -> Search | None:
    """How the sweep learns from its runs."""
    method, halving = asked.search or space.search, space.halving
    if asked.search and asked.search not in METHODS:
        raise UsageError(f"unknown search {asked.search!r}: known are {', '.join(METHODS)}")
    if asked.prune:
        least, _, eta = asked.prune.partition(":")
        if not (least.isdigit() and 0 < int(least) < 10**9 and eta.isdigit() + (not eta) and (not eta or int(eta) > 1)):
            raise UsageError(f"--prune {asked.prune}: write the first rung, and eta: 5 or 5:3")
        halving = Halving(int(least), float(eta or 3))
    if not method and halving is None:
        return None
    metric = asked.metric or space.metric
    goal = mode or direction(metric)
    if metric and not goal:
        raise UsageError(f"is a small or a large {metric} better? Give --mode min or --mode max")
    found = Search(
        method=method, draws=space.draws, fixed=space.fixed, metric=metric, goal=goal or "min", halving=halving
    )
    check(found)
    if method and (space.grid or space.seeds):
        raise UsageError("a search chooses all parameters itself: leave --grid and --seeds out, give --param")
    if method and not 0 < space.count <= MOST_POINTS:
        raise UsageError("how many points? Give --random N (run_cap in a file)")
    return found


def _unknown(name: str, count: int) -> list[Task]:
    """Tasks whose points are chosen once they are begun."""
    work = tasks(name, [{"": number} for number in range(count)])
    return [Task({}, task.id, f"{file_name_part(name)[:LONGEST]}-{number}") for number, task in enumerate(work)]


def _space(asked: SweepWords) -> tuple[Space, list[str]]:
    """Where its points lie, and what of its file is left out."""
    if asked.sweep is None:
        return space.of_words(asked.grid, asked.param, asked.random, asked.seeds, asked.seed_name), []
    # What stands in words beside a file is judged, too.
    space.of_words(asked.grid, asked.param, 0, asked.seeds, asked.seed_name)
    if asked.grid or asked.param:
        raise UsageError("--sweep has the parameters: leave --grid and --param out")
    search, remarks = space.of_file(asked.sweep, asked.random)
    search.seeds, search.seed_name = asked.seeds, asked.seed_name
    return search, remarks


def name_of(command: Sequence[str], points: Sequence[Mapping[str, Any]]) -> str:
    """A sweep's name where none is given: of the program, and of what is trained; the same for the same command."""
    program = next((Path(word).stem for word in command if word.endswith((".py", ".sh"))), Path(command[0]).name)
    digest = hashlib.sha256(msgspec.json.encode([list(command), list(points)], order="sorted")).hexdigest()[:6]
    return f"{file_name_part(program)}-sweep-{digest}"
