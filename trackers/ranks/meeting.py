"""How nodes that share no directory find the main node: its addresses, a port, and a secret of the launch.

The main rank makes the secret in ``init``, and its relay's helper listens (:mod:`trackers.relay.nodes.landing`). The
first rank of each other node learns the address in one of two ways:

- through the store of ``torch.distributed``: the main rank sets one small key when the helper listens, and each node
  reads it, with the fingerprint of the helper's certificate (:mod:`trackers.relay.nodes.encryption`). Both do so in a
  thread, by calls that never block: a blocking call would hold up training's own. Whoever can read that store can read
  the secret: it is as private as the store, which has no password;
- from settings of all ranks: the environment variable ``TRACKER_NODES_SECRET``, which is no option since options are
  written to files, and the options ``TRACKER_NODES_PORT`` and ``TRACKER_NODES_ADDRESS``.

``listen.json`` in the launch's folder is the main rank's order to the helper. ``meeting.json`` has the address, written
by the helper, and on other nodes by their first rank. Only their owner can read both. A carrier that can't reach the
main node at that address creates ``main-lost``, and its first rank looks the address up again.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, UsageError
from trackers.ranks.launch import LISTEN, LOST_MAIN, MEETING
from trackers.support import confined, launcher, machines
from trackers.support.interruption import pass_on, suppress

NETWORK = "network"
"""Value of ``TRACKER_NODES``."""
PLAIN = "off"
"""Value of ``TRACKER_NODES_TLS`` with which nothing is encrypted."""
SHORTEST = 16
"""Minimum number of characters in a secret given by the user."""
MOST_BYTES = 4096
"""Maximum size of either file."""
MOST_ADDRESSES = 8
FIRST_S, LAST_S = 0.1, 2.0
"""First and longest pause between two tries to reach torch's store, in seconds."""
PROBED = ("192.0.2.1", "2001:db8::1")
"""Addresses for documentation (RFC 5737, RFC 3849): only the route to them is looked up, nothing is sent."""
_FINGERPRINT = re.compile("[0-9a-f]{64}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Listen(msgspec.Struct):
    """Order for the main node's helper. port: 0 for any that is free. address: to listen at; "" for all. named:
    addresses by which other nodes may reach the main node, besides this machine's own. towards: a machine that all
    nodes reach: this machine's address on the route to it is likely one that they reach, too. tls: encrypt."""

    secret: str
    port: int = 0
    address: str = ""
    named: list[str] = []
    towards: str = ""
    tls: bool = True


class Meeting(msgspec.Struct):
    """Where the main node listens, and the secret that proves membership of the launch. certificate: the fingerprint of
    the main node's; "" if it has none, or if it is known by the proofs alone."""

    addresses: list[str]
    port: int
    secret: str
    certificate: str = ""

    @property
    def valid(self) -> bool:
        """Whether the content is usable: it comes from another process."""
        return (
            0 < len(self.addresses) <= MOST_ADDRESSES
            and all(0 < len(address) <= 255 for address in self.addresses)
            and 0 < self.port < 65536
            and len(self.secret) >= SHORTEST
            and (not self.certificate or _FINGERPRINT.fullmatch(self.certificate) is not None)
        )


def own_secret() -> str:
    """The secret in this process's environment; "" for none."""
    return os.environ.get("TRACKER_NODES_SECRET", "")


def encrypts(options: Mapping[str, Any]) -> bool:
    """Whether nodes encrypt what they send each other."""
    return options.get("TRACKER_NODES_TLS") != PLAIN


def check(options: Mapping[str, Any]) -> None:
    """Check the options that name the main node.

    Raises:
        UsageError: one is missing or too short.
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
        tls=encrypts(options),
    )
    confined.make_own(folder)
    confined.write_whole(folder / LISTEN, msgspec.json.encode(order), mode=0o600)


def read_order(folder: Path) -> Listen | None:
    """The main rank's order; None if there is none."""
    with suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(confined.read(folder / LISTEN, most=MOST_BYTES, own=True), type=Listen)
    return None


def read(folder: Path) -> Meeting | None:
    """Where the main node listens; None while that is unknown on this node."""
    with suppress(OSError, *UNDECODABLE):
        meeting = msgspec.json.decode(confined.read(folder / MEETING, most=MOST_BYTES, own=True), type=Meeting)
        return meeting if meeting.valid else None
    return None


def write(folder: Path, meeting: Meeting) -> None:
    """Write where the main node listens.

    Raises:
        OSError: it can't be written.
    """
    confined.write_whole(folder / MEETING, msgspec.json.encode(meeting), mode=0o600)


def addresses(order: Listen) -> list[str]:
    """Addresses by which other nodes may reach this machine, the likeliest first.

    They are the name from the launcher, which other nodes can resolve though it may be the loopback's here, this
    machine's addresses on the routes to other machines, and its host name.
    """
    candidates = list(order.named)
    if not order.address:
        for target in filter(None, (order.towards, *PROBED)):
            with suppress(OSError):
                family, kind, _, _, name = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, kind) as probe:
                    probe.connect(name)
                    own = str(probe.getsockname()[0])
                if not own.startswith("127.") and own != "::1":  # no other node reaches those
                    candidates.append(own)
        candidates.append(machines.host())
    return list(dict.fromkeys(filter(None, candidates or [order.address])))[:MOST_ADDRESSES]


def from_options(options: Mapping[str, Any]) -> Meeting | None:
    """The main node from the options; None if they don't name it, and torch.distributed has to."""
    secret = own_secret()
    address = str(options.get("TRACKER_NODES_ADDRESS") or "") or os.environ.get("MASTER_ADDR", "")
    if not (secret and address):
        return None
    meeting = Meeting([address], int(options.get("TRACKER_NODES_PORT") or 0), secret)
    return meeting if meeting.valid else None


def _store() -> Any:
    """The store of torch.distributed, once that is initialised."""
    distributed = launcher.torch_distributed()
    return None if distributed is None else distributed.distributed_c10d._get_default_store()


def _key(launch: str) -> str:
    return f"trackers/nodes/{launch}"


class Announcing:
    """The main rank's side: sets its helper's address in torch's store, and again after a change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._announced: tuple[bytes, int] | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._over = threading.Event()
        atexit.register(self._end)
        self.poll()

    def poll(self) -> None:
        """Called now and then: start to announce the address if it has changed. Takes microseconds."""
        if os.getpid() != self._pid or (self._thread is not None and self._thread.is_alive()):
            return
        if self._announced is None or self._announced != self._current():
            self._thread = threading.Thread(target=self._announce, name="trackers: address of this node", daemon=True)
            self._thread.start()

    def _end(self) -> None:
        if os.getpid() == self._pid:  # a forked child may have the event's lock as the thread had it
            self._over.set()

    def _current(self) -> tuple[bytes, int] | None:
        """Encoded address, and the id of the store for it; None before both exist."""
        with suppress(Exception):  # torch's store isn't a public interface
            if (store := _store()) is not None and (meeting := read(self._folder)) is not None:
                return msgspec.json.encode(meeting), id(store)
        return None

    def _announce(self) -> None:
        pause_s = FIRST_S
        while self._folder.exists() and not self._over.is_set():
            with suppress(Exception):
                if (current := self._current()) is not None:
                    _store().set(_key(self._folder.name), current[0])
                    self._announced = current
                    return
            self._over.wait(pause_s)
            pause_s = min(pause_s * 1.3, LAST_S)


class Finding:
    """Another node's side: its first rank reads the main node's address, and writes it to a file for its carrier.

    Args:
        say: called with one line if the address isn't found within ``unfound_s``.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], unfound_s: float = 60.0) -> None:
        self._folder, self._say, self._unfound_s = folder, say, unfound_s
        self._over = threading.Event()
        self._pid = os.getpid()
        atexit.register(self.end)
        self._thread = self._start()

    def poll(self) -> None:
        """Called now and then: look the address up again if the carrier has lost the main node. Takes microseconds."""
        if os.getpid() == self._pid and not self._thread.is_alive() and (self._folder / LOST_MAIN).exists():
            with suppress(OSError):
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
        pause_s, waited_s, is_reported = FIRST_S, 0.0, False
        while not self._over.wait(pause_s):
            waited_s += pause_s
            pause_s = min(pause_s * 1.3, LAST_S)
            reason = "torch.distributed isn't initialised"
            try:
                if (store := _store()) is not None:
                    reason = "the main rank hasn't said it in torch.distributed's store"
                    key = _key(self._folder.name)
                    if store.check([key]):  # get alone would block, and training's own calls with it
                        meeting = msgspec.json.decode(bytes(store.get(key))[:MOST_BYTES], type=Meeting)
                        if meeting.valid:
                            write(self._folder, meeting)
                            return
            except Exception as error:  # torch's store isn't a public interface; it may be gone, too
                pass_on(error)
                reason = str(error).partition("\n")[0][:200]
            if waited_s > self._unfound_s and not is_reported:
                is_reported = True
                self._say(
                    f"TRACKER_NODES=network: where the main node listens isn't known: {reason}. It is looked for; "
                    "without torch.distributed set TRACKER_NODES_SECRET, TRACKER_NODES_PORT and MASTER_ADDR"
                )
