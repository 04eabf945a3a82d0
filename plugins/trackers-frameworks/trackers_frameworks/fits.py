"""Fits of a framework and the runs that record them: what callbacks of libraries with a ``fit`` or ``train`` share.

A callback records into the run that it was given or that is open, and leaves that run open. Where there is none, each
fit gets a run of its own, which ends with the fit. A ``with`` block around several fits gives them one run:

    with TrackersCallback("json,mlflow", project="prices") as tracking:
        booster = xgboost.train(parameters, data, callbacks=[tracking])

Such a run ends as failed where the block raises. Without a block, a fit that raises is seen when the process ends, or
when the next fit of the callback begins.

A fit whose metrics the run has already gets names of its own, which begin with ``fit-2/``, ``fit-3/`` …, unless it
goes on after the run's last step.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from trackers.errors import reason
from trackers.frameworks.shared import RunHandle
from trackers.support.interruption import pass_on, suppress

ENDED_EARLY = "training ended before its last step"


class Fits(RunHandle):
    """The run of the current fit, and the names that the fit has there.

    Args:
        trackers, run, init: as for :class:`RunHandle`.

    Attributes:
        prefix: what the names of this fit begin with; None before its first value.
        rows: rows recorded in this fit.
    """

    def __init__(self, trackers: Any = None, *, run: Any = None, **init: Any) -> None:
        super().__init__(trackers, run=run, **init)
        self._held = False
        self._chosen = set(self._init)
        self._config: dict[str, Any] = {}
        self.prefix: str | None = None
        self.rows = 0

    def begin(self, config: Mapping[str, Any] | None = None, **named: Any) -> None:
        """A fit begins: take the run that was given or is open, else begin one.

        Args:
            config: of the fit; what the run's configuration has already stays.
            named: arguments of ``trackers.init`` for a new run, where the user gave none.

        Raises:
            UsageError, NotFound: as ``trackers.init``.
        """
        if self.own and not (self._held and self.is_open):
            if self.is_open:
                self.known.fail(1, ENDED_EARLY)
            self.next()
            self.own = False  # the user may have begun a run since
        self._init |= {name: value for name, value in named.items() if value is not None and name not in self._chosen}
        self.prefix, self.rows, self._config = None, 0, dict(config or {})
        self.run.config  # noqa: B018 - begins the run

    @property
    def is_open(self) -> bool:
        """A run was taken or begun, and hasn't ended."""
        return self.known is not None and not self.known.finished

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Record values of this fit at the framework's step."""
        run = self.run
        self._settle(values, step)
        self.rows += 1
        run.log({f"{self.prefix}{name}": value for name, value in values.items()}, step=step)

    def define(self, names: Iterable[str], step: int, maximize: Callable[[str], bool]) -> None:
        """Have the best value of each metric of this fit among the results."""
        known = list(names)
        self._settle(known, step)
        for name in known:
            goal = "maximize" if maximize(name) else "minimize"
            self.run.define_metric(f"{self.prefix}{name}", summary="best", goal=goal)

    def results(self, values: Mapping[str, Any]) -> None:
        """Record results of this fit (``final/``); what is None is left out."""
        known = {name: value for name, value in values.items() if value is not None}
        if known and self.is_open:
            self._settle(known)
            self.run.summary.update({f"final/{self.prefix}{name}": value for name, value in known.items()})

    def keep(self, name: str, write: Callable[[Path], Any], *, type: str = "model", **metadata: Any) -> None:
        """Keep a file that ``write`` makes at the path it is called with."""
        if not self.is_open or self.known.disabled:
            return
        with temporary_folder() as folder:
            write(folder / name)
            label = f"{self.prefix or ''}{name}".replace("/", "-")
            self.known.log_artifact(str(folder / name), name=label, type=type, metadata=metadata)

    def settle(self) -> None:
        """Record the configuration now, under the run's own names."""
        self._settle(())

    def end(self) -> None:
        """The fit has ended well, and with it the run that was begun for it."""
        if self.is_open:
            self._settle(())
        if not self._held:
            self.finish()

    def end_failed(self, error: BaseException | str) -> None:
        """The fit has failed, and with it the run that was begun for it."""
        if self.own and not self._held and self.is_open:
            text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
            self.known.fail(1, text)

    def hold(self) -> None:
        """Keep the run for all fits from here on, until ``release``."""
        self._held = True

    def release(self, error: BaseException | None = None) -> None:
        """End the run that was begun here, as failed where there is an error."""
        self._held = False
        if error is None:
            self.finish()
        else:
            self.fail(error)

    def _settle(self, names: Iterable[str], step: int = 0) -> None:
        """Choose this fit's prefix: none where the run lacks these names, or goes on from its last step."""
        if self.prefix is not None:
            return
        self.prefix = ""
        run, chosen = self.run, list(names)
        known = set() if run.disabled or not chosen or step > run.step else set(run.summary)
        number = 1
        while any(f"{self.prefix}{name}" in known or f"final/{self.prefix}{name}" in known for name in chosen):
            number += 1
            self.prefix = f"fit-{number}/"
        if self._config:
            run.config.setdefaults({self.prefix.rstrip("/"): self._config} if self.prefix else self._config)

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone: a copy in another process begins a run of its own."""
        return {**self.__dict__, "_run": None, "_said": set(), "_board": None, "_stopping": None, "_asks": None,
                "_held": False, "own": False, "begun": False,
                "_from": (os.getpid(), False)}  # fmt: skip


class HoldsFits:
    """``with`` around the fits of a callback. For use beside the framework's own base class.

    ``_handle`` is its :class:`Fits`.
    """

    _handle: Fits

    def finish(self) -> None:
        """End the run that was begun here, if it is open."""
        self._handle.release()

    def __enter__(self) -> Any:
        self._handle.hold()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._handle.release(error)


class TracksFits(HoldsFits):
    """The same, with the callback's run."""

    @property
    def run(self) -> Any:
        """The run of the current fit, or of the last one; None before the first."""
        return self._handle.known


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = tempfile.mkdtemp(prefix="trackers-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def converted(
    handle: RunHandle, values: Mapping[str, Any], convert: Callable[[str, Any], Any], owner: object
) -> dict[str, Any]:
    """Values made into what ``run.log`` takes; one that can't be is left out and said once."""
    loggable = {}
    for name, value in values.items():
        try:
            loggable[name] = convert(name, value)
        except Exception as error:
            pass_on(error)
            handle.say(f"{type(owner).__name__}: {name}: {reason(error)}; it is left out, training goes on")
    return loggable


def number_or_text(value: Any) -> Any:
    """A text that is a whole number or a decimal as a number; anything else as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value
