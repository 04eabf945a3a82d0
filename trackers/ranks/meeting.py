"""How nodes that share no directory find the main node: its addresses, a port, and a secret of the launch.

The main rank makes the secret in ``init``, and its relay's helper listens (:mod:`trackers.relay.nodes.landing`). From
there the address goes one of two ways to the first rank of each other node:

- through the store of ``torch.distributed``: the main rank sets one small key when the helper listens, and each node
  reads it. Both do so in a thread, by calls that answer at once: a call that waited would hold up training's own. Who
  can read that store can read the secret: it is as private as the store, which has no password;
- by what all ranks are given: the environment variable ``TRACKER_NODES_SECRET``, which is no option since options are
  written down, and the options ``TRACKER_NODES_PORT`` and ``TRACKER_NODES_ADDRESS``.

``listen.json`` in the launch's folder is the main rank's order to the helper. ``meeting.json`` is what the helper
answers, and on other nodes what their first rank has found. Both are their owner's to read. A carrier that doesn't
reach the main node there leaves ``main-lost``, and its first rank looks once more.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, UsageError
from trackers.ranks.launch import LISTEN, LOST_MAIN, MEETING
from trackers.support import confined, process_info

NETWORK = "network"
"""Value of ``TRACKER_NODES``."""
SHORTEST = 16
"""Characters that a secret from the options has at least."""
MOST_BYTES = 4096
"""No meeting's JSON is longer."""
MOST_ADDRESSES = 8
FIRST_S, LAST_S = 0.1, 2.0
"""Between two looks for the other side, in seconds: the first ones, and later."""
UNFOUND_S = 60.0
"""After that time without an address the reason is said, in seconds."""
ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Addresses for documentation (RFC 5737, RFC 3849): the way there is asked for, and nothing is sent."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Listen(msgspec.Struct):
    """What the helper of the main node is to do. port: 0 for any that is free. address: to listen at; "" for all.
    named: addresses that other nodes may know the main node by, besides those that this machine has. towards: a machine
    that all nodes reach; the address from which this one speaks to it is likely one that they reach, too."""

    secret: str
    port: int = 0
    address: str = ""
    named: list[str] = []
    towards: str = ""


class Meeting(msgspec.Struct):
    """Where the main node listens, and what proves that somebody belongs to the launch."""

    addresses: list[str]
    port: int
    secret: str

    @property
    def valid(self) -> bool:
        """Whether it can be used: it comes from elsewhere."""
        return (
            0 < len(self.addresses) <= MOST_ADDRESSES
            and all(0 < len(address) <= 255 for address in self.addresses)
            and 0 < self.port < 65536
            and len(self.secret) >= SHORTEST
        )


def own_secret() -> str:
    """The secret that this process was given; "" for none."""
    return os.environ.get("TRACKER_NODES_SECRET", "")


def check(options: Mapping[str, Any]) -> None:
    """Whether the options that name the main node go together.

    Raises:
        UsageError: they don't.
    """
    secret, port = own_secret(), int(options.get("TRACKER_NODES_PORT") or 0)
    if secret and len(secret) < SHORTEST:
        raise UsageError(
            f"TRACKER_NODES_SECRET has {len(secret)} characters: give {SHORTEST} or more, such as those of "
            "`openssl rand -hex 16`, the same on every rank"
        )
    if secret and not port:
        raise UsageError("TRACKER_NODES_SECRET needs TRACKER_NODES_PORT: a port that is free on the main rank's node")
    if secret and not (options.get("TRACKER_NODES_ADDRESS") or os.environ.get("MASTER_ADDR")):
        raise UsageError("TRACKER_NODES_SECRET needs TRACKER_NODES_ADDRESS, or MASTER_ADDR: the main rank's node")


def listen(folder: Path, options: Mapping[str, Any], first: bool) -> None:
    """Order the main node's helper to listen.

    Args:
        folder: the launch's.
        first: the main rank's node is the first one, which ``MASTER_ADDR`` names.

    Raises:
        OSError: it can't be written.
    """
    address, master = str(options.get("TRACKER_NODES_ADDRESS") or ""), os.environ.get("MASTER_ADDR", "")
    named = [address] if address else [master] if master and first else []
    order = Listen(
        secret=own_secret() or secrets.token_hex(32),
        port=int(options.get("TRACKER_NODES_PORT") or 0),
        address=address or (master if first and master in _LOOPBACK else ""),
        named=named,
        towards=master,
    )
    folder.mkdir(parents=True, exist_ok=True)
    confined.write_whole(folder / LISTEN, msgspec.json.encode(order), mode=0o600)


def read_order(folder: Path) -> Listen | None:
    """What the main rank has ordered; None where it hasn't."""
    with contextlib.suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(confined.read(folder / LISTEN, most=MOST_BYTES), type=Listen)
    return None


def read(folder: Path) -> Meeting | None:
    """Where the main node listens, as far as is known here."""
    with contextlib.suppress(OSError, *UNDECODABLE):
        found = msgspec.json.decode(confined.read(folder / MEETING, most=MOST_BYTES), type=Meeting)
        return found if found.valid else None
    return None


def write(folder: Path, meeting: Meeting) -> None:
    """Keep where the main node listens.

    Raises:
        OSError: it can't be written.
    """
    confined.write_whole(folder / MEETING, msgspec.json.encode(meeting), mode=0o600)


def addresses(order: Listen) -> list[str]:
    """By which other nodes may reach this machine, the likeliest first.

    A name that the launcher gave leads here from there, though it may be the loopback's here; so may the address from
    which this machine would speak to it, and the machine's name.
    """
    found = list(order.named)
    if not order.address:
        for target in filter(None, (order.towards, *ELSEWHERE)):
            with contextlib.suppress(OSError):
                family, kind, _, _, name = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, kind) as asking:
                    asking.connect(name)
                    own = str(asking.getsockname()[0])
                if not own.startswith("127.") and own != "::1":
                    found.append(own)
        found.append(process_info.host())
    return list(dict.fromkeys(filter(None, found or [order.address])))[:MOST_ADDRESSES]


def given(options: Mapping[str, Any]) -> Meeting | None:
    """The main node as the options name it; None where it is to be found through torch.distributed."""
    secret = own_secret()
    address = str(options.get("TRACKER_NODES_ADDRESS") or "") or os.environ.get("MASTER_ADDR", "")
    if not (secret and address):
        return None
    found = Meeting([address], int(options.get("TRACKER_NODES_PORT") or 0), secret)
    return found if found.valid else None


def _store() -> Any:
    """The store of torch.distributed, once that is initialised."""
    distributed = process_info.torch_distributed()
    return None if distributed is None else distributed.distributed_c10d._get_default_store()


def _key(launch: str) -> str:
    return f"trackers/nodes/{launch}"


class Announcing:
    """The main rank's side: tells torch's store where its helper listens, and again where that has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: tuple[bytes, int] | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._over = threading.Event()
        atexit.register(self._end)
        self.look()

    def look(self) -> None:
        """Called now and then: begin to tell where something is to be told. Takes microseconds."""
        if os.getpid() != self._pid or (self._thread is not None and self._thread.is_alive()):
            return
        if self._told is None or self._told != self._now():
            self._thread = threading.Thread(target=self._tell, name="trackers: address of this node", daemon=True)
            self._thread.start()

    def _end(self) -> None:
        if os.getpid() == self._pid:  # a forked child may have the event's lock as the thread had it
            self._over.set()

    def _now(self) -> tuple[bytes, int] | None:
        """What there is to tell, and the store that is to know it; None before both are there."""
        with contextlib.suppress(Exception):  # torch's store isn't a public way
            if (store := _store()) is not None and (meeting := read(self._folder)) is not None:
                return msgspec.json.encode(meeting), id(store)
        return None

    def _tell(self) -> None:
        pause = FIRST_S
        while self._folder.exists() and not self._over.is_set():
            with contextlib.suppress(Exception):
                if (now := self._now()) is not None:
                    _store().set(_key(self._folder.name), now[0])
                    self._told = now
                    return
            self._over.wait(pause)
            pause = min(pause * 1.3, LAST_S)


class Finding:
    """Another node's side: its first rank finds out where the main node listens, and notes it for its carrier.

    Args:
        problem: called with one line where that can't be found.
    """

    def __init__(self, folder: Path, problem: Callable[[str], None]) -> None:
        self._folder, self._problem = folder, problem
        self._over = threading.Event()
        self._pid = os.getpid()
        atexit.register(self.end)
        self._thread = self._start()

    def look(self) -> None:
        """Called now and then: look again where the carrier has lost the main node. Takes microseconds."""
        if os.getpid() == self._pid and not self._thread.is_alive() and (self._folder / LOST_MAIN).exists():
            with contextlib.suppress(OSError):
                confined.remove(self._folder / LOST_MAIN)
            self._thread = self._start()

    def end(self) -> None:
        """The rank has ended."""
        if os.getpid() == self._pid:  # a forked child may have the event's lock as the thread had it
            atexit.unregister(self.end)
            self._over.set()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._find, name="trackers: address of the main node", daemon=True)
        thread.start()
        return thread

    def _find(self) -> None:
        pause, waited, said = FIRST_S, 0.0, False
        while not self._over.wait(pause):
            waited += pause
            pause = min(pause * 1.3, LAST_S)
            reason = "torch.distributed isn't initialised"
            try:
                if (store := _store()) is not None:
                    reason = "the main rank hasn't said it in torch.distributed's store"
                    key = _key(self._folder.name)
                    if store.check([key]):  # get alone would wait, and keep training's own calls waiting
                        meeting = msgspec.json.decode(bytes(store.get(key))[:MOST_BYTES], type=Meeting)
                        if meeting.valid:
                            write(self._folder, meeting)
                            return
            except Exception as error:  # torch's store isn't a public way; it may be gone, too
                reason = str(error).partition("\n")[0][:200]
            if waited > UNFOUND_S and not said:
                said = True
                self._problem(
                    f"TRACKER_NODES=network: where the main node listens isn't known: {reason}. It is looked for; "
                    "without torch.distributed set TRACKER_NODES_SECRET, TRACKER_NODES_PORT and MASTER_ADDR"
                )
