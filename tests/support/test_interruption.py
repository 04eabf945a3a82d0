"""Exceptions from outside are told from those that a call itself raises."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
import yaml

from trackers.support.interruption import interrupts, pass_on, suppress


class TimeIsUp(Exception):
    """As a time-out raises it."""


class TaskIsLate(Exception):
    """As RQ's ``TimerDeathPenalty`` raises it from another thread: with words of its own."""

    def __init__(self, *_: object, limit_s: int = 180) -> None:
        super().__init__(f"Task exceeded maximum timeout value ({limit_s} seconds)")


class Handlers:
    def method(self, *_: object) -> None:
        raise TimeIsUp

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise TimeIsUp


def _drop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise TimeIsUp


def _deep(number: int, frame: FrameType | None) -> None:
    _fail(TimeIsUp("after 30 s"))


def _more(word: str, number: int, frame: FrameType | None) -> None:
    raise TimeIsUp(word)


def _fail(error: BaseException) -> None:
    raise error


HANDLERS: dict[str, Callable[..., Any]] = {
    "function": lambda *_: _fail(TimeIsUp()), "method": Handlers().method, "object": Handlers(),
    "drops the frame": _drop, "calls another": _deep, "partial": functools.partial(_more, "late"),
}  # fmt: skip


def _at_once() -> None:
    signal.raise_signal(signal.SIGUSR1)


def _below() -> None:
    int(Number())


class Number:
    """A value whose conversion is Python."""

    def __int__(self) -> int:
        signal.raise_signal(signal.SIGUSR1)
        return 1


@pytest.fixture
def handled() -> Iterator[Callable[[Any], None]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler) and None
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("what", [_at_once, _below], ids=["in our own frame", "in a value's frame"])
@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_handler_raises_comes_from_outside(handler: str, what: Callable[[], None], handled: Any) -> None:
    """Whatever the handler is and wherever the signal comes: its exception isn't the call's own."""
    handled(HANDLERS[handler])
    with pytest.raises(TimeIsUp) as caught:
        what()
    assert interrupts(caught.value)


def test_what_a_trace_function_raises_comes_from_outside() -> None:
    """A debugger that is left within a call, at each of its bytecodes."""

    def value() -> int:
        return len([1]) + 1

    left = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code is not value.__code__:
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if not left:
            raise TimeIsUp
        return trace

    def traced(call: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12.1 tells of no opcode unless a frame asked before
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)

    for count in range(1, 6):
        left = count
        with pytest.raises(TimeIsUp) as caught:
            traced(value)
        assert interrupts(caught.value)


def test_what_another_thread_raises_comes_from_outside() -> None:
    """``PyThreadState_SetAsyncExc``, with which some time-outs end a thread, whichever bytecode it hits."""
    caught: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                len(str(float("1.5")))
        except Exception as raised:
            caught.append(raised)

    for error in (TimeIsUp, TimeoutError, ValueError, TaskIsLate) * 5:
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))
            thread.join(0.01)
    assert [interrupts(raised) for raised in caught] == [True] * 20


def test_base_exceptions_come_from_outside() -> None:
    """Ctrl-C and the like are nobody's to catch."""
    assert interrupts(KeyboardInterrupt())
    with pytest.raises(SystemExit):
        pass_on(SystemExit(3))


class Odd:
    def __float__(self) -> float:
        raise TimeIsUp

    def item(self) -> float:
        raise NotImplementedError


@pytest.mark.parametrize(
    "call",
    [
        lambda: float("x"), lambda: float(Odd()), lambda: Odd().item(), lambda: {}["name"], lambda: [][1],
        lambda: os.stat("/nowhere/at/all"), lambda: np.zeros(3).item(), lambda: int.from_bytes(b"1", "odd"),
        lambda: 1 / 0, lambda: next(iter(())), lambda: queue.SimpleQueue().get_nowait(), lambda: json.loads("{"),
        lambda: yaml.load("a: [1", Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)),
        lambda: [TimeIsUp].index(1), lambda: _fail(TimeIsUp()), lambda: "x".unknown,
    ],
)  # fmt: skip
def test_what_a_call_raises_itself_does_not(call: Callable[[], Any], handled: Any) -> None:
    """Python's own errors, those of C code, of a value's methods and of statements, while handlers are installed."""
    handled(HANDLERS["drops the frame"])
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of every class
        call()
    assert not interrupts(caught.value)
    pass_on(caught.value)


def test_suppress_lets_what_comes_from_outside_through(handled: Any) -> None:
    """As contextlib's, but for a time-out that is an OSError by its class."""

    def late(*_: object) -> None:
        raise TimeoutError("30 s are over")

    handled(late)
    with suppress(OSError):
        os.stat("/nowhere/at/all")
    with pytest.raises(TimeoutError, match="over"), suppress(OSError):
        _at_once()
    with pytest.raises(KeyError), suppress(OSError):
        raise KeyError("x")
