"""Status of a script that doesn't call ``finish``: finished for exit code 0, failed for an exception or another code.

Where a preemption was announced, it is preempted, whatever the exit code.

An atexit function is told neither the exit code nor the exception. What is known by then is taken from the interpreter:
whether the program's outermost frame returned, or the exception that left it. The code of a ``SystemExit`` is gone by
then. It is known where ``sys.exit`` or ``exit`` raised it and nothing caught it; else it is 0 for now, and the C
library is asked to write the code down when the process exits with it. The relay, which outlives the process, compares
what was said here with what the operating system says (``relay.watched``).
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, Protocol

from trackers.errors import reason
from trackers.records import INTERRUPTED
from trackers.support import threads
from trackers.values.coerce import short_repr

LARGEST_CODE = 2**32 - 1
"""Of an exit code: Windows has them of 32 bits."""
_PATIENCE = 3
"""Number of retries of an ending that the user interrupts."""


class Exit(NamedTuple):
    """code: as the operating system will say it, INTERRUPTED for an interrupt. certain: no other one can come of it."""

    code: int
    reason: str = ""
    certain: bool = True


class Endable(Protocol):
    """A run, as far as the end of a process matters."""

    def leave(self, exit_code: int, reason: str, *, certain: bool | None = None) -> None: ...

    def notice_fork(self) -> None: ...

    def adopt(self) -> bool: ...


class ExitHooks:
    """Watches how this process ends, and ends the runs that are still open accordingly.

    ``sys.exit`` and ``exit`` are wrapped while runs are open. They do what they did before.
    """

    def __init__(self) -> None:
        self._runs: list[Endable] = []
        self._pid = 0
        self._hooked = False
        self._main: FrameType | None = None
        self._requested_exit: Exit | None = None
        self._final: Exit | None = None
        self._sentinel: weakref.ref[_Sentinel] | None = None
        self._worker_error = ""
        self._lock = threading.RLock()

    def add(self, run: Endable) -> None:
        """End this run when the process ends."""
        with self._lock:  # threads begin and end runs of their own
            self._add(run)

    def _add(self, run: Endable) -> None:
        if os.getpid() != self._pid:  # a forked child has its own end
            self._runs.clear()
            self._pid = os.getpid()
            self._requested_exit = self._final = None
            self._worker_error = ""
            atexit.unregister(self._end)
            atexit.register(self._end)
            self._end_with_worker()
        if not self._runs:
            self._main = _main_frame()
        self._runs.append(run)
        if not self._hooked:
            self._hooked = True
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._tell_of_fork)
            self._exit: Callable[..., Any] = sys.exit
            sys.exit = self._on_exit
            self._listen_to_quitters()

    def remove(self, run: Endable) -> None:
        """This run has ended by itself."""
        with self._lock:
            if run in self._runs:
                self._runs.remove(run)
            if not self._runs:
                self._main = None

    def runs(self) -> list[Endable]:
        """The runs that are open in this process."""
        return list(self._runs) if os.getpid() == self._pid else []

    def _tell_of_fork(self) -> None:
        self._lock = threading.RLock()  # a thread of the parent may have held it
        for run in self._runs:
            run.notice_fork()

    def _end_with_worker(self) -> None:
        # A worker of multiprocessing ends by os._exit, without atexit functions.
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            from multiprocessing.util import Finalize

            Finalize(None, self._end, exitpriority=1)
            self._hear_of_worker_error()

    def _hear_of_worker_error(self) -> None:
        # Python 3.13 tells a forked worker of its end after the exception has been printed and is gone.
        import traceback

        printed = traceback.print_exc

        @functools.wraps(printed)
        def print_exc(*args: Any, **options: Any) -> None:
            error = sys.exc_info()[1]
            if error is not None and sys._getframe(1).f_globals.get("__name__") == "multiprocessing.process":
                self._worker_error = reason(error)
            printed(*args, **options)

        traceback.print_exc = print_exc

    def _on_exit(self, status: object = None, /) -> Any:
        try:
            return self._exit(status)
        except SystemExit as error:
            self._note(error)
            raise

    def _listen_to_quitters(self) -> None:
        quitter = getattr(sys.modules.get("_sitebuiltins"), "Quitter", None)
        if quitter is None:
            return
        before = quitter.__call__

        @functools.wraps(before)
        def call(this: Any, code: object = None) -> Any:
            try:
                return before(this, code)
            except SystemExit as error:
                self._note(error)
                raise

        quitter.__call__ = call

    def _note(self, error: SystemExit) -> None:
        """Remember what an exit asks for, and find out whether it is what ends the program."""
        if self._main is None or _outermost(sys._getframe()) is not self._main:
            return  # it ends a thread, or something that the interpreter calls at the end
        self._requested_exit = exit_of(error)
        sentinel = _Sentinel()
        self._sentinel = weakref.ref(sentinel, functools.partial(self._forgotten, self._requested_exit))
        error._trackers_sentinel = sentinel  # type: ignore[attr-defined]

    def _forgotten(self, asked: Exit, _sentinel: object) -> None:
        # What is caught is forgotten by a frame that goes on. What isn't is dropped by the interpreter itself, before
        # it calls the atexit functions.
        if sys._getframe().f_back is None and threading.current_thread() is threading.main_thread():
            self._final = asked

    def _end(self) -> None:
        if os.getpid() != self._pid:
            self._runs = [run for run in self._runs if run.adopt()]
        if not self._runs:
            return
        end = self.how() if sys._getframe().f_back is None else _in_flight(self._worker_error)
        for run in list(self._runs):
            for _ in range(_PATIENCE):
                try:
                    run.leave(end.code, end.reason, certain=end.certain)
                    break
                except KeyboardInterrupt:  # Ctrl-C again: no reason to leave the others open
                    continue

    def at_exit(self) -> Exit | None:
        """How the program ended, where an atexit function asks; None while the program still runs."""
        main = self._main
        if main is None or os.getpid() != self._pid or threading.current_thread() is not threading.main_thread():
            return None
        if _outermost(sys._getframe()) is main or _executing(main):  # a greenlet's frames don't lead to the program's
            return None
        return self.how()

    def how(self) -> Exit:
        """How the program ended, as far as the interpreter knows when it calls its atexit functions."""
        # A prompt, also that of -i, outlives exceptions: the last one isn't how the program ended.
        if hasattr(sys, "ps1") or sys.flags.interactive or sys.flags.inspect or self._main is None:
            return self._final._replace(certain=False) if self._final is not None else Exit(0, certain=False)
        if self._final is not None:
            return self._final
        trace = getattr(sys, "last_traceback", None)
        if _returned(self._main):
            return Exit(0)
        if trace is not None and trace.tb_frame is self._main:
            return exception_exit(sys.last_value, certain=getattr(sys, "excepthook", None) is sys.__excepthook__)
        return Exit(0, certain=False) if self._requested_exit is None else self._requested_exit._replace(certain=False)


class _Sentinel:
    """Attached to an exception: a weak reference to it tells when the exception is freed."""

    __slots__ = ("__weakref__",)


def exit_of(error: SystemExit) -> Exit:
    """What an uncaught SystemExit becomes: its code as the operating system knows it, or 1 and its text."""
    code = error.code
    if code is None:
        return Exit(0)
    if isinstance(code, int):
        return Exit(code & 0xFF if abs(code) < 1 << 63 else 0xFF)  # beyond a C long Python exits with -1
    return Exit(1, _text(code))


def exception_exit(error: BaseException | None, *, certain: bool = True) -> Exit:
    """What an uncaught exception becomes."""
    code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return Exit(code, reason(error) if error is not None else "", certain)


def given_code(code: Any, say: Callable[[str], object]) -> int | None:
    """The exit code that a caller gives, as a record holds it: any whole number of 32 bits, whatever its class.

    What is none is 1, as for ``sys.exit``, and ``say`` is called with one line.
    """
    if code is None or (type(code) is int and -LARGEST_CODE <= code <= LARGEST_CODE):
        return code
    try:
        whole = int(code)
        same = isinstance(code, str) or bool(whole == code)
    except Exception:
        whole, same = 1, False
    if same and -LARGEST_CODE <= whole <= LARGEST_CODE:
        return whole
    say(f"finish: exit_code {short_repr(code)} is no whole number of 32 bits: 1 is taken")
    return 1


def _main_frame() -> FrameType | None:
    """The outermost frame of the main thread, where that is the program's: as it ends, so does the program."""
    frame = threads.frames().get(threading.main_thread().ident or 0)
    frame = None if frame is None else _outermost(frame)  # of `python -m` it is runpy's
    return frame if frame is not None and frame.f_globals.get("__name__") in ("__main__", "runpy") else None


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _executing(frame: FrameType) -> bool:
    """Whether a frame has neither returned nor been left by an exception. One that has loses its local variables."""
    try:
        frame.clear()
    except RuntimeError:
        return True
    return False


def _returned(frame: FrameType) -> bool:
    """Whether a frame that isn't executed any more ended by returning, and not by an exception."""
    import opcode

    code, at = frame.f_code.co_code, frame.f_lasti
    return 0 <= at < len(code) and opcode.opname[code[at]].startswith("RETURN")


def _in_flight(printed: str) -> Exit:
    """How a worker of multiprocessing ends: by the exception that is on its way, or by the code that came of it.

    Up to Python 3.12 a forked worker is told before the exception is handled, later ones afterwards.
    printed: the exception that was printed meanwhile.
    """
    error = sys.exc_info()[1]
    if error is None:
        code = _worker_code()
        return Exit(code & 0xFF, printed if code == 1 else "", certain=False)
    if isinstance(error, SystemExit):
        return exit_of(error)._replace(certain=False)
    return Exit(1, reason(error), certain=False)


def _worker_code() -> int:
    """The exit code that the frame which forked this worker holds; 0 if there is none, or none yet."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "multiprocessing.process":
        if frame.f_globals.get("__name__") in ("multiprocessing.popen_fork", "multiprocessing.forkserver"):
            code = frame.f_locals.get("code")
            return code if isinstance(code, int) else 0
        frame = frame.f_back
    return 0


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


ending = ExitHooks()
"""The one of this process."""
