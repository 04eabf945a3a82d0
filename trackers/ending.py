"""How a script that doesn't call ``finish`` ends: exit code 0 finished, an exception or another code failed.

Where a preemption was announced, it is preempted, whatever the exit code.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol


class Endable(Protocol):
    """A run, as far as the end of a process matters."""

    def leave(self, exit_code: int, reason: str) -> None: ...


class Ending:
    """Watches how this process ends, and ends the runs that are still open accordingly.

    ``sys.exit`` and ``sys.excepthook`` are wrapped while runs are open, because an atexit function is told neither
    the exit code nor the exception. Both do what they did before.
    """

    def __init__(self) -> None:
        self._runs: list[Endable] = []
        self._code = 0
        self._reason = ""
        self._pid = os.getpid()
        self._hooked = False

    def add(self, run: Endable) -> None:
        """End this run when the process ends."""
        if os.getpid() != self._pid:  # a forked child has its own end
            self._runs.clear()
            self._pid = os.getpid()
        self._runs.append(run)
        if not self._hooked:
            self._hooked = True
            atexit.register(self._end)
            self._exit: Callable[..., Any] = sys.exit
            self._excepthook = sys.excepthook
            sys.exit = self._on_exit
            sys.excepthook = self._on_exception

    def remove(self, run: Endable) -> None:
        """This run has ended by itself."""
        if run in self._runs:
            self._runs.remove(run)

    def _on_exit(self, code: object = None) -> Any:
        self._code = code if isinstance(code, int) else 0 if code is None else 1
        self._reason = code if isinstance(code, str) else ""
        return self._exit(code)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._code = 130 if issubclass(kind, KeyboardInterrupt) else 1
        self._reason = f"{kind.__name__}: {error}"
        self._excepthook(kind, error, trace)

    def _end(self) -> None:
        if os.getpid() != self._pid:
            return
        for run in list(self._runs):
            run.leave(self._code, self._reason)


ending = Ending()
"""The one of this process."""
