"""Grace signals: what a scheduler sends to a job a while before it kills it.

SLURM sends SIGTERM before the time limit, at a preemption and for ``scancel``, and what ``sbatch --signal`` asks for,
mostly SIGUSR1 or SIGUSR2; others send SIGTERM (:mod:`trackers.support.schedulers`). By default such a
signal ends Python at once, and nobody learns why. So it leaves a trace on its way. Where the script handles SIGTERM
itself, to save a checkpoint and leave, that it came is all there is to know: Python notes the signals that it handles
(``signal.set_wakeup_fd``), whoever's the handler is and whenever it was installed.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from pathlib import Path

from trackers.support import confined
from trackers.support.descriptors import Descriptor
from trackers.support.interruption import pass_on, suppress
from trackers.support.schedulers import grace_signals

_files: list[tuple[Path, Descriptor | None]] = []
"""Files of the runs that are open, the newest last; None where somebody else handles all signals."""
_lock = threading.RLock()
_watched: set[int] = set()
_paused: set[int] = set()
_forks_seen = False
_notes: tuple[Descriptor, Descriptor] | None = None
_requested = False


def watch(path: Path) -> None:
    """Have a grace signal that ends this process write a line to ``path`` before it does, until :func:`unwatch`.

    It still ends the process at once, and as before: what writes is faulthandler's handler in C, which runs even
    while training waits for an accelerator, and raises the signal again. A signal that anybody handles is left alone,
    and who handles one later replaces this. Of several runs of a process the newest that is open is watched for.

    Raises:
        OSError: the file can't be made.
    """
    with _lock:
        _take_notes()
        free = list(filter(_is_free, grace_signals()))
        if not free:
            _files.append((path, None))
            return
        file = Descriptor(confined.open_fd(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        for number in free:
            _register(number, file.number)
            _watched.add(number)
        _files.append((path, file))
        _see_forks()


def was_requested() -> bool:
    """Whether the script has handled a SIGTERM since the newest run began: its end was requested."""
    global _requested
    if _notes is not None and _notes[0].own():
        with suppress(OSError):  # nothing new
            _requested |= signal.SIGTERM in os.read(_notes[0].number, 1 << 16)
    return _requested


def unwatch(path: Path) -> None:
    """Have nothing written to ``path`` any more. With the last of them, nothing is handled and noted."""
    with _lock:
        _leave(path)


def _leave(path: Path) -> None:
    before = _file()
    gone = [file for known, file in _files if known == path]
    _files[:] = [entry for entry in _files if entry[0] != path]
    if not _files:
        forget()
    elif before in gone:
        _pause()
        _go_on()
    for file in gone:
        if file is not None:
            file.close()


def forget() -> None:
    """Handle and note nothing any more."""
    _end_notes()
    _pause()
    _paused.clear()
    _watched.clear()
    for _, file in _files:
        if file is not None:
            file.close()
    _files.clear()


def _file() -> Descriptor | None:
    """What a signal is written to."""
    return next((file for _, file in reversed(_files) if file is not None), None)


def _forget_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have held it
    forget()


def _see_forks() -> None:
    global _forks_seen
    if not _forks_seen:
        _forks_seen = True
        # Pools end their workers by SIGTERM, perhaps at once: a child must never have this.
        os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_forget_in_child)


def _take_notes() -> None:
    """Have Python note the signals it handles, unless somebody (asyncio) has them noted already."""
    global _notes, _requested
    if _notes is not None:
        was_requested()
        _requested = False
        return
    reader, writer = map(Descriptor, os.pipe())
    try:
        os.set_blocking(reader.number, False)
        os.set_blocking(writer.number, False)  # a full pipe costs a note, and no time
        before = signal.set_wakeup_fd(writer.number, warn_on_full_buffer=False)
        if before < 0:
            _notes, _requested = (reader, writer), False
            _see_forks()
            return
        signal.set_wakeup_fd(before)
    except (ValueError, OSError) as error:  # not in the main thread; Windows, which takes sockets only
        pass_on(error)
    reader.close()
    writer.close()


def _end_notes() -> None:
    global _notes, _requested
    if _notes is None:
        return
    try:
        now = signal.set_wakeup_fd(-1)
    except ValueError as error:  # not in the main thread: Python goes on writing there, and the next run takes it over
        pass_on(error)
        return
    if now not in (-1, _notes[1].number):
        signal.set_wakeup_fd(now)
    for end in _notes:
        end.close()
    _notes, _requested = None, False


def _register(number: int, fd: int) -> None:
    faulthandler.register(number, file=fd, all_threads=False, chain=True)


def _pause() -> None:
    for number in _watched:
        if signal.getsignal(number) == signal.SIG_DFL:  # else it isn't ours any more
            faulthandler.unregister(number)
            _paused.add(number)


def _go_on() -> None:
    file = _file()
    if file is not None and file.own():
        for number in _paused:
            _register(number, file.number)
    _paused.clear()


def _is_free(number: int) -> bool:
    """Whether a signal is watched here, or this process neither catches nor ignores it, be it Python, faulthandler or a
    library in C that does."""
    if number in _watched or signal.getsignal(number) != signal.SIG_DFL:
        return number in _watched
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError as error:
        pass_on(error)
        return True
    sets = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigIgn:"))]
    return not any(number_set >> (number - 1) & 1 for number_set in sets)
