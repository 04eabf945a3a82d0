"""The host agent: loads what relays and deliveries need once, and forks a relay for each run that asks for one.

It has one thread, reads nothing of a run, and imports nothing from training's directory. A relay that it forked needs
it no more. It ends when nobody has asked for a while, when its files were changed, or when its place was taken away.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.journal import forked_helper, helper_process
from trackers.relay.agent import place, succession
from trackers.relay.agent.elsewhere import BUSY, DESCRIPTORS, LENGTH, READY
from trackers.relay.agent.relays import LightParent, Relays, are_light
from trackers.relay.agent.sampler import SharedSampler
from trackers.relay.agent.start import Plan
from trackers.relay.agent.turns import Order

LOOK_S = 10.0
"""Between looks for changes of what it has loaded, and of its place."""
TURN_S = 0.2
"""Between looks at deliveries that wait for a place, in seconds."""
PATIENCE_S = 1.0
"""How long one process that asks may keep the others waiting."""
REQUEST_BYTES = 16 * 1024 * 1024
LIGHT = (
    "psutil", "trackers.relay.supervisor", "trackers.relay.delivery.delivery", "trackers.relay.sampling.many",
    "trackers.relay.aggregation.worker", "concurrent.futures", "hmac", "sqlite3", "zipfile", "email.message",
    "importlib.metadata", "importlib.resources", "email.parser", "platform", "pwd", "glob", "multiprocessing",
)  # fmt: skip
"""Modules that most relays and deliveries load."""


def serve(entry: forked_helper.Entry, directory: str, name: str, plan: Plan) -> int:
    """Be the agent, to its end; returns the exit code.

    Args:
        entry: what helpers begin with.
        directory: where it listens. name: its key.
    """
    folder = place.open_directory(Path(directory), make=True)
    lock = place.lock(folder, name)
    if lock < 0 and plan.succeeds and succession.end_hung(folder, directory, name):
        lock = place.lock(folder, name)
    if lock < 0:
        return 0
    _sweep(folder, name)
    agent = Agent(entry, folder, name, plan)
    try:
        agent.serve()
    finally:
        agent.close_door()
        agent.order.close()
        agent.sampler.close()
        if place.holds(folder, name, lock):  # else it is another's
            place.remove(folder, name)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    os.close(lock)
    agent.see_them_end()
    if agent.begins_anew:
        left_out = [*plan.left_out, agent.threaded]
        again = msgspec.json.encode(msgspec.structs.replace(plan, left_out=left_out, succeeds=False)).decode()
        os.execve(sys.executable, [*sys.orig_argv[:-1], again], dict(os.environ))  # noqa: S606 - itself
    return 0


def _sweep(folder: int, own: str) -> None:
    """Remove what agents that were killed have left."""
    for entry in os.listdir(folder):
        other, dot, ending = entry.rpartition(".")
        if dot and ending in ("lock", "sock") and other != own:
            with contextlib.suppress(OSError):
                place.held(folder, other)


class Agent:
    """Serves.

    Attributes:
        threaded: the tracker whose package has started a thread, which ends it; "" for none.
        order: which deliveries of its runs work at the same time.
        sampler: what samples for all of them.

    Args:
        folder: where it listens. name: its key.
    """

    def __init__(self, entry: forked_helper.Entry, folder: int, name: str, plan: Plan) -> None:
        self._entry = entry
        self._folder = folder
        self._name = name
        self._plan = plan
        self._idle_s = plan.idle_s
        self._loaded: list[str] = []
        self._wanted = list(plan.trackers)
        self._kept: frozenset[int] = frozenset()
        self._is_heavy = False
        self._door: socket.socket | None = None
        self._relays = Relays(entry)
        self._light = LightParent(entry)
        self._asked_to_end = self._outdated = False
        self._used = time.monotonic()
        self._looked = 0.0
        self._installed: list[str] = []
        self._files: dict[str, int] = {}
        self._asking: dict[int, tuple[socket.socket, float]] = {}
        self._inode = -1
        self.threaded = ""
        self.order = Order()
        self.sampler = SharedSampler(entry)

    def serve(self) -> None:
        """Fork for whoever asks, until it is time to end."""
        woken = self._take_signals()
        self._installed = _installed()
        self._files = _stamps(self._installed)
        while not (self._asked_to_end or self._outdated):
            if not self._load():
                return
            if not self._wanted:
                self._open_door()
            ready = self._wait(woken)
            if self._relays.reap():
                self._used = time.monotonic()
            if self._door is not None and self._door.fileno() in ready:
                self._greet(self._door)
            self._hear(ready, time.monotonic())
            self.order.turn(ready)
            self.sampler.look()
            self._light.look()
            now = time.monotonic()
            self._used = now if self.order else self._used
            idle = not self._relays and not self.order and now - self._used >= self._idle_s
            if idle or (self._door is not None and now - self._looked >= LOOK_S and self._is_outdated(now)):
                return

    def see_them_end(self) -> None:
        """Stay until the relays have ended, to tell how; another agent may have the place.

        One that begins anew stays for its other forks, too: it wouldn't know them afterwards, and never ask how they
        ended.
        """
        while not self._asked_to_end and (
            self._relays or (self.threaded and not (self._light.gone and self.sampler.gone))
        ):
            time.sleep(0.2)
            self._relays.reap()

    @property
    def begins_anew(self) -> bool:
        """Whether it goes on as a new process, without the package that has started a thread."""
        return bool(self.threaded) and not self._asked_to_end

    def close_door(self) -> None:
        """Listen no longer; who waits is sent away."""
        for line, _ in self._asking.values():
            line.close()
        self._asking.clear()
        self._shut()
        self._light.close()

    def _shut(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None
            place.remove_socket(self._folder, self._name, self._inode)

    def _open_door(self) -> None:
        if self._door is not None:
            return
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._name}.sock", dir_fd=self._folder)
        self._door.bind(place.address(self._folder, self._name))
        self._door.listen(256)
        self._door.setblocking(False)
        self._inode = os.stat(f"{self._name}.sock", dir_fd=self._folder).st_ino

    def _take_signals(self) -> int:
        helper_process.ignore_interrupts()
        woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        return woken

    def _end(self, *_: Any) -> None:
        self._asked_to_end = True

    def _load(self) -> bool:
        """Import what runs have asked for; False if no process can be forked afterwards."""
        wanted = [name for name in self._wanted if name not in (*self._loaded, *self._plan.left_out)]
        if not wanted and self._loaded:
            self._wanted.clear()
            return True
        self._shut()  # who asks meanwhile doesn't wait
        if self._asking:  # they were told that there is time for them
            return True
        self._wanted.clear()
        self.order.close()
        helper_process.lower_priority(self._plan.nice)
        before = _descriptors()
        for name in [*wanted] if self._loaded else ["", *wanted]:
            if name and not self._is_heavy and not are_light([name]):
                self._is_heavy = True
                self._light.begin(self._kept | _descriptors() - before)
            _import(name)
            self._loaded.append(name)
            if not forked_helper.possible():
                self.threaded = name
                return False
        self._kept |= _descriptors() - before
        gc.collect()
        gc.freeze()  # the collector would write to each object, and memory that is written to is shared no longer
        helper_process.usual_priority([])
        self._used = time.monotonic()
        return True

    def _wait(self, woken: int) -> set[int]:
        poll = select.poll()
        if self._door is not None:
            poll.register(self._door, select.POLLIN)
        poll.register(woken, select.POLLIN)
        for fd in (*self.order.descriptors(), *self._asking):
            poll.register(fd, select.POLLIN)
        left = min(LOOK_S, max(0.0, self._used + self._idle_s - time.monotonic()))
        if self._relays or self.order:
            left = LOOK_S
        if self._asking or self.order.busy():
            left = TURN_S
        ready = {fd for fd, _ in poll.poll(left * 1000 + 1)}
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
        return ready

    def _is_outdated(self, now: float) -> bool:
        """Whether its files were changed, or its place is another's or gone."""
        self._looked = now
        try:
            own = os.stat(f"{self._name}.sock", dir_fd=self._folder).st_ino == self._inode
        except OSError:
            return True
        return not own or _stamps(self._installed) != self._files

    def _greet(self, door: socket.socket) -> None:
        """Tell all that ask whether there is time for them: a crowd that comes at once isn't sent away."""
        lines = []
        while True:
            try:
                line, _ = door.accept()
            except OSError:
                break
            with contextlib.suppress(OSError):
                if place.peer(line) == os.geteuid():
                    lines.append(line)
                    continue
            line.close()
        now = time.monotonic()
        if lines:  # of a crowd, one look for all that asked before it
            self._outdated = _stamps(self._installed) != self._files
        for line in lines:
            try:
                line.sendall(BUSY if self._outdated else READY)
            except OSError:  # it is gone
                line.close()
                continue
            if self._outdated:
                line.close()
            else:
                self._asking[line.fileno()] = line, now
                self._used = now

    def _answer(self, line: socket.socket) -> None:
        received: list[int] = []
        try:
            line.settimeout(PATIENCE_S)
            request = _read(line, received)
            if request is None:
                line.close()
                return
            if "places" in request:
                self.order.take(line, int(request["places"]))
                return
            if "sample" in request:
                text = json.dumps(request["sample"]).encode()
                self.sampler.hand_over(text, [line.fileno(), *received], self._kept)
                line.close()
                return
            self._idle_s = float(request.pop("idle_s"))
            trackers = request.pop("trackers")
            if are_light(trackers) and self._light.hand_over(line, request, trackers, received):
                line.close()
                return
            self._wanted += trackers
            self._relays.fork(line, request, received, self._kept)
        except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):  # who asked can start its own
            line.close()
        finally:
            for fd in received:
                os.close(fd)

    def _hear(self, ready: set[int], now: float) -> None:
        """Answer those that were greeted and have asked."""
        for fd, (line, since) in list(self._asking.items()):
            if fd in ready:
                del self._asking[fd]
                self._answer(line)
            elif now - since > PATIENCE_S:
                del self._asking[fd]
                line.close()


def _read(line: socket.socket, received: list[int]) -> dict[str, Any] | None:
    """A request, its descriptors put into ``received``; None where nobody asks any more."""
    head, descriptors, _, _ = socket.recv_fds(line, LENGTH.size, DESCRIPTORS)
    received += descriptors
    for fd in descriptors:
        os.set_inheritable(fd, False)
    if len(head) < LENGTH.size:
        return None
    (left,) = LENGTH.unpack(head)
    if left > REQUEST_BYTES:
        raise ValueError(f"a request of {left} bytes")
    text = bytearray()
    while len(text) < left:
        part = line.recv(left - len(text))
        if not part:
            return None
        text += part
    found = json.loads(text)
    return found if isinstance(found, dict) else None


def _import(tracker: str) -> None:
    """Import what deliveries to a tracker need; "" for what all need. What can't be imported they will complain of."""
    with contextlib.suppress(Exception):
        if not tracker:
            for name in LIGHT:
                getattr(importlib.import_module(name), "preload", lambda: None)()
        elif tracker in registry.BUILT_IN:  # another one may read the run's environment as it is imported
            preload = getattr(registry.load(tracker), "preload", None)
            if preload is not None:
                preload()


def _descriptors() -> frozenset[int]:
    """Descriptors of this process that are open."""
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            found.append(fd)
    return frozenset(found)


def _installed() -> list[str]:
    """Directories that packages are installed to. Others on the import path may change with each file of a run."""
    found = []
    for path in sys.path:
        with contextlib.suppress(OSError):
            if any(name.endswith((".dist-info", ".egg-info", ".pth")) for name in os.listdir(path)):
                found.append(path)
    return found


def _stamps(installed: Sequence[str]) -> dict[str, int]:
    """When the package's files, and the directories that packages are installed to, were last changed."""
    found: dict[str, int] = {}
    for path in installed:
        with contextlib.suppress(OSError):
            found[path] = os.stat(path).st_mtime_ns
    folders = [str(helper_process.HOME)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    found[entry.path] = entry.stat().st_mtime_ns
                elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return found
