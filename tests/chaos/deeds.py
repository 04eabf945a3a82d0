"""What training does to itself in a round: closes descriptors, fills its disk, loses its journal, forks, ends oddly.

Training says ``shield`` before and ``unshield`` after a deed during which a kill may lose records by what is
promised: those that wait for a full disk, and a deleted journal that nobody has put back yet.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trackers
from trackers.journal.run_directory import RunDirectory, StreamName

DEEDS = ("close_descriptors", "delete_journal", "full_disk", "fork", "thread")
"""What is done between two calls of ``log``."""
SIGNALS = ("handlers", "children")
"""The same, drawn apart."""

PUT_BACK_S = 1.1
"""A logging process looks after its journal once a second."""
FULL_S = 0.6
MOST_LOOKS = 30
"""Looks at media that wait, until all are written: one writes few of them where the machine is busy."""
USER_FILES = 8
FAR = 1_000_000
"""Step of values that are logged besides: where a tracker keeps a row a step, the script's calls have theirs alone."""


class OddText(str):
    """Text of a type of its own, as NumPy's and enums' are."""


ODD = (
    OddText("kat"),
    "caf\udce9.txt",
    "nul\0 and \x1b[31m",
    OddText("\ud800"),
    object(),
    {"deep": OddText("x")},
    b"\xff",
)
"""Values that are hard to record, beside numbers that must not suffer from it."""


class TimeIsUp(Exception):
    """What the script's own handler of SIGALRM raises."""


class Voice:
    """Training's own account of what it does, in a file that nothing of ours reads or writes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.open()

    def open(self) -> None:
        """Open the file, again where somebody closed all descriptors."""
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def size(self) -> int:
        """Bytes said so far."""
        return os.fstat(self._fd).st_size

    def __call__(self, *words: object) -> None:
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())


class Deeds:
    """Does what the plan says before call ``n``, for each n in ``planned``."""

    def __init__(self, planned: dict[int, str], run: Any, say: Voice) -> None:
        self._planned = planned
        self._run = run
        self._say = say
        self._directory = RunDirectory(Path(run.dir))
        self._files: list[int] = []
        self._release = 0
        self._threads: list[threading.Thread] = []
        self._refused = 0
        self._alarms_until = -1
        self._rung = False

    def before(self, n: int) -> None:
        """Do what is planned for this call, and use the files that training opened meanwhile."""
        if self._release and n >= self._release:
            self._free()
        if self._refused:
            self._log_files(n)
            if n >= self._refused:
                self._take_files()
        kind = self._planned.get(n, "")
        if kind:
            getattr(self, f"_{kind}")(n)
        for fd in self._files if n % 10 == 0 else []:
            os.write(fd, b"the user's own line\n")

    def call(self, n: int, log: Callable[[], object]) -> bool:
        """Make call ``n``; False if a handler raised meanwhile.

        Raises:
            RuntimeError: what the handler raised was swallowed.
        """
        if n >= self._alarms_until:
            log()
            return True
        self._rung = False
        before = signal.signal(signal.SIGALRM, self._ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-4))
            log()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeIsUp:
            return False
        finally:
            signal.signal(signal.SIGALRM, before)
        if self._rung:
            raise RuntimeError(f"what a handler raised in call {n} was swallowed")
        return True

    def settle(self) -> None:
        """Free the disk before training's last call."""
        if self._release:
            self._free()
        if self._refused:
            self._take_files()

    def fill_until_finish(self, free_after_s: float) -> None:
        """Fill the disk now; another thread frees it, while ``finish`` waits."""
        if self._fill():
            timer = threading.Timer(free_after_s, _limit, [resource.RLIM_INFINITY])
            timer.daemon = True
            timer.start()

    def _close_descriptors(self, n: int) -> None:
        os.closerange(3, 256)
        self._files = [
            os.open(f"user-{n}-{i}.bin", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666) for i in range(USER_FILES)
        ]
        self._say.open()

    def _delete_journal(self, n: int) -> None:
        self._say("shield")
        for path in (
            self._directory.streams.glob(f"*.{self._directory.attempt()}.jsonl") if n % 2 else [self._journal()]
        ):
            path.unlink()
        time.sleep(PUT_BACK_S)
        self._run.log({"side": n}, step=FAR)
        self._say("unshield")

    def _full_disk(self, n: int) -> None:
        if self._fill():
            self._release = n + 20

    def _refused_files(self, n: int) -> None:
        """The disk takes no media and no artifacts for twenty calls: their folder can't be used."""
        media = self._directory.media
        self._say("shield")
        with contextlib.suppress(FileNotFoundError):
            media.rename(media.with_name("media-away"))
        media.write_text("no folder")
        self._refused = n + 20

    def _log_files(self, n: int) -> None:
        self._run.log({"picture": trackers.Image(picture(n))}, step=FAR + n)
        Path("artifact.bin").write_bytes(b"%d" % n)
        self._run.log_artifact("artifact.bin", name="file", metadata={"number": n})
        self._say("files", n)

    def _take_files(self) -> None:
        self._refused = 0
        media = self._directory.media
        media.unlink()
        with contextlib.suppress(FileNotFoundError):
            media.with_name("media-away").rename(media)
        for _ in range(MOST_LOOKS):  # what waits in memory a kill would cost, as docs/guarantees.md says
            time.sleep(PUT_BACK_S)
            self._run.log({"side": 0.25}, step=FAR)
            if not self._run._recorder._held:
                break
        self._say("unshield")

    def _journal(self) -> Path:
        """This attempt's own."""
        return self._directory.stream(StreamName("rank", 0, self._directory.attempt()))

    def _fill(self) -> bool:
        journal = self._journal().stat().st_size
        if self._say.size() + 100_000 > journal:  # training must go on telling what it does
            return False
        self._say("shield")
        _limit(journal + 50)
        return True

    def _free(self) -> None:
        self._release = 0
        _limit(resource.RLIM_INFINITY)
        time.sleep(FULL_S)
        self._run.log({"side": 0.5}, step=FAR)
        self._say("unshield")

    def _ring(self, *_: object) -> None:
        self._rung = True
        raise TimeIsUp

    def _handlers(self, n: int) -> None:
        """A timer's handler raises amid some of the next calls."""
        self._alarms_until = n + 20

    def _children(self, n: int) -> None:
        """Wait until no child is left: it sees its own, and no other."""
        heard: list[int] = []
        before = signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
        self._run.log({"side": 0.75}, step=FAR)  # starts another relay where the last one was killed
        if heard:
            raise RuntimeError("training heard of a child that it hasn't")
        pids = set()
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            pids.add(pid)
        waited = set()
        with contextlib.suppress(ChildProcessError):
            while True:
                waited.add(os.wait()[0])
        signal.signal(signal.SIGCHLD, before)
        if waited != pids:
            raise RuntimeError(f"training has started {pids}, and waited for {waited}")

    def _fork(self, n: int) -> None:
        parent = os.getpid()
        if os.fork() == 0:
            try:
                deadline = time.monotonic() + 30.0
                while os.getppid() == parent and time.monotonic() < deadline:
                    if said(self._say.path, "finished"):
                        for i in range(50):
                            self._run.log({"n": -1.0 - i, "x": -1.0})
                        break
                    time.sleep(0.01)
            finally:
                os._exit(0)

    def _thread(self, n: int) -> None:
        def go_on() -> None:
            while True:
                self._run.log({"side": 1.0}, step=FAR)
                time.sleep(0.005)

        threading.Thread(target=go_on, daemon=True).start()


def picture(n: int) -> Any:
    """The picture that call ``n`` logs: its number in each pixel."""
    import numpy as np

    return np.full((4, 4, 3), [n // 256 % 256, n % 256, 7], np.uint8)


def said(path: str, word: str) -> bool:
    """True if training has said this word."""
    return f"\n{word}\n" in Path(path).read_text()


def _limit(size: float) -> None:
    """No file of this process grows beyond it: writes fail as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size) if size != resource.RLIM_INFINITY else hard, hard))


def _raise() -> None:
    raise RuntimeError("the script's own error")


def _hooked() -> None:
    sys.excepthook = lambda *_: None
    raise RuntimeError("nobody prints this")


def _caught() -> None:
    with contextlib.suppress(SystemExit):
        sys.exit(2)


def _in_thread() -> None:
    thread = threading.Thread(target=sys.exit, args=(2,))
    thread.start()
    thread.join()


def _die(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


LEAVES: dict[str, tuple[Callable[[], Any], str]] = {
    "end": (lambda: None, "finished"),
    "exit_0": (lambda: sys.exit(0), "finished"),
    "exit_3": (lambda: exit(3), "failed"),
    "system_exit": (lambda: (_ for _ in ()).throw(SystemExit(3)), "failed"),
    "exit_text": (lambda: sys.exit("no more data"), "failed"),
    "raise": (_raise, "failed"),
    "raise_hooked": (_hooked, "failed"),
    "exit_caught": (_caught, "finished"),
    "exit_in_thread": (_in_thread, "finished"),
    "interrupt": (lambda: (_ for _ in ()).throw(KeyboardInterrupt()), "failed"),
    "abort": (os.abort, "crashed"),
    "segfault": (lambda: _die(signal.SIGSEGV), "crashed"),
}
"""Ways for a script to end without ``finish``, and the status that is true then."""
