"""What the process prints, taken where Python writes it: by the objects that ``sys.stdout`` and ``sys.stderr`` are.

The objects stay the same ones, with their descriptors, encodings and terminals; only their methods ``write`` and
``flush``, and the ``write`` of the binary buffer below, are answered here first. So whoever took an object before
(handlers of ``logging``, progress bars) is heard too, and whoever puts another object in its place, as
``contextlib.redirect_stdout`` does, prints elsewhere. The text goes where it went before, then to the run's spool
(:mod:`trackers.journal.console_spool`): one ``write`` for a line.

Nothing here raises, and nothing waits for anybody.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trackers.journal.console_spool import ConsoleSpool, PrintedFile, next_attempt, note_files, say_ended
from trackers.journal.run_directory import RunDirectory
from trackers.records import escaped
from trackers.support.interruption import pass_on, suppress

if TYPE_CHECKING:
    from trackers.training.console_descriptors import DescriptorCapture

LOOK_S = 0.02
"""Maximum processor time to look for other processes that write to the same file, in seconds."""


class _Inside(threading.local):
    """Whether this thread is inside of a method that is answered here: what that calls is no output of its own."""

    now = False


_inside = _Inside()


class StreamTap:
    """Hears what one object prints.

    Args:
        stream: ``sys.stdout`` or ``sys.stderr``, of whatever class.

    Attributes:
        spools: where it goes.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.spools: tuple[ConsoleSpool, ...] = ()
        self._undone: list[tuple[Any, str, Any, bool, Any]] = []

    def begin(self) -> bool:
        """Answer the object's methods. False: it is of a class whose methods can't be replaced."""
        stream = self.stream
        try:
            self._replace(stream, "write", self._write(stream.write))
            self._replace(stream, "flush", self._flush(stream.flush))
        except Exception as error:  # no such method, or no place for another one
            pass_on(error)
            self.end()
            return False
        if os.linesep == "\n" and isinstance(stream, io.TextIOWrapper):  # else the buffer may be another object's
            with suppress(Exception):
                self._replace(stream.buffer, "write", self._binary(stream.buffer.write))
        return True

    def renew(self) -> None:
        """Answer ``write`` again, where somebody who answered it before has put the former method back."""
        with suppress(Exception):
            own = vars(self.stream)
            if not any(own.get("write") is ours for thing, name, ours, _, _ in self._undone if thing is self.stream):
                self._undone = [entry for entry in self._undone if entry[0] is not self.stream or entry[1] != "write"]
                self._replace(self.stream, "write", self._write(self.stream.write))

    def end(self) -> None:
        """Put the object's own methods back, but those that somebody has replaced since."""
        self.spools = ()
        for thing, name, ours, had, before in self._undone:
            with suppress(Exception):
                if vars(thing).get(name) is ours:
                    if had:
                        setattr(thing, name, before)
                    else:
                        delattr(thing, name)
        self._undone.clear()

    def _replace(self, thing: Any, name: str, ours: Any) -> None:
        own = vars(thing)
        had, before = name in own, own.get(name)
        setattr(thing, name, ours)
        self._undone.append((thing, name, ours, had, before))

    def _write(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def write(text: Any) -> Any:
            if _inside.now:
                return original(text)
            _inside.now = True
            try:
                result = original(text)
            finally:
                _inside.now = False
            try:
                if type(text) is str:
                    for spool in self.spools:
                        spool.add(text)
            except Exception as error:  # whatever it was, it is no reason not to print
                pass_on(error)
            return result

        return write

    def _flush(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def flush() -> Any:
            if _inside.now:
                return original()
            _inside.now = True
            try:
                result = original()
            finally:
                _inside.now = False
            try:
                for spool in self.spools:
                    spool.flush()
            except Exception as error:  # as above
                pass_on(error)
            return result

        return flush

    def _binary(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def write(data: Any) -> Any:
            result = original(data)
            if not _inside.now and self.spools:
                with suppress(Exception):
                    content = bytes(data)
                    for spool in self.spools:
                        spool.add(content)
            return result

        return write


_taps: list[StreamTap] = []


class ConsoleCapture:
    """Takes what this process prints for one run.

    Args:
        folder: where its spools lie. rank, attempt: as in their names. most_bytes: of each one.
        beside: of a rank beside the main one, which says there that it has ended.
    """

    def __init__(self, folder: Path, rank: int, attempt: int, most_bytes: int, beside: bool = False) -> None:
        self._pid = os.getpid()
        self._launch = (folder, rank, attempt) if beside else None
        last: list[Any] = [None]
        self._spools = {
            stream: ConsoleSpool(folder, rank, attempt, stream, most_bytes, last, beside)
            for stream in ("stdout", "stderr")
        }
        self._taps: list[tuple[StreamTap, ConsoleSpool]] = []
        self._files: dict[str, PrintedFile] = {}
        self._folder, self._rank, self._attempt = folder, rank, attempt
        self._buffered: Any = None
        self._descriptors: DescriptorCapture | None = None
        self._shell: Any = None

    def begin(self, files: bool = False, descriptors: DescriptorCapture | None = None, shell: Any = None) -> None:
        """Take what is printed from now on.

        Args:
            shell: IPython's, which runs cells.
            files: leave it to the relay to read what is a regular file that nobody else writes to.
            descriptors: takes what is written to pipes.
        """
        if files:
            self._note_files()
        if descriptors is not None:
            descriptors.begin()
            self._descriptors = descriptors
            if "stdout" in descriptors.stream_names:
                self._by_line()
        captured = frozenset() if descriptors is None else descriptors.stream_names
        for name, spool in self._spools.items():
            if name in self._files or "output" in self._files or name in captured:
                continue
            with _lock:
                tap = _tap(getattr(sys, name, None))
                if tap is not None and tap not in dict(self._taps):
                    tap.spools = (*tap.spools, spool)
                    self._taps.append((tap, spool))
        if shell is not None:
            with suppress(Exception):
                shell.events.register("pre_run_cell", self._cell_begins)
                self._shell = shell
        _captures.append(self)

    def _cell_begins(self, *_: object) -> None:
        for tap in self._taps:
            tap[0].renew()

    def _note_files(self) -> None:
        files = own_files()
        try:
            if files:
                note_files(self._folder, self._rank, self._attempt, files)
        except OSError as error:
            pass_on(error)
            return
        self._files = files
        if {"stdout", "output"} & files.keys():
            self._by_line()

    def _by_line(self) -> None:
        """Have lines written as they are printed: in the order of both streams, and there after a kill."""
        out = sys.stdout
        if isinstance(out, io.TextIOWrapper) and not out.line_buffering:
            with suppress(Exception):
                out.reconfigure(line_buffering=True)
                self._buffered = out

    def _end_files(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._descriptors is not None:
            self._descriptors.end()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        if self._buffered is not None and _captures:  # another run wants it still
            _captures[0]._buffered = self._buffered
        elif self._buffered is not None:
            with suppress(Exception):
                self._buffered.reconfigure(line_buffering=False)
        if not self._files:
            return
        for file in self._files.values():
            with suppress(OSError):
                file.end = os.fstat(file.fd).st_size
        with suppress(OSError):
            note_files(self._folder, self._rank, self._attempt, self._files)
        self._files = {}

    def poll(self) -> None:
        """See now and then that what is printed is heard and shown."""
        if os.getpid() != self._pid:
            return
        for tap in self._taps:
            tap[0].renew()
        if self._descriptors is not None:
            self._descriptors.poll()

    def add_traceback(self, error: BaseException) -> None:
        """Take an exception that ends the run: Python prints it later, if at all."""
        import traceback

        self._spools["stderr"].add("".join(traceback.format_exception(error)))

    def after_fork(self) -> None:
        """In a forked child."""
        for spool in self._spools.values():
            spool.after_fork()

    def end(self) -> None:
        """Take nothing more; what was printed is in the spools."""
        if self in _captures:
            _captures.remove(self)
        if self._shell is not None:
            with suppress(Exception):
                self._shell.events.unregister("pre_run_cell", self._cell_begins)
            self._shell = None
        with _lock:
            for tap, spool in self._taps:
                _leave(tap, spool)
        self._taps.clear()
        self._end_files()
        for spool in self._spools.values():
            spool.close()
        if self._launch is not None and os.getpid() == self._pid:
            say_ended(*self._launch)


def _leave(tap: StreamTap, spool: ConsoleSpool) -> None:
    tap.spools = tuple(entry for entry in tap.spools if entry is not spool)
    if not tap.spools:
        tap.end()
        if tap in _taps:
            _taps.remove(tap)


_captures: list[ConsoleCapture] = []
_lock = threading.RLock()
"""Of what an object's tap writes to: threads begin and end runs of their own."""


def _tap(stream: Any) -> StreamTap | None:
    """The one of this object; None where there is no object, or none that can be heard."""
    if stream is None:
        return None
    for tap in _taps:
        if tap.stream is stream:
            return tap
    tap = StreamTap(stream)
    if not tap.begin():
        return None
    _taps.append(tap)
    return tap


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have held it
    _inside.now = False
    for capture in _captures:
        capture.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def own_files() -> dict[str, PrintedFile]:
    """Which of this process's two streams are regular files that no other process than its ancestors writes to.

    ``output``: both are the same one.
    """
    streams: dict[str, PrintedFile] = {}
    if not sys.platform.startswith("linux"):  # others' descriptors are seen in /proc alone
        return streams
    for name, fd in (("stdout", 1), ("stderr", 2)):
        try:
            if getattr(sys, name).fileno() != fd:  # somebody has put another one in its place
                continue
            getattr(sys, name).flush()
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                path = os.readlink(f"/proc/self/fd/{fd}")
                if not os.path.samestat(status, os.stat(path)) or not os.access(path, os.R_OK):
                    continue  # it has no name any more, or another place than here
                path = escaped(path)
                streams[name] = PrintedFile(fd, path, status.st_dev, status.st_ino, status.st_size)
        except Exception as error:  # no such stream, or nobody may read it
            pass_on(error)
            continue
    identities = {(file.device, file.inode) for file in streams.values()}
    if not streams or _shared(identities):
        return {}
    if len(streams) == 2 and len(identities) == 1:  # 2>&1
        return {"output": streams["stdout"]}
    return streams


def _shared(files: set[tuple[int, int]]) -> bool:
    """Whether a process that isn't one of this one's ancestors writes to one of the files; True where that would take
    long to find out."""
    own, parents = os.getpid(), _parents()
    until = time.thread_time() + LOOK_S
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == own or int(entry) in parents:
            continue
        if time.thread_time() > until:
            return True
        for fd in (1, 2):
            with suppress(OSError):
                status = os.stat(f"/proc/{entry}/fd/{fd}")
                if (status.st_dev, status.st_ino) in files:
                    return True
    return False


def _parents() -> set[int]:
    parents, pid = set(), os.getppid()
    while pid > 1 and pid not in parents:
        parents.add(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read(4096).rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError) as error:
            pass_on(error)
            break
    return parents


def begin(folder: Path, rank: int, attempt: int | None, options: Any, *, alone: bool = False) -> ConsoleCapture | None:
    """Begin to take what this process prints, as the options say; None where nothing is to be taken.

    Args:
        folder: where its spools lie. attempt: None: one that nothing there has. alone: it is the only rank.
    """
    how = str(options.get("TRACKER_CONSOLE_CAPTURE") or "auto")
    if how == "n":
        return None
    number = next_attempt(folder, rank) if attempt is None else attempt
    most_bytes = int(options.get("TRACKER_CONSOLE_MAX_MB") or 32) * 1_000_000
    capture = ConsoleCapture(folder, rank, number, most_bytes, attempt is None)
    relayed = bool(options.get("TRACKER_RELAY", True)) and not options.get("TRACKER_INLINE")
    descriptors = None
    if how == "descriptors" and attempt is not None:
        from trackers.training.console_descriptors import DescriptorCapture

        descriptors = DescriptorCapture(RunDirectory(folder.parent), rank, number, most_bytes)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    capture.begin(how in ("auto", "descriptors") and alone and relayed and attempt is not None, descriptors, shell)
    return capture
