"""Exceptions that reach a call from outside: raised by a signal's handler, a trace function or another thread.

Time-outs (``signal.alarm``, pytest-timeout, RQ), soft time limits (Celery) and scripts that save a checkpoint on
SIGTERM raise them wherever the program is, so also inside of this package. They are meant for whoever called it: where
code catches what a value, a disk or a tracker raises, it passes these on.
"""

from __future__ import annotations

import contextlib
import opcode
import os
import signal
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any

_RAISING = frozenset(code for name, code in opcode.opmap.items() if name in ("RAISE_VARARGS", "RERAISE"))
_HOME = os.path.dirname(os.path.dirname(__file__))
_handler: Any = sys.modules["_signal"].getsignal  # a twentieth of the time of signal.getsignal, which makes enums


def interrupts(error: BaseException) -> bool:
    """Whether an exception that was caught came from outside of what was called.

    A handler and a trace function get the frame that they interrupt as an argument. What another thread raises
    (``PyThreadState_SetAsyncExc``) has no frame and no arguments but its class's own, where no statement raises it.
    """
    if not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    if trace is None:
        return False
    others = []
    while trace.tb_next is not None:
        caller, trace = trace.tb_frame, trace.tb_next
        if _was_given(trace.tb_frame, caller):
            return True
        if not trace.tb_frame.f_code.co_filename.startswith(_HOME):
            others.append(trace.tb_frame.f_code)
    if others and not _handlers().isdisjoint(others):
        return True
    return not _raises(trace) and _made_of_nothing(error)


def pass_on(error: BaseException) -> None:
    """Raise an exception that was caught again, if it came from outside."""
    if interrupts(error):
        raise error


class suppress(contextlib.suppress):
    """As ``contextlib.suppress``, but what comes from outside goes on."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        """Whether the exception ends here."""
        return bool(super().__exit__(kind, error, tb)) and error is not None and not interrupts(error)


def _handlers() -> set[CodeType]:
    """The code of the signals' handlers: they may have dropped the frame that they were given."""
    codes: set[Any] = set()
    for number in range(1, signal.NSIG):
        handler = _handler(number)
        if handler not in (None, 0, 1) and callable(handler):
            handler = getattr(handler, "func", handler)  # of functools.partial
            method = handler if hasattr(handler, "__code__") or hasattr(handler, "__func__") else type(handler).__call__
            codes.add(getattr(method, "__code__", None))
    codes.discard(None)
    return codes


def _was_given(frame: FrameType, caller: FrameType) -> bool:
    """Whether a frame has the one that it was called from among its variables."""
    for value in frame.f_locals.values():
        if value is caller or (type(value) is tuple and any(item is caller for item in value)):
            return True
    return False


def _raises(trace: TracebackType) -> bool:
    """Whether a statement raised the exception, and not what the interpreter or C code did there."""
    code = trace.tb_frame.f_code.co_code
    return 0 <= trace.tb_lasti < len(code) and code[trace.tb_lasti] in _RAISING


def _made_of_nothing(error: Exception) -> bool:
    """Whether an exception can be one that was made of its class alone, which C code does with few others."""
    if isinstance(error, (MemoryError, StopIteration, StopAsyncIteration)) or type(error).__module__ == "_queue":
        return False
    if not error.args:
        return True
    make: Any = type(error).__init__  # RQ's time-out, for one, has a message of its own
    code = getattr(make, "__code__", None)
    if code is None or code.co_argcount - len(make.__defaults__ or ()) > 1:
        return False
    with contextlib.suppress(Exception):
        return bool(type(error)().args == error.args)
    return False
