"""Trains the points of a sweep, a process for each, some at a time, each with GPUs of its own.

A point's run has an id that follows from the sweep's name and the point, so that the same command goes on where an
earlier one was killed: what has finished isn't trained again. What hasn't begins anew in a run of its own, or continues
its run where the program can do that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import TrackersError, UsageError
from trackers.hardware.gpus.detect import NVIDIA_DEVICE
from trackers.hardware.host import NVIDIA_CARDS
from trackers.journal.run_directory import RunDirectory, run_places
from trackers.journal.status import last_status
from trackers.support import confined
from trackers.sweeps.space import Point

LOGS = ".sweeps"
"""Folder of a directory of runs with what the programs of sweeps printed."""
ASK_S = 10.0
"""Time that a program has to end after Ctrl-C, in seconds, before it is killed."""
POLL_S = 0.05


class Task(msgspec.Struct):
    """One point. status: waiting, running, finished, failed, stopped, or there (it had finished before)."""

    point: Point
    id: str
    name: str
    status: str = "waiting"
    code: int | None = None
    seconds: float = 0.0


def tasks(name: str, points: Sequence[Point]) -> list[Task]:
    """A task for each point, each with an id of its own that is the same every time."""
    found = []
    for point in points:
        digest = hashlib.sha256(msgspec.json.encode([name, point], order="sorted")).hexdigest()[:10]
        label = "-".join(f"{key.rpartition('.')[2]}{_text(value)}" for key, value in point.items())
        found.append(Task(point, f"{_plain(name)[:60]}-{digest}", _plain(label)[:100] or digest))
    return found


def arguments(command: Sequence[str], point: Point) -> list[str]:
    """The words that train a point.

    ``{NAME}`` stands for a value. Without any of these, and without W&B's ``${args}``, ``${args_no_hyphens}``,
    ``${args_no_boolean_flags}``, ``${args_json}`` and ``${args_json_file}``, the values follow as ``--NAME=VALUE``.

    Raises:
        UsageError: ``${args_json_file}``, which isn't done here.
    """
    pairs = [f"{name}={_text(value)}" for name, value in point.items()]
    flags = [f"--{pair}" for pair in pairs]
    switches = [f"--{name}" if value is True else f"--{name}={_text(value)}"
                for name, value in point.items() if value is not False]  # fmt: skip
    macros = {
        "${env}": ["/usr/bin/env"], "${interpreter}": [sys.executable], "${args}": flags, "${args_no_hyphens}": pairs,
        "${args_no_boolean_flags}": switches, "${args_json}": [json.dumps(point)],
    }  # fmt: skip
    if "${args_json_file}" in command:
        raise UsageError("${args_json_file} isn't done here: use ${args_json}")
    named = any(f"{{{name}}}" in word for word in command for name in point)
    found: list[str] = []
    for word in command:
        if word in macros:
            found += macros[word]
            continue
        for name, value in point.items():
            word = word.replace(f"{{{name}}}", _text(value))
        found.append(word)
    if not named and not any(word.startswith("${args") for word in command):
        found += flags
    return found


def gpus(given: str, each: int) -> list[list[str]]:
    """GPUs for each run that trains at the same time; [] where the machine has none, or none shall be dealt out.

    Args:
        given: ``auto``, ``none``, or indices and UUIDs as in CUDA_VISIBLE_DEVICES. each: how many a run gets.

    Raises:
        UsageError: fewer are there than a run gets.
    """
    if given == "none":
        return []
    found = [word.strip() for word in given.split(",") if word.strip()] if given != "auto" else _visible()
    if given == "auto" and not found:
        return []
    if len(found) < each:
        raise UsageError(f"{len(found)} GPUs are there, and each run gets {each}: --gpus-per-run {max(1, len(found))}")
    return [found[at : at + each] for at in range(0, len(found) - each + 1, each)]


def _visible() -> list[str]:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in os.environ:
            return [word.strip() for word in os.environ[name].split(",") if word.strip() and word.strip() != "-1"]
    with contextlib.suppress(OSError):
        if NVIDIA_DEVICE.exists():
            return [str(number) for number in range(len(list(NVIDIA_CARDS.iterdir())))]
    return []


class Sweep:
    """Trains tasks.

    Args:
        name: of the sweep: the runs' group. root: the directory of all runs. command: see :func:`arguments`.
        jobs: runs at a time. devices: of each of these, see :func:`gpus`.
        goes_on: a run that hadn't finished is continued (``TRACKER_RESUME=auto``): the program goes on from a
            checkpoint. Else its point is trained from the beginning, in a run of its own.
        environment: more variables for the programs.
        say: called with a line for each run that has ended.
    """

    def __init__(
        self,
        name: str,
        work: Sequence[Task],
        command: Sequence[str],
        *,
        root: Path,
        jobs: int,
        devices: Sequence[Sequence[str]] = (),
        goes_on: bool = False,
        environment: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.name = name
        self.tasks = list(work)
        self.command = list(command)
        self.logs = root / LOGS / _plain(name)
        self._root = root
        self._jobs = jobs
        self._devices = [list(part) for part in devices]
        self._goes_on = goes_on
        self._environment = dict(environment or {})
        self._say = say
        self._running: dict[int, tuple[Task, subprocess.Popen[bytes], float]] = {}
        self._stopping = 0.0

    def run(self) -> bool:
        """Train what hasn't finished. True if all have; Ctrl-C ends what runs and starts nothing more."""
        self._root.mkdir(parents=True, exist_ok=True)
        confined.make_folder(self.logs, root=self._root)
        earlier = {Path(path).name: path for path in run_places(self._root)}
        for task in self.tasks:
            self._find(task, earlier)
        waiting = [task for task in self.tasks if task.status == "waiting"]
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while (waiting and not self._stopping) or self._running:
                while waiting and not self._stopping and len(self._running) < self._jobs:
                    self._start(waiting.pop(0))
                self._look()
                time.sleep(POLL_S)
        finally:
            for _task, process, _began in self._running.values():
                _kill(process, signal.SIGKILL)
                process.wait()
            for number, handler in before.items():
                signal.signal(number, handler)
        return all(task.status in ("finished", "there") for task in self.tasks)

    def _find(self, task: Task, earlier: Mapping[str, str]) -> None:
        """Find out whether a task was done before, else the id of its next run."""
        first, number = task.id, 1
        while True:
            next_id = f"{first}-{number + 1}"
            if not (next_id in earlier or self._log(next_id).exists()):
                break
            task.id, number = next_id, number + 1
        if task.id not in earlier and not self._log(task.id).exists():
            return
        done = self._done(task).exists() if task.id not in earlier else (
            last_status(RunDirectory(earlier[task.id])).name == "finished"
        )  # fmt: skip
        if done:
            task.status = "there"
        elif not self._goes_on:
            task.id = next_id

    def _start(self, task: Task) -> None:
        slot = next(number for number in range(self._jobs) if number not in self._running)
        environment = {
            **os.environ,
            **self._environment,
            "TRACKER_RUN_ID": task.id,
            "TRACKER_RUN_NAME": task.name,
            "TRACKER_GROUP": self.name,
            "TRACKER_RESUME": "auto" if self._goes_on else "never",
            "TRACKER_DIR": str(self._root.absolute()),
        }
        if self._devices:
            chosen = ",".join(self._devices[slot])
            environment.update(dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), chosen))
        words = arguments(self.command, task.point)
        try:
            with confined.open_file(self._log(task.id), "ab", root=self.logs) as log:
                log.write(f"$ {shlex.join(words)}\n".encode("utf-8", "replace"))
                log.flush()
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment,
                    start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as error:
            raise UsageError(
                f"can't start {shlex.join(words)[:200]}: {getattr(error, 'strerror', '') or error}"
            ) from None
        task.status = "running"
        self._running[slot] = task, process, time.monotonic()

    def _log(self, run_id: str) -> Path:
        return self.logs / f"{run_id}.log"

    def _last_line(self, run_id: str) -> str:
        with contextlib.suppress(OSError), confined.open_file(self._log(run_id), root=self.logs) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
            if lines and not lines[-1].startswith("$ "):
                return lines[-1].strip()[:200]
        return "it printed nothing"

    def _done(self, task: Task) -> Path:
        return self.logs / f"{task.id}.done"

    def _look(self) -> None:
        for slot, (task, process, began) in list(self._running.items()):
            code = process.poll()
            if code is None:
                if self._stopping and time.monotonic() - self._stopping > ASK_S:
                    _kill(process, signal.SIGKILL)
                continue
            del self._running[slot]
            task.code, task.seconds = code, time.monotonic() - began
            task.status = "finished" if code == 0 else "stopped" if self._stopping else "failed"
            if code == 0:  # a program need not record anything
                confined.touch(self._done(task))
            done = sum(entry.status not in ("waiting", "running") for entry in self.tasks)
            how = (
                task.status
                if code == 0 or self._stopping
                else f"failed, {_reason(code)}: {self._last_line(task.id)}; see {self._log(task.id)}"
            )
            self._say(f"{done}/{len(self.tasks)} {task.name}: {how} ({task.seconds:.1f} s)")

    def _stop(self, number: int, _: Any) -> None:
        first = not self._stopping
        self._stopping = self._stopping or time.monotonic()
        for _task, process, _began in self._running.values():
            _kill(process, number if first else signal.SIGKILL)


def results(root: Path, work: Sequence[Task], metric: str, goal: str) -> tuple[str, list[tuple[Task, Any]]]:
    """The metric's name and each task's value, the best first, then those without one.

    Args:
        metric: as for ``trackers best``; "": the first result of which is known whether small or large is better.
        goal: "min", "max" or "".

    Raises:
        UsageError, NotFound: as :func:`trackers.analysis.best.best`, for a metric that was given.
    """
    from trackers.analysis.best import best
    from trackers.analysis.collect import gather

    places = {Path(path).name: path for path in run_places(root)}
    known = [places[task.id] for task in work if task.id in places]
    runs = gather(known, root).runs if known else []
    chosen = metric or next((name for run in runs for name in _candidates(run)), "")
    if not chosen or not runs:
        return metric, [(task, None) for task in work]
    try:
        ranked = {entry.run.id: entry.value for entry in best(runs, chosen, goal or None, top=None)}
    except TrackersError:
        if metric:
            raise
        ranked = {}
    order = {run_id: place for place, run_id in enumerate(ranked)}
    ordered = sorted(work, key=lambda task: order.get(task.id, len(order)))
    return chosen, [(task, ranked.get(task.id)) for task in ordered]


def _candidates(run: Any) -> list[str]:
    finals = [f"final/{name}" for name in run.summary if run.direction(name)]
    logged = [name for name in run.folds if run.direction(name)]
    return finals + sorted(logged, key=lambda name: not re.match(r"(val|eval|test)", name))


def table(work: Sequence[tuple[Task, Any]], metric: str) -> tuple[list[str], list[list[Any]]]:
    """Headers and rows: parameters with more than one value, the metric, how it ended."""
    every = list(dict.fromkeys(name for task, _ in work for name in task.point))
    names = [name for name in every if len({_text(task.point.get(name)) for task, _ in work}) > 1] or every
    headers = ["run", *names, *([metric] if metric else []), "status"]
    rows: list[list[Any]] = [
        [task.id, *(task.point.get(name) for name in names), *([value] if metric else []),
         "finished" if task.status == "there" else task.status]
        for task, value in work
    ]  # fmt: skip
    return headers, rows


def name_of(command: Sequence[str], points: Sequence[Mapping[str, Any]]) -> str:
    """A sweep's name where none is given: of the program, and of what is trained; the same for the same command."""
    program = next((Path(word).stem for word in command if word.endswith((".py", ".sh"))), Path(command[0]).name)
    digest = hashlib.sha256(msgspec.json.encode([list(command), list(points)], order="sorted")).hexdigest()[:6]
    return f"{_plain(program)}-sweep-{digest}"


def _kill(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


def _reason(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, (list, dict)) else str(value)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-") or "sweep"
