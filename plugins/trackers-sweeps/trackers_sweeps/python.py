"""Sweeps from Python: what ``trackers run`` does, as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers import configuration
from trackers.cli.roots import named_store, runs_root
from trackers.errors import UsageError
from trackers_sweeps.command import text_of
from trackers_sweeps.plan import SweepPlan, SweepWords, Task, planned
from trackers_sweeps.program import Sweep, results, table
from trackers_sweeps.space import Word


class Trained(msgspec.Struct, frozen=True):
    """One point of a sweep and its run.

    run: the run's id. directory: of its journal, for :func:`trackers.load`; "" where it has none. point: the
    parameters. status: finished, failed, stopped or waiting. early: it was stopped since it fell behind. value: the
    metric's; None where it has none.
    """

    run: str
    directory: str
    point: Mapping[str, Any]
    status: str
    early: bool
    value: Any


class SweepResults(Sequence[Trained]):
    """A sweep's points, the best first, then those without a value.

    name: the sweep's, which is the group of its runs. metric: what they are sorted by; "" where there is none.
    signalled: the signal that ended the sweep; 0 where none did.
    """

    def __init__(self, trained: Sweep, plan: SweepPlan, root: Path, say: Callable[[str], None]) -> None:
        directories = trained.directories()
        self.metric, self.ranked = results(directories, root, trained.tasks, plan.metric, plan.mode, say)
        self.name, self.signalled = plan.name, trained.signalled
        self._rows = [
            Trained(task.id, directories.get(task.id, ""), dict(task.point), _status(task), task.early, value)
            for task, value in self.ranked
        ]

    @property
    def whole(self) -> bool:
        """Whether all points have been trained to their end."""
        return all(row.status == "finished" for row in self)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def _repr_html_(self) -> str:
        from trackers.analysis.tables import TextTable, html_table

        return html_table(TextTable(*table(self.ranked, self.metric)))


def sweep(
    command: Sequence[str | Path] = (),
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    param: Mapping[str, str | Iterable[Any]] | None = None,
    random: int = 0,
    seeds: int = 0,
    seed_name: str = "seed",
    file: str | Path | None = None,
    name: str = "",
    jobs: int = 0,
    gpus: str = "auto",
    gpus_per_run: int = 1,
    metric: str = "",
    mode: str = "",
    search: str = "",
    prune: str = "",
    goes_on: bool = False,
    worker: bool = False,
    directory: str | Path | None = None,
    say: Callable[[str], None] = print,
) -> SweepResults:
    """Train many runs of a program, each in a process of its own, and wait for them; a second call trains what is left.

    Args:
        command: the program and its words. The values follow as ``--NAME=VALUE``, or stand where ``{NAME}`` does.
        grid: the values of each parameter, every combination of which is trained.
        param: what ``random`` draws: a range as ``trackers run --param`` takes it (``"1e-5..1e-1:log"``), or values.
        file: a sweep in W&B's format instead.
        directory: of the runs, or a store's address; default TRACKER_DIR.
        say: called with a line as each run ends.

    The others are those of ``trackers run``. Ctrl-C ends what runs and starts nothing more (in the main thread).

    Raises:
        UsageError: words that make no sense, another process that trains this sweep, a program that can't be started.
        NotFound: no such file. OSError: nothing can be written there.
    """
    plan = planned(
        SweepWords(
            command=[str(word) for word in command], grid=list(_words(grid or {}, "grid")),
            param=list(_words(param or {}, "param")), random=random, seeds=seeds, seed_name=seed_name,
            sweep=None if file is None else Path(file), name=name, gpus=gpus, gpus_per_run=gpus_per_run, jobs=jobs,
            metric=metric, mode=mode, search=search, prune=prune,
        )
    )  # fmt: skip
    for line in plan.remarks:
        say(line)
    return train(plan, None if directory is None else Path(directory), jobs, goes_on, worker, say)


def train(
    plan: SweepPlan,
    directory: Path | None,
    jobs: int,
    goes_on: bool,
    worker: bool,
    say: Callable[[str], None],
    show: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> SweepResults:
    """Train a plan's points. directory: of the runs, or a store's address; None: as configured."""
    store, own = named_store(directory)
    root = own if store else runs_root(directory, change="written to")
    trained = Sweep(
        plan, root=root, address=store, copies=(lambda: [runs_root(directory)]) if store else list,
        jobs=jobs or max(1, len(plan.devices)), goes_on=goes_on, say=say, show=show, worker=worker,
        share=str(configuration.resolve()["TRACKER_SHARE"]),
    )  # fmt: skip
    trained.run()
    if store and worker:
        trained.refresh()  # with what the others have trained
    return SweepResults(trained, plan, root, say)


def _status(task: Task) -> str:
    return "finished" if task.status == "there" else task.status


def _words(parameters: Mapping[str, Any], option: str) -> Iterator[Word]:
    for name, values in parameters.items():
        if isinstance(values, str) and option == "param":
            yield f"{name}={values}"
        elif isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise UsageError(f"{option}[{name!r}] is {values!r}: give a list of values")
        elif not (texts := [text_of(value) for value in values]):
            raise UsageError(f"{option}[{name!r}] has no values")
        else:
            yield name, texts
