"""Trains the points of a sweep, a process for each, some at a time, each with GPUs of its own.

A point's run has an id that follows from the sweep's name and the point, so that the same command goes on where an
earlier one was killed: what has finished isn't trained again. What hasn't begins anew in a run of its own, or continues
its run where the program can do that.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trackers.configuration import SWEEP_RUN
from trackers.errors import TrackersError, UsageError, examples
from trackers.journal.run_directory import RunDirectory, folders, is_run, run_paths
from trackers.journal.status import last_status, observe
from trackers.support import confined, machines, processes
from trackers_sweeps.command import arguments, text_of, tree
from trackers_sweeps.gpus import VARIABLES
from trackers_sweeps.ledger import Ledger, PointOutcome, command_text
from trackers_sweeps.plan import SweepPlan, Task, label
from trackers_sweeps.search import Chooser

ASK_S = 30.0
"""Time that a program has to end after Ctrl-C, in seconds, before it is killed."""
BACKGROUND_S = 1.0
"""Between two looks at a run whose program has ended before it."""
POLL_S = 0.05
WATCH_S = 1.0
"""Between two looks at what the runs that are trained now have logged."""
PASS_S = 2.0
"""Between two tries of a worker to claim what others have, in seconds."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if os.name == "posix" else (signal.SIGINT, signal.SIGTERM)
_TELLING = ("/bin/sh", "-c", 'trap : INT TERM HUP; "$@" </dev/null; code=$?; echo $code >&0; exit $code', "sh")
"""Runs a program, and writes its exit code into what it has as standard input, a file that the worker has opened: what
becomes of the program is known if its worker is killed."""
_OPEN = ("waiting", "running")


@dataclass
class _Program:
    """A program that trains a task. process: None where a sweep started it that is gone.

    behind: pid and start of the process whose run goes on in the background, after the program itself has ended.
    looked: when that was last seen. asked: it was told to end. is_mine: what is known of its process is of this user.
    """

    task: Task
    process: subprocess.Popen[bytes] | None
    outcome: PointOutcome
    began: float
    behind: tuple[int, float] | None = None
    looked: float = 0.0
    signalled: bool = False
    is_mine: bool = True

    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return not self.outcome.lives() if self.process is None else self.process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to it and to what it started, but not to another process that has its number now."""
        with contextlib.suppress(OSError):
            if not self.is_mine:  # somebody else says which process it is
                return
            if not self.has_ended():
                os.killpg(self.outcome.pid, number)
                self.signalled = True
            elif self.behind is not None and processes.alive(*self.behind):
                os.kill(self.behind[0], number)
                self.signalled = True


class _Directories(dict[str, str]):
    """Directories of runs by id, looked up one by one: with many workers, a list would be read again and again."""

    def __init__(self, find: Callable[[str], str | None]) -> None:
        super().__init__()
        self._find = find

    def __contains__(self, run_id: object) -> bool:
        return self._find(str(run_id)) is not None

    def __getitem__(self, run_id: str) -> str:
        found = self._find(run_id)
        if found is None:
            raise KeyError(run_id)
        return found

    def get(self, run_id: str, default: Any = None) -> Any:
        """As of any mapping."""
        return self._find(run_id) or default


class Sweep:
    """Trains tasks.

    Args:
        plan: what is trained, and how.
        root: the directory of all runs, on this machine. address: what programs get as TRACKER_DIR; default ``root``.
            copies: gives directories with further runs, as a new copy of a store.
        jobs: runs at a time.
        goes_on: a run that hadn't finished is continued (``TRACKER_RESUME=auto``): the program goes on from a
            checkpoint. Else its point is trained from the beginning, in a run of its own.
        say: called with a line for each run that has ended, and for what else happens.
        show: called with what is trained now, how much is done, and of how much.
        worker: other workers of this sweep train points, too, here and wherever the directory is shared: each point is
            claimed before it is trained. What has failed isn't tried again by a worker.
        share: who can read the sweep's folder, as ``TRACKER_SHARE`` says.
    """

    def __init__(
        self,
        plan: SweepPlan,
        *,
        root: Path,
        jobs: int,
        address: str = "",
        copies: Callable[[], Sequence[Path]] = list,
        goes_on: bool = False,
        say: Callable[[str], None] = print,
        show: Callable[[str, int, int], None] = lambda what, done, total: None,
        worker: bool = False,
        share: str = "owner",
    ) -> None:
        self.name = plan.name
        self.tasks = list(plan.tasks)
        self._ids = [task.id for task in self.tasks]
        self._places = {id(task): place for place, task in enumerate(self.tasks)}
        self.command = list(plan.command)
        self.ledger = Ledger(root, plan.name)
        if worker and address:  # they share the store alone
            from trackers_sweeps.store_claims import StoreLedger

            self.ledger = StoreLedger(root, plan.name, address, self._ids, self._say)
        self._root = root
        self._address = address or str(root.absolute())
        self._copy = copies
        self._copies = list(copies())
        self._jobs = jobs
        self._devices = [list(part) for part in plan.devices]
        self._goes_on = goes_on
        self._environment = dict(plan.environment)
        self._nested = plan.nested if plan.of_file else None
        self._tell = say
        self._show = show
        self._running: dict[int, _Program] = {}
        self._signalled_at = 0.0
        self._signals: list[int] = []
        self._broken = ""
        self._worker = worker
        self._share_with = share
        self._chooser = Chooser(plan.search, self.ledger, plan.name, self._ids) if plan.search is not None else None
        self._watched_at = 0.0
        self._claimed: dict[int, Any] = {}  # leases, by the task's place
        self._pass_at = 0.0

    @property
    def signalled(self) -> int:
        """The signal that ended the sweep; 0 where none did."""
        return self._signals[0] if self._signals else 0

    def run(self) -> bool:
        """Train what hasn't finished. True if all have; Ctrl-C ends what runs and starts nothing more.

        Raises:
            UsageError: another process trains this sweep, its points were trained by another command, or the first
                program can't be started. OSError: nothing can be written there.
        """
        self.ledger.begin(shared=self._worker, share=self._share_with)
        # Whoever started it with nohup, or in the background of a script, has these ignored.
        main = threading.current_thread() is threading.main_thread()  # no other thread can have handlers
        caught = [number for number in _ENDING if main and signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._stop) for number in caught}
        try:
            self._run()
        finally:
            for program in self._running.values():
                program.signal(signal.SIGKILL)
                if program.process is not None:
                    program.process.wait()
            for number, handler in before.items():
                signal.signal(number, handler)
            for lease in self._claimed.values():
                lease.release()
            self.ledger.end()
            for place, task in enumerate(self.tasks) if self._chooser is not None else ():
                trial = self._chooser.trial(place) if self._chooser is not None else None
                if trial is not None:
                    task.point, task.early = trial.point, trial.state == "pruned"
        return all(task.status in ("finished", "there") for task in self.tasks)

    def directories(self) -> dict[str, str]:
        """The directory of each run that there is, by its id."""
        return {Path(path).name: path for root in (*self._copies, self._root) for path in run_paths(root)}

    def refresh(self) -> None:
        """Have newer copies of a store's runs."""
        self._copies = list(self._copy())

    def _directory_of(self, run_id: str) -> str | None:
        for root in (self._root, *self._copies):
            for above in (str(root), *folders(root)):
                if is_run(path := f"{above}/{run_id}"):
                    return path
        return None

    def _run(self) -> None:
        earlier = self.directories()
        for place, task in enumerate(self.tasks):
            if not self._worker:
                self._find(task, earlier)
            elif self.ledger.told(self._ids[place]) == "finished":
                task.status = "there"
            self._learn(task)
        self._check_command()
        waiting = [task for task in self.tasks if task.status == "waiting"]
        if self._worker:
            random.shuffle(waiting)
        begun = False
        while (waiting and not self._is_stopping()) or self._running:
            if self._worker:
                waiting = self._claim_some(waiting)
            while not self._worker and waiting and not self._is_stopping() and len(self._running) < self._jobs:
                self._start(waiting.pop(0))
            if not begun:
                self._begin()
                begun = True
            if self._signals and not self._signalled_at:
                self._forward_signal()
            self._poll()
            self._show(self._now(), sum(task.status not in _OPEN for task in self.tasks), len(self.tasks))
            if self._worker:
                self._keep_claims()
            elif not self.ledger.keep() and not self._broken:
                exists = self.ledger.folder.is_dir()
                self._broken = "another process trains this sweep now" if exists else f"{self.ledger.folder} is gone"
                self._say(f"{self._broken}: nothing more is started here")
            time.sleep(POLL_S)

    def _claim_some(self, waiting: list[Task]) -> list[Task]:
        """Claim points while there is room, and train them. Returns those that wait still: others have them."""
        if self._is_stopping() or len(self._running) >= self._jobs or time.monotonic() < self._pass_at:
            return waiting
        left = list(waiting)
        for task in waiting:
            if self._is_stopping() or len(self._running) >= self._jobs:
                return left
            place = self._places[id(task)]
            if told := self.ledger.told(self._ids[place]):  # as most in the end: without a claim
                task.status = "there" if told == "finished" else "failed"
                self._learn(task)
                left.remove(task)
                continue
            lease = self._claimed.get(place) or self.ledger.claim(self._ids[place])
            if lease is None:
                continue
            task.id = self._ids[place]
            earlier = getattr(lease, "number", 1) > 1
            if earlier:  # another machine's worker has begun it, and is gone; its run may still go on
                self.refresh()
            if self._find_claimed(task):
                left.remove(task)
            elif earlier:
                self._claimed[place] = lease
                continue
            if task.status == "waiting" and task.id == self._ids[place] and earlier and not self._goes_on:
                task.id = f"{task.id}-{lease.number}"
            self._learn(task)
            if task.status == "waiting" and task not in left:
                self._claimed[place] = lease
                self._start(task)
            elif task.status == "running":
                self._claimed[place] = lease
            if task.status != "running":
                self._claimed.pop(place, None)
                self.ledger.tell(self._ids[place], "finished" if task.status == "there" else task.status)
                lease.release()
        self._pass_at = time.monotonic() + (PASS_S if left else 0.0)
        return left

    def _find_claimed(self, task: Task) -> bool:
        """Set the status of a claimed point. False: it is trained elsewhere, by a worker that was killed, or may be."""
        found = _Directories(self._directory_of)
        self._find(task, found)
        if task.status != "waiting":
            return True
        first = task.id if self._goes_on else self._before(task.id)
        if self.ledger.outcome(first).ended == "failed":
            task.id, task.status = first, "failed"
            return True
        directory = found.get(first)
        if directory is not None:
            with contextlib.suppress(TrackersError):
                run = RunDirectory(directory)
                return machines.is_here(run.read_info()) or observe(run).name != "running"
        return True

    def _before(self, run_id: str) -> str:
        """The id of a point's run before the one that is to begin now."""
        base, _, number = run_id.rpartition("-")
        if not number.isdigit() or base not in self._ids:
            return run_id
        return base if int(number) <= 2 else f"{base}-{int(number) - 1}"

    def _keep_claims(self) -> None:
        """Give signs of life for the claimed points; what another worker has taken over, is ended here."""
        for place, lease in list(self._claimed.items()):
            if lease.beat():
                continue
            del self._claimed[place]
            for program in self._running.values():
                if program.task is self.tasks[place]:
                    self._say(f"{program.task.name}: another worker trains it now: it is ended here")
                    program.signal(signal.SIGKILL)

    def _is_stopping(self) -> bool:
        return bool(self._signals or self._broken)

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that is gone must not end what is trained
            self._tell(line)

    def _begin(self) -> None:
        done = sum(task.status == "there" for task in self.tasks)
        shares = f", GPUs {' | '.join(','.join(part) for part in self._devices[: self._jobs])}" if self._devices else ""
        self._say(
            f"sweep {self.name}: {len(self.tasks)} run{'s' * (len(self.tasks) != 1)}"
            + (f", {done} finished before" if done else "")
            + (f"; {self._jobs} at a time{shares}" if self._jobs > 1 or shares else "")
            + f"; what they print: {self.ledger.folder}"
        )

    def _now(self) -> str:
        names = [program.task.name for program in self._running.values()]
        return f"training {examples(names, 3)}" if names else "training"

    def _check_command(self) -> None:
        """Points that another command trained don't count as trained by this one."""
        earlier = self.ledger.command()
        done = sum(task.status != "waiting" for task in self.tasks)
        if done and earlier and earlier != self.command:
            self._running.clear()
            raise UsageError(
                f"sweep {self.name!r} has {done} of these points from another command ({command_text(earlier)}): give "
                "another --name, or that command"
            )
        if earlier != self.command:
            self.ledger.note_command(self.command)

    def _find(self, task: Task, earlier: Mapping[str, str]) -> None:
        """Set a task's status if it was done before or is still being trained; else the id of its next run."""
        first, number = task.id, 1
        while True:
            next_id = f"{first}-{number + 1}"
            if not (next_id in earlier or self.ledger.was_started(next_id)):
                break
            task.id, number = next_id, number + 1
        if task.id not in earlier and not self.ledger.was_started(task.id):
            return
        outcome = self.ledger.outcome(task.id)
        behind = None if outcome.ended in ("finished", "failed") else self._trainer(earlier.get(task.id))
        if outcome.lives() or behind is not None:
            self._adopt(task, outcome, behind)
        elif outcome.ended == "finished" or (
            not outcome.ended and task.id in earlier and last_status(RunDirectory(earlier[task.id])).name == "finished"
        ):
            task.status = "there"
        elif not self._goes_on:
            task.id = next_id

    @staticmethod
    def _trainer(directory: str | None) -> tuple[int, float] | None:
        """The process of this machine that trains a run now, by pid and start."""
        if directory is None:
            return None
        run = RunDirectory(directory)
        with contextlib.suppress(TrackersError):
            info = run.read_info()
            if machines.is_here(info) and observe(run).name == "running":
                return info.pid, info.pid_start
        return None

    def _adopt(self, task: Task, outcome: PointOutcome, behind: tuple[int, float] | None) -> None:
        """Wait for a program that an ended sweep started, instead of training its point twice."""
        task.status = "running"
        free = [number for number in range(self._jobs) if number not in self._running]
        same = [number for number in free if set(self._share(number)) & set(outcome.devices)]
        slot = (same or free or [max(self._running, default=0) + self._jobs])[0]
        mine = self.ledger.is_mine(task.id)
        self._running[slot] = _Program(task, None, outcome, time.monotonic(), behind, is_mine=mine)
        self._say(f"{task.name}: still trained, begun by a sweep that is gone: waiting for it")

    def _share(self, slot: int) -> list[str]:
        return self._devices[slot] if slot < len(self._devices) else []

    def _start(self, task: Task) -> None:
        slot = next(number for number in range(self._jobs) if number not in self._running)
        log = self.ledger.log(task.id)
        new = not log.exists()
        if self._chooser is not None and not self._choose(task):
            return
        try:
            task_file = self.ledger.given(task.id, "args")
            words = arguments(self.command, task.point, self._nested, task_file)
            started = [*_TELLING, *words] if self._worker else words
            environment = {**self._variables(task), **dict.fromkeys(VARIABLES, ",".join(self._share(slot)))} \
                if self._devices else self._variables(task)  # fmt: skip
            if any("${args_json_file}" in word for word in self.command):
                self.ledger.write_parameters(task_file, tree(task.point, self._nested or {}))
            opened = confined.open_file(log, "ab", root=self.ledger.folder)
            with opened:
                opened.write(f"$ {shlex.join(words)}\n".encode("utf-8", "replace"))
        except OSError as error:
            self._broken = f"can't write {log}: {error.strerror or error}"
            self._say(f"{self._broken}: nothing more is started")
            return
        try:
            with contextlib.ExitStack() as files:
                output = files.enter_context(confined.open_file(log, "ab", root=self.ledger.folder))
                told: Any = subprocess.DEVNULL
                if self._worker:
                    code = self.ledger.exit_code(task.id)
                    told = files.enter_context(confined.open_file(code, "wb", root=self.ledger.folder))
                process = subprocess.Popen(
                    started, stdin=told, stdout=output, stderr=subprocess.STDOUT, env=environment,
                    start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as error:
            why = f"can't start {command_text(words)}: {getattr(error, 'strerror', '') or error}"
            if new:
                with contextlib.suppress(OSError):
                    confined.remove(log, root=self.ledger.folder)
            if all(entry.status in ("waiting", "there") for entry in self.tasks):  # none of them could be
                raise UsageError(why) from None
            task.status = "failed"
            self._say(f"{self._count()} {task.name}: failed, {why}")
            return
        here = machines.machine()
        outcome = PointOutcome(
            pid=process.pid, start=processes.process_start(process.pid), host=here.host, boot_id=here.boot_id,
            pid_namespace=here.pid_namespace, devices=self._share(slot),
        )  # fmt: skip
        self.ledger.note(task.id, outcome)
        task.status = "running"
        self._running[slot] = _Program(task, process, outcome, time.monotonic())

    def _choose(self, task: Task) -> bool:
        """Have the point of a task that is to begin now. False: it can't be written, and nothing more is started."""
        assert self._chooser is not None
        try:
            if not task.point:
                task.point = self._chooser.choose(self._places[id(task)], task.point)
                task.name = label(task.point)
            else:
                self._chooser.choose(self._places[id(task)], task.point)
        except OSError as error:
            self._broken = f"can't write {self.ledger.folder}: {error.strerror or error}"
            self._say(f"{self._broken}: nothing more is started")
            return False
        return True

    def _watch(self) -> None:
        """Have runs that fall behind asked to stop, once a second."""
        if self._chooser is None or time.monotonic() < self._watched_at:
            return
        self._watched_at = time.monotonic() + WATCH_S
        for program in self._running.values():
            directory = self._directory_of(program.task.id)
            if directory is not None:
                with contextlib.suppress(OSError, TrackersError):  # the next look may do
                    if why := self._chooser.watch(self._places[id(program.task)], directory):
                        self._say(f"{program.task.name}: {why}: it is asked to stop")

    def _learn(self, task: Task) -> None:
        """Note what a task came to; also of one whose worker was killed, and whose program went on to its end."""
        place = self._places[id(task)]
        if self._chooser is None or task.status not in ("finished", "there", "failed"):
            return
        trial = self._chooser.trial(place)
        if task.status == "finished" or trial is None or not trial.state:
            with contextlib.suppress(OSError, TrackersError):
                directory = self._directory_of(task.id)
                if lacks := self._chooser.ended(place, directory, failed=task.status == "failed"):
                    self._say(f"{task.name}: {lacks}: the search learns nothing from it")
                trial = self._chooser.trial(place)
        task.early = trial is not None and trial.state == "pruned"

    def _variables(self, task: Task) -> dict[str, str]:
        """The environment variables of a task's program."""
        environment = {
            **os.environ,
            **self._environment,
            "TRACKER_RUN_ID": task.id,
            SWEEP_RUN: task.id,
            "TRACKER_RUN_NAME": task.name,
            "TRACKER_GROUP": self.name,
            "TRACKER_RESUME": "auto" if self._goes_on else "never",
            "TRACKER_DIR": self._address,
        }
        if self._nested is not None:  # what ``wandb agent`` gives
            path = self.ledger.given(task.id, "config")
            values = tree(task.point, self._nested)
            self.ledger.write_parameters(path, {name: {"value": value} for name, value in values.items()})
            environment["WANDB_SWEEP_PARAM_PATH"] = str(path.absolute())
        return environment

    def _poll(self) -> None:
        self._watch()
        for slot, program in list(self._running.items()):
            if self._signalled_at and time.monotonic() - self._signalled_at > ASK_S:
                program.signal(signal.SIGKILL)
            if not program.has_ended() or self._in_background(program):
                continue
            del self._running[slot]
            self._end(program)

    def _in_background(self, program: _Program) -> bool:
        """Whether the run of a program that has ended is still trained, asked at most once a second."""
        if program.process is not None and program.process.returncode:
            return False
        if program.behind is not None and time.monotonic() - program.looked < BACKGROUND_S:
            return True
        program.looked = time.monotonic()
        new, program.behind = program.behind is None, self._trainer(self._directory_of(program.task.id))
        if program.behind is not None and new:
            self._say(f"{program.task.name}: its program has ended, its run is still trained: waiting for it")
        return program.behind is not None

    def _end(self, program: _Program) -> None:
        task = program.task
        task.code = program.process.returncode if program.process is not None else None
        task.seconds = time.monotonic() - program.began
        directory = self._directory_of(task.id) if not task.code else None
        status = observe(RunDirectory(directory)).name if directory else ""
        why = ""
        if task.code:
            why = f"signal {-task.code}" if task.code < 0 else f"exit code {task.code}"
        elif status in ("failed", "preempted"):
            why = f"exit code 0, but its run is {status}"
        elif task.code is None and status not in ("finished", "stopped"):
            why = f"it ended after its sweep was gone, and its run is {status}" if status else \
                "how it ended wasn't seen: its sweep was gone"  # fmt: skip
        # Whoever ends in good order because it was told to has exit code 0, too, and hasn't trained all.
        task.status = "stopped" if program.signalled else "failed" if why else "finished"
        self.ledger.note(task.id, PointOutcome(ended=task.status))
        self._learn(task)
        how = ("stopped early" if task.early else task.status) if task.status != "failed" else \
            f"failed, {why}: {self.ledger.last_line(task.id)}; see {self.ledger.log(task.id)}"  # fmt: skip
        self._say(f"{self._count()} {task.name}: {how} ({task.seconds:.1f} s)")
        place = self._places[id(task)]
        self.ledger.tell(self._ids[place], task.status)
        if place in self._claimed:
            self._claimed.pop(place).release()
            self._pass_at = 0.0

    def _count(self) -> str:
        return f"{sum(task.status not in _OPEN for task in self.tasks)}/{len(self.tasks)}"

    def _stop(self, number: int, _: Any) -> None:
        again = bool(self._signals)
        self._signals.append(number)
        if again:
            for program in self._running.values():
                program.signal(signal.SIGKILL)

    def _forward_signal(self) -> None:
        """Forward the first signal to all programs."""
        self._signalled_at = time.monotonic()
        for program in self._running.values():
            program.signal(self._signals[0])
        if self._running:
            self._say(
                f"{signal.Signals(self._signals[0]).name}: nothing more is started; "
                f"{examples([program.task.name for program in self._running.values()], 3)} "
                f"{'have' if len(self._running) > 1 else 'has'} {ASK_S:.0f} s to end; once more kills at once"
            )


def results(
    directories: Mapping[str, str], root: Path, work: Sequence[Task], metric: str, goal: str, say: Callable[[str], None]
) -> tuple[str, list[tuple[Task, Any]]]:
    """The metric's name and each task's value, the best first, then those without one.

    Args:
        directories: the directory of each run, by its id. metric: as for ``trackers best``; "", or one that no run has:
            the first result of which is known whether small or large is better.
        goal: "min", "max" or "".
        say: called with a line about a metric that can't be had.
    """
    from trackers.analysis.best import best
    from trackers.analysis.collect import gather

    known = [directories[task.id] for task in work if task.id in directories]
    runs = gather(known, root).runs if known else []
    for chosen in [name for name in (metric, next((name for run in runs for name in _candidates(run)), "")) if name]:
        if not runs:
            break
        try:
            ranked = {entry.run.id: entry.value for entry in best(runs, chosen, goal or None, top=None)}
        except TrackersError as error:
            if chosen == metric:
                say(f"the table isn't sorted by {metric!r}: {error}")
            continue
        order = {run_id: rank for rank, run_id in enumerate(ranked)}
        ordered = sorted(work, key=lambda task: order.get(task.id, len(order)))
        return chosen, [(task, ranked.get(task.id)) for task in ordered]
    return "", [(task, None) for task in work]


def _candidates(run: Any) -> list[str]:
    finals = [f"final/{name}" for name in run.summary if run.direction(name)]
    logged = [name for name in run.folds if run.direction(name)]
    return finals + sorted(logged, key=lambda name: not re.match(r"(val|eval|test)", name))


def table(work: Sequence[tuple[Task, Any]], metric: str) -> tuple[list[str], list[list[Any]]]:
    """Headers and rows: parameters with more than one value, the metric, how it ended."""
    every = list(dict.fromkeys(name for task, _ in work for name in task.point))
    names = [name for name in every if len({text_of(task.point.get(name)) for task, _ in work}) > 1] or every
    headers = ["run", *names, *([metric] if metric else []), "status"]
    rows: list[list[Any]] = [
        [task.id, *(task.point.get(name) for name in names), *([value] if metric else []),
         "stopped early" if task.early else "finished" if task.status == "there" else task.status]
        for task, value in work
    ]  # fmt: skip
    return headers, rows
