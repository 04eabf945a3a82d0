"""The host agent: loads what relays and deliveries need once, and forks a relay for each run that requests one.

It has one thread, reads nothing of a run, and imports nothing from training's directory. A relay that it forked doesn't
need it any more. It ends after a time without requests, when its files change, or when its socket is removed.
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
from trackers.errors import UNDECODABLE
from trackers.journal import forked_helper, helper_process
from trackers.relay.agent import endpoint, succession
from trackers.relay.agent.client import BUSY, DESCRIPTORS, LENGTH, READY
from trackers.relay.agent.relays import LightParent, Relays, are_light
from trackers.relay.agent.sampler import SharedSampler
from trackers.relay.agent.start import AgentPlan
from trackers.relay.agent.turns import TurnServer

LOOK_S = 10.0
"""Interval between checks for changes of the loaded files and of its socket, in seconds."""
TURN_S = 0.2
"""Interval between assignments of work slots while deliveries wait, in seconds."""
PATIENCE_S = 1.0
"""Maximum time for a client to send its whole request, in seconds; nobody waits meanwhile."""
REQUEST_BYTES = 16 * 1024 * 1024
LIGHT = (
    "psutil", "trackers.relay.supervisor", "trackers.relay.delivery.delivery", "trackers.relay.sampling.many",
    "trackers.relay.aggregation.worker", "concurrent.futures", "hmac", "sqlite3", "zipfile", "email.message",
    "importlib.metadata", "importlib.resources", "email.parser", "platform", "pwd", "glob", "multiprocessing",
)  # fmt: skip
"""Modules that most relays and deliveries load."""


def serve(entry: forked_helper.Entry, directory: str, name: str, plan: AgentPlan) -> int:
    """Run the agent until it ends; returns the exit code.

    Args:
        entry: main function of helper processes.
        directory: of its socket. name: its key.
    """
    folder = endpoint.open_directory(Path(directory), make=True)
    lock = endpoint.lock(folder, name)
    if lock < 0 and plan.succeeds and succession.end_hung(folder, directory, name):
        lock = endpoint.lock(folder, name)
    if lock < 0:
        return 0
    _remove_stale(folder, name)
    agent = Agent(entry, folder, name, plan)
    try:
        agent.serve()
    finally:
        agent.close_listener()
        agent.turns.close()
        agent.sampler.close()
        if endpoint.holds_lock(folder, name, lock):  # else another agent has it
            endpoint.remove(folder, name)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    os.close(lock)
    agent.wait_for_relays()
    if agent.begins_anew:
        left_out = [*plan.left_out, agent.threaded]
        arguments = msgspec.json.encode(msgspec.structs.replace(plan, left_out=left_out, succeeds=False)).decode()
        os.execve(sys.executable, [*sys.orig_argv[:-1], arguments], dict(os.environ))  # noqa: S606 - itself
    return 0


def _remove_stale(folder: int, own_name: str) -> None:
    """Remove files of agents that were killed."""
    for entry in os.listdir(folder):
        other, dot, ending = entry.rpartition(".")
        if dot and ending in ("lock", "sock") and other != own_name:
            with contextlib.suppress(OSError):
                endpoint.is_alive(folder, other)


class Agent:
    """Accepts requests and forks relays.

    Attributes:
        threaded: the tracker whose package has started a thread, after which the agent must end; "" for none.
        turns: decides which deliveries of its runs work at the same time.
        sampler: samples for all of its runs.

    Args:
        folder: descriptor of its socket's directory. name: its key.
    """

    def __init__(self, entry: forked_helper.Entry, folder: int, name: str, plan: AgentPlan) -> None:
        self._entry = entry
        self._folder = folder
        self._name = name
        self._plan = plan
        self._idle_s = plan.idle_s
        self._loaded: list[str] = []
        self._to_load = list(plan.trackers)
        self._kept: frozenset[int] = frozenset()
        self._is_heavy = False
        self._listener: socket.socket | None = None
        self._relays = Relays(entry)
        self._light = LightParent(entry)
        self._asked_to_end = self._outdated = False
        self._last_used = time.monotonic()
        self._checked = 0.0
        self._installed: list[str] = []
        self._files: dict[str, int] = {}
        self._accepted: dict[int, Asking] = {}
        self._inode = -1
        self.threaded = ""
        self.turns = TurnServer(name)
        self.sampler = SharedSampler(entry)

    def serve(self) -> None:
        """Serve requests until it is time to end."""
        woken = self._wake_on_signals()
        self._installed = _installed()
        self._files = _modified(self._installed)
        while not (self._asked_to_end or self._outdated):
            if not self._load():
                return
            if not self._to_load:
                self._listen()
            ready = self._wait(woken)
            if self._relays.reap():
                self._last_used = time.monotonic()
            if self._listener is not None and self._listener.fileno() in ready:
                self._accept(self._listener)
            self._read_requests(ready, time.monotonic())
            self.turns.poll(ready)
            self.sampler.poll()
            self._light.poll()
            now = time.monotonic()
            self._last_used = now if self.turns else self._last_used
            idle = not self._relays and not self.turns and now - self._last_used >= self._idle_s
            if idle or (self._listener is not None and now - self._checked >= LOOK_S and self._is_outdated(now)):
                return

    def wait_for_relays(self) -> None:
        """Wait until the relays have ended, to send their exit codes; another agent may have replaced this one.

        One that restarts itself also waits for its other forks, which it couldn't reap afterwards.
        """
        while not self._asked_to_end and (
            self._relays or (self.threaded and not (self._light.is_gone and self.sampler.is_gone))
        ):
            time.sleep(0.2)
            self._relays.reap()

    @property
    def begins_anew(self) -> bool:
        """Whether it goes on as a new process, without the package that has started a thread."""
        return bool(self.threaded) and not self._asked_to_end

    def close_listener(self) -> None:
        """Stop listening; close waiting connections."""
        for asking in self._accepted.values():
            asking.close()
        self._accepted.clear()
        self._stop_listening()
        self._light.close()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            endpoint.remove_socket(self._folder, self._name, self._inode)

    def _listen(self) -> None:
        if self._listener is not None:
            return
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._name}.sock", dir_fd=self._folder)
        self._listener.bind(endpoint.address(self._folder, self._name))
        self._listener.listen(256)
        self._listener.setblocking(False)
        self._inode = os.stat(f"{self._name}.sock", dir_fd=self._folder).st_ino

    def _wake_on_signals(self) -> int:
        helper_process.ignore_interrupts()
        woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        return woken

    def _end(self, *_: Any) -> None:
        self._asked_to_end = True

    def _load(self) -> bool:
        """Import the packages of requested trackers; False if no process can be forked afterwards."""
        missing = [name for name in self._to_load if name not in (*self._loaded, *self._plan.left_out)]
        if not missing and self._loaded:
            self._to_load.clear()
            return True
        self._stop_listening()  # clients don't wait meanwhile
        if self._accepted:  # these are answered first
            return True
        self._to_load.clear()
        self.turns.close()
        helper_process.lower_priority(self._plan.nice)
        before = _descriptors()
        for name in [*missing] if self._loaded else ["", *missing]:
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
        self._last_used = time.monotonic()
        return True

    def _wait(self, woken: int) -> set[int]:
        poll = select.poll()
        if self._listener is not None:
            poll.register(self._listener, select.POLLIN)
        poll.register(woken, select.POLLIN)
        for fd in (*self.turns.descriptors(), *self._accepted):
            poll.register(fd, select.POLLIN)
        timeout_s = min(LOOK_S, max(0.0, self._last_used + self._idle_s - time.monotonic()))
        if self._relays or self.turns:
            timeout_s = LOOK_S
        if self._accepted or self.turns.busy():
            timeout_s = TURN_S
        ready = {fd for fd, _ in poll.poll(timeout_s * 1000 + 1)}
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
        return ready

    def _is_outdated(self, now: float) -> bool:
        """Whether its files have changed, or its socket is gone or another agent's."""
        self._checked = now
        try:
            is_own = os.stat(f"{self._name}.sock", dir_fd=self._folder).st_ino == self._inode
        except OSError:
            return True
        return not is_own or _modified(self._installed) != self._files

    def _accept(self, listener: socket.socket) -> None:
        """Accept or refuse all waiting connections, so that many at once aren't refused."""
        lines = []
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                break
            with contextlib.suppress(OSError):
                if endpoint.peer(line) == os.geteuid():
                    lines.append(line)
                    continue
            line.close()
        if lines:  # one check for all waiting connections
            self._outdated = _modified(self._installed) != self._files
        for line in lines:
            try:
                line.sendall(BUSY if self._outdated else READY)
            except OSError:  # it is gone
                line.close()
                continue
            if self._outdated:
                line.close()
            else:
                self._accepted[line.fileno()] = asking = Asking(line)
                self._last_used = asking.since

    def _answer(self, line: socket.socket, text: bytes, received: list[int]) -> None:
        try:
            line.settimeout(PATIENCE_S)
            request = json.loads(text)
            if "places" in request:
                self.turns.add(line, int(request["places"]))
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
            self._to_load += trackers
            self._relays.fork(line, request, received, self._kept)
        except (OSError, *UNDECODABLE, KeyError, TypeError, msgspec.ValidationError):  # the client can start its own
            line.close()

    def _read_requests(self, ready: set[int], now: float) -> None:
        """Answer accepted connections that have sent a request."""
        for fd, asking in list(self._accepted.items()):
            whole = fd in ready and asking.is_whole()
            if whole or now - asking.since > PATIENCE_S:
                del self._accepted[fd]
                if whole:
                    self._answer(asking.line, bytes(asking.text[LENGTH.size :]), asking.descriptors)
                asking.close(answered=whole)


class Asking:
    """An accepted connection, and what of its request has come."""

    def __init__(self, line: socket.socket) -> None:
        self.line, self.since = line, time.monotonic()
        line.setblocking(False)
        self.text, self.descriptors = bytearray(), list[int]()

    def is_whole(self) -> bool:
        """Read what is there. True if no more is to come: it is whole, too long, or the other side is gone."""
        while (missing := self._bytes() - len(self.text)) and len(self.descriptors) <= DESCRIPTORS:
            try:
                chunk, received, _, _ = socket.recv_fds(self.line, missing, DESCRIPTORS)
            except OSError as error:
                return not isinstance(error, BlockingIOError)
            for fd in received:
                os.set_inheritable(fd, False)
            self.descriptors += received
            self.text += chunk
            if not chunk:
                break
        return True

    def _bytes(self) -> int:
        return LENGTH.size + (min(REQUEST_BYTES, *LENGTH.unpack_from(self.text)) if self.text[LENGTH.size - 1 :] else 0)

    def close(self, *, answered: bool = False) -> None:
        """Close its descriptors; a connection that was answered is another's."""
        for fd in self.descriptors:
            os.close(fd)
        if not answered:
            self.line.close()


def _import(tracker: str) -> None:
    """Import what deliveries to a tracker need; "": what all need. Deliveries report what can't be imported."""
    with contextlib.suppress(Exception):
        if not tracker:
            for name in LIGHT:
                importlib.import_module(name)
            importlib.import_module("trackers.relay.environment").preload()
        else:  # a plug-in that doesn't say that it may be may read the run's environment as it is imported
            registry.preload(tracker)


def _descriptors() -> frozenset[int]:
    """Open descriptors of this process."""
    numbers = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            numbers.append(fd)
    return frozenset(numbers)


def _installed() -> list[str]:
    """Directories with installed packages. Others on the import path may change with each file of a run."""
    folders = []
    for path in sys.path:
        with contextlib.suppress(OSError):
            if any(name.endswith((".dist-info", ".egg-info", ".pth")) for name in os.listdir(path)):
                folders.append(path)
    return folders


def _modified(installed: Sequence[str]) -> dict[str, int]:
    """Modification times of this package's files, and of the directories with installed packages."""
    times: dict[str, int] = {}
    for path in installed:
        with contextlib.suppress(OSError):
            times[path] = os.stat(path).st_mtime_ns
    folders = [str(helper_process.HOME)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    times[entry.path] = entry.stat().st_mtime_ns
                elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return times
