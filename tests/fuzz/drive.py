"""Runs inputs against a target and tells what went wrong: a traceback, more than 5 s, more than 500 MB.

Time is the processor's, so that a busy machine is no fault; a wall-clock limit catches what waits for ever. Memory is
the highest that the process had during one input, above what it had before.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.targets import TARGETS, inputs
from trackers.errors import TrackersError

CPU_S = 5.0
WALL_S = 60.0
MEMORY_BYTES = 500_000_000
LINE = 2000
"""A message is one line, and no longer."""
CACHE_INPUTS = 50
"""What is cached on the disk is deleted after so many inputs."""
PROGRESS_S = 30.0
UNDAMAGED_INPUTS = 5000
"""After so many inputs, and at the end, the undamaged files are read again: no input may spoil what comes after it."""


_NOWHERE = io.TextIOWrapper(open(os.devnull, "wb"))  # noqa: SIM115


class TooLong(BaseException):
    """An input took more than its time."""


class Result:
    """What a run over one target found. faults: the first input for each kind of fault; kinds: how often each was."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self.count = self.refused = 0
        self.faults: dict[str, str] = {}
        self.kinds: Counter[str] = Counter()
        self.slowest = 0.0
        self.most_bytes = 0

    def add(self, kind: str, about: str) -> None:
        """Count a fault."""
        self.kinds[kind] += 1
        if kind not in self.faults:
            self.faults[kind] = about
            self._tell(f"a fault: {kind}\n{about}")


def drive(
    name: str,
    seeds: Path,
    place: Path,
    count: int,
    seed: int = 0,
    first: int = 0,
    tell: Callable[[str], object] = lambda line: None,
) -> Result:
    """Read so many damaged inputs of a target.

    Args:
        place: an empty directory on a quick disk. first: the number of the first input, to look at one again.
        tell: gets a line on how far it is now and then, and each kind of fault when it is first seen.
    """
    result = Result(tell)
    told = time.monotonic()
    logging.disable(logging.CRITICAL)
    os.environ["XDG_CACHE_HOME"] = str(place / ".cache")
    tempfile.tempdir = str(place)
    work = place / "files"
    whole = place / "whole"
    shutil.copytree(seeds / TARGETS[name].folder, whole)
    _undamaged(name, whole, result)
    _one_thread()
    gc.collect()
    gc.freeze()  # the modules that are loaded by now needn't be looked through again and again, nor for what comes next
    source = inputs(name, seeds, work, seed, first)
    for number in range(first, first + count):
        about = next(source)
        if number % CACHE_INPUTS == 0:
            shutil.rmtree(place / ".cache", ignore_errors=True)
        _one(TARGETS[name].read, work, about, result)
        if time.monotonic() - told >= PROGRESS_S:
            told = time.monotonic()
            tell(f"{name}: {result.count:,} of {count:,} inputs, {sum(result.kinds.values()):,} faults")
        if number % UNDAMAGED_INPUTS == UNDAMAGED_INPUTS - 1 and number != first + count - 1:
            _undamaged(name, whole, result)
    _undamaged(name, whole, result)
    tempfile.tempdir = None
    logging.disable(logging.NOTSET)
    return result


def _undamaged(name: str, whole: Path, result: Result) -> None:
    """Read the undamaged files, which must be possible at any time."""
    try:
        TARGETS[name].read(whole)
    except Exception:
        result.add(f"undamaged files can't be read after {result.count:,} inputs", traceback.format_exc())


def _one_thread() -> None:
    """Have Arrow work in this thread: its others only wait for one another with tables of a few rows."""
    with contextlib.suppress(ImportError):
        import pyarrow

        pyarrow.set_cpu_count(1)
        pyarrow.set_io_thread_count(1)


def _one(read: Any, work: Path, about: str, result: Result) -> None:
    result.count += 1
    _forget_peak()
    before, began = _memory("VmRSS"), time.process_time()
    try:
        with _limits(), contextlib.redirect_stderr(_NOWHERE):
            read(work)
    except TrackersError as error:
        result.refused += 1
        text = str(error)
        if "\n" in text and "name one" not in text:
            result.add(f"message of several lines: {text.splitlines()[0][:80]}", about)
        if len(text) > LINE:
            result.add(f"message of {len(text)} characters", f"{about}\n{text[:1000]}")
    except TooLong:
        result.add(f"slow: {_last_place(traceback.format_exc())}", about)
    except Exception as error:
        text = traceback.format_exc()
        result.add(f"{type(error).__name__} at {_last_place(text)}", f"{about}\n{text}")
    took, more = time.process_time() - began, _memory("VmHWM") - before
    result.slowest, result.most_bytes = max(result.slowest, took), max(result.most_bytes, more)
    if took > CPU_S:
        result.add("slow", about)
    if more > MEMORY_BYTES:
        result.add("memory", f"{about}: {more:,} bytes")


@contextlib.contextmanager
def _limits() -> Any:
    def late(number: int, frame: Any) -> None:
        raise TooLong

    was = [signal.signal(signal.SIGPROF, late), signal.signal(signal.SIGALRM, late)]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 4 * MEMORY_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, CPU_S * 1.5)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, was[0])
        signal.signal(signal.SIGALRM, was[1])


def _last_place(text: str) -> str:
    """The deepest line of ours in a traceback."""
    lines = [line.strip() for line in text.splitlines() if "/trackers/" in line and "tests/fuzz" not in line]
    return lines[-1].split("/trackers/")[-1] if lines else text.strip().splitlines()[-1][:100]


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(field: str) -> int:
    with open("/proc/self/status") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith(field)), 0)
