"""The run of a framework's logger: one that was given, the current one, or one of its own, begun at the first use.

A logger keeps a :class:`RunHandle` as ``self._handle`` and marks its hooks with :func:`guarded`::

    class TrackersCallback(Callback):
        def __init__(self, trackers=None, *, run=None, project=None, name=None, config=None, **init):
            self._handle = RunHandle(trackers, run=run, project=project, name=name, config=config, **init)

        @guarded
        def on_epoch_end(self, epoch, logs):
            self._handle.run.log(logs, step=epoch)

        @guarded
        def on_train_end(self):
            self._handle.finish()        # does nothing to a run that the user began
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing.context
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from trackers.errors import NotFound, UsageError
from trackers.journal.run_directory import new_id
from trackers.support import launcher
from trackers.support.interruption import pass_on
from trackers.training.exit_hooks import exception_exit, exit_of
from trackers.training.init import current, init
from trackers.training.stopping import RankStopping

Hook = TypeVar("Hook", bound=Callable[..., Any])

_begun: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""Runs of this process that loggers began, by id: another logger doesn't take one of them for the user's own."""
_resting: set[RunHandle] = set()
"""Whose training has ended: their runs are ended when another one begins."""


def guarded(hook: Hook) -> Hook:
    """A logger's method that never stops training: what it raises is printed once, in one line.

    Before the run has begun, UsageError and NotFound go to the caller: a wrong option or a missing package is an error
    before the first step.
    """

    @functools.wraps(hook)
    def method(self: Any, *arguments: Any, **more: Any) -> Any:
        handle: RunHandle = self._handle
        try:
            return hook(self, *arguments, **more)
        except (UsageError, NotFound) as error:
            if not handle.begun:
                raise
            handle.say(f"{type(self).__name__}.{hook.__name__}: {error}; training goes on")
        except Exception as error:
            pass_on(error)
            handle.say(f"{type(self).__name__}.{hook.__name__}: {type(error).__name__}: {error}; training goes on")
        return None

    return method  # type: ignore[return-value]


def model_sizes(model: Any) -> dict[str, int]:
    """How many parameters a PyTorch module has, as settings of the run."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    trained = sum(size for size, trains in sizes if trains)
    return {"model/num_parameters": sum(size for size, _ in sizes), "model/num_trainable_parameters": trained}


class Asked(NamedTuple):
    """What a training is asked to do at this step, the same on all its processes."""

    stop: bool = False
    save: bool = False


class ProcessBoard:
    """How the processes of ``torch.distributed`` agree: by its key-value store, never by a collective, which would
    wait for ever where one of them doesn't take part.

    Each process makes as many of these as the others, in the same order: the first, second … of each belong together.
    """

    _numbers = itertools.count()

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._store, self._others = store, ranks - 1
        self._key = f"trackers/control/{next(self._numbers)}"
        if rank:
            store.add(f"{self._key}/looks", 1)

    def read(self) -> tuple[int, int]:
        """At which look all stop, and save; (0, 0): not yet."""
        if not self._store.check([self._key]):
            return (0, 0)
        stop, save = self._store.get(self._key).decode().split()
        return int(stop), int(save)

    def write(self, agreed: tuple[int, int]) -> None:
        """Say at which. Raises OSError."""
        try:
            self._store.set(self._key, f"{agreed[0]} {agreed[1]}")
        except RuntimeError as error:
            raise OSError(str(error)) from None

    def why_not(self) -> str:
        """Why they can't agree; "" where all look."""
        lacking = self._others - int(self._store.add(f"{self._key}/looks", 0))
        return f"{lacking} of its processes have no callback of trackers" if lacking > 0 else ""


class RunHandle:
    """Takes or begins a run when it is first needed, and ends it only if it began it.

    Args:
        trackers, project, name, config, **init: as for ``trackers.init``. An ``id`` continues the run of that id where
            there is one (``resume="allow"``).
        run: the run to log to. None: the current run, unless a logger began that; else a new one.
        alone: a new run in any case.

    Attributes:
        begun: a run was taken or begun at least once. own: the run was begun here, and is ended here.

    A copy made by ``copy.deepcopy`` shares the run, and so does a pickled one, in this process and in those that it
    spawns. Where the process that began the run is gone, a pickled one continues the run by its id.
    """

    def __init__(
        self,
        trackers: str | Sequence[str] | None = None,
        *,
        run: Any = None,
        project: str | None = None,
        name: str | None = None,
        config: Any = None,
        alone: bool = False,
        **init: Any,
    ) -> None:
        named = {"trackers": trackers, "project": project, "name": name, "config": config, **init}
        self._init = {key: value for key, value in named.items() if value is not None}
        self._asked = frozenset(self._init) - {"config", "resume", "rank"}
        self._run, self._alone = run, alone
        self._said: set[str] = set()
        self._board: ProcessBoard | None = None
        self._stopping: Any = None
        self._asks: Any = None
        self.begun = False
        self.own = False

    @property
    def run(self) -> Any:
        """The run; begins one if there is none.

        Raises:
            UsageError, NotFound: as ``trackers.init``.
        """
        run = self._run
        _resting.discard(self)
        if run is None or run.finished:
            if run is not None:
                self._continue_later()
            run = self._run = self._take()
        self.begun = True
        return run

    @property
    def known(self) -> Any:
        """The run, or None where none was taken or begun yet."""
        return self._run

    @property
    def id(self) -> str | None:
        """The run's id; None while neither an id was given nor a run begun."""
        if self._run is not None:
            return str(self._run.id) or None
        run_id = self._init.get("id")
        return None if run_id is None else str(run_id)

    def argument(self, name: str) -> Any:
        """What was given for an argument of ``init``, or None."""
        return self._init.get(name)

    def suggest(self, **arguments: Any) -> None:
        """Take these arguments of ``init`` for a run that isn't begun yet, where the user gave none."""
        for name, value in arguments.items():
            if value is not None:
                self._init.setdefault(name, value)

    def next(self, **arguments: Any) -> None:
        """End the own run, and begin another one at the next use, with these arguments of ``init`` changed."""
        self.finish()
        for name in ("id", "resume", "step"):
            self._init.pop(name, None)
        self._init.update(arguments)
        self._run = None

    def asked(self) -> Asked:
        """What training is asked to do: to be called at each step, on every process that trains.

        Of several processes of ``torch.distributed`` all are told at the same call. If one of them never calls this,
        nobody is told, and training goes on.
        """
        distributed = launcher.torch_distributed()
        ranks = int(distributed.get_world_size()) if distributed is not None else 1
        rank = int(distributed.get_rank()) if ranks > 1 else 0
        if self._board is None and ranks > 1:
            self._board = ProcessBoard(distributed.distributed_c10d._get_default_store(), rank, ranks)
        if rank:
            if self._stopping is None:
                self._stopping = RankStopping(self._board, self.say)
        else:
            run = self._run
            if run is None or run.disabled or run.finished:
                return Asked()
            if self._stopping is None or self._asks is not run:
                self._stopping, self._asks = run._stopping_for(self._board), run
            self._stopping.save_look.left -= 1
            self._stopping.stop_look.left -= 1
        return Asked(save=self._stopping.save_due(), stop=self._stopping.stop_due())

    def ask_anew(self) -> None:
        """Another training begins: its processes agree anew. To be called on every one of them."""
        self._board = self._stopping = self._asks = None

    def rest(self) -> None:
        """Training has ended, and the own run goes on if there is more: until another logger's run begins."""
        if self.own:
            _resting.add(self)

    def rewind(self, step: int) -> None:
        """Go back in the own run: what it has after ``step`` is replaced from here on; see ``init(step=…)``."""
        if self.own and self._run is not None:
            self._continue_later()
            self._run.finish(timeout=0.0, quiet=True)
            self._init["step"] = step
            self._run = None

    def finish(self, exit_code: int | None = None, timeout: float | None = None) -> None:
        """End the run if it was begun here. A later use continues it. exit_code, timeout: as for ``Run.finish``."""
        if self.own and self._run is not None and not self._run.finished:
            self._continue_later()
            self._run.finish(exit_code, timeout=timeout)

    def fail(self, error: BaseException | None = None) -> None:
        """End the run as failed if it was begun here.

        Args:
            error: the reason; default the exception that is being handled, if any.
        """
        error = error or sys.exc_info()[1]
        if not self.own or self._run is None or self._run.finished:
            return
        self._continue_later()
        end = exit_of(error) if isinstance(error, SystemExit) else exception_exit(error)
        self._run.leave(end.code, end.reason)

    def say(self, text: str) -> None:
        """Print a line on stderr, once. Never raises."""
        from trackers.journal.messages import show_once

        show_once(text, self._said)

    def _take(self) -> Any:
        open_run = _begun.get(self.id or "")
        if open_run is not None and not open_run.finished:
            self.own = True
            return open_run
        here = self._users_run()
        if here is not None:
            if self._asked:
                ignored = ", ".join(sorted(self._asked))
                self.say(f"the current run {here.name or here.id} is used: {ignored} of the logger is ignored")
            if self._init.get("config") is not None:
                here.config.update(self._init["config"])
            return here
        if self._init.get("id") is not None:
            self._init.setdefault("resume", "allow")
        for other in list(_resting):
            _resting.discard(other)
            other.finish()
        # A framework's logger logs on the framework's rank zero, whatever rank TRACKER_RANK names.
        options = {"TRACKER_RANK": "0", **(self._init.get("options") or {})}
        run = init(**{"rank": 0, "reinit": "create_new", **self._init, "options": options})
        self._init.pop("step", None)
        self.own = True
        if run.id and not run.disabled:
            _begun[run.id] = run
        return run

    def _users_run(self) -> Any:
        """The current run, if the script began it."""
        here = current()
        if here is None or here.finished or self.own or self._alone or _begun.get(here.id) is here:
            return None
        return here

    def _continue_later(self) -> None:
        if self._run is not None and self._run.id:
            self._init |= {"id": self._run.id, "project": self._run.project, "resume": "allow"}

    def __deepcopy__(self, memo: dict[int, Any]) -> RunHandle:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._init, copied._said = dict(self._init), set(self._said)
        copied.ask_anew()
        memo[id(self)] = copied
        return copied

    def __getstate__(self) -> dict[str, Any]:
        run = self._run or self._users_run()
        if run is None and multiprocessing.context.get_spawning_popen() is not None:
            run = self.run  # so that what is spawned logs to a run of this process
        if run is not None and run.finished:
            run = None
        self._continue_later()
        if run is None and "id" not in self._init:
            # All copies, in whatever processes, are of one run.
            self._init |= {"id": new_id(), "resume": "allow"}
        own = dict.fromkeys(("_board", "_stopping", "_asks"))
        return {
            **self.__dict__,
            **own,
            "_run": run,
            "_said": set(),
            "_from": (os.getpid(), run is not None and run.disabled),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        pid, disabled = state.pop("_from")
        self.__dict__.update(state)
        if pid != os.getpid():
            self.own = False  # the process that began the run ends it
        if self._run is not None and self._run.disabled and not disabled:
            self._run = None  # that process is gone: the run is continued by its id
