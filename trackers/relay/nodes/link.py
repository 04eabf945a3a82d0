"""A node's connection to the main node, where they share neither a directory nor a store.

A carrier sends over it what it would send to a store. Nothing is remembered: a new connection asks how much of each
file the main node has, and goes on from there. See :mod:`trackers.relay.nodes.landing` for the other side.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import time
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE, Fatal, NotFound, Refused, Unavailable
from trackers.ranks import meeting
from trackers.ranks.launch import LOST_MAIN
from trackers.relay.nodes import frames
from trackers.relay.nodes.frames import MAC, MAGIC, MOST_FRAME, NONCE, PART_BYTES, Answer, Broken, Channel, Request
from trackers.support import confined

CONNECT_S = 5.0
"""Maximum time to connect to one address, in seconds."""
TIMEOUT_S = 20.0
"""Maximum time of one answer, in seconds."""
FIRST_WAIT_S, BEGIN_WAIT_S, MOST_WAIT_S = 0.5, 2.0, 15.0
"""Pause after the first failed try to connect, the longest before the first connection, and the longest, in seconds;
each is drawn from half to once and a half of it, so that nodes don't come back all at once."""
LOST = 3
"""Failed tries after which the main node is looked for anew."""


class Link:
    """Connects when something is to be said, and again after a failure.

    Args:
        folder: the launch's, where it is noted by what the main node is found. node: this one's number.
    """

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._node = folder, node
        self._socket: socket.socket | None = None
        self._channels: tuple[Channel, Channel] | None = None
        self._buffer = bytearray()
        self._sizes: dict[str, int] = {}
        self._wait_s, self._most_s, self._failed = FIRST_WAIT_S, BEGIN_WAIT_S, 0
        self._next = 0.0
        self._why = ""
        self._main = ""
        self._told = 0.0

    def look(self) -> None:
        """Connect, unless that is done.

        Raises:
            Unavailable, Refused: see :meth:`ask`.
        """
        if self._socket is not None:
            return
        if time.monotonic() < self._next:
            raise Unavailable(self._why)
        found = meeting.read(self._folder)
        if found is None:
            raise Unavailable("where the main node listens isn't known yet")
        error: Unavailable | Refused | None = None
        for address in found.addresses:
            try:
                self._connect(address, found)
            except (Unavailable, Refused) as failed:
                error = failed if error is None or isinstance(failed, Refused) else error
            else:
                self._sizes, self._wait_s, self._most_s, self._failed = {}, FIRST_WAIT_S, MOST_WAIT_S, 0
                return
        assert error is not None
        self._why = str(error)
        self._next = time.monotonic() + self._wait_s * random.uniform(0.5, 1.5)
        self._wait_s = min(2 * self._wait_s, self._most_s)
        self._failed += 1
        if self._failed % LOST == 0:
            with contextlib.suppress(OSError):
                confined.touch(self._folder / LOST_MAIN)
        raise error

    def hear(self) -> bytes:
        """The main node's last word.

        Raises:
            NotFound: it hasn't said any yet. Unavailable, Refused: see :meth:`ask`.
        """
        content = self.ask(Request("hear")).content
        if not content:
            raise NotFound(f"{self._main} serves no run yet")
        return content

    def tell(self, content: bytes) -> None:
        """Tell this node's last word.

        Raises:
            Unavailable, Refused: see :meth:`ask`.
        """
        self._told = self.ask(Request("tell", content=content)).time

    def told(self) -> float:
        """When that came, by the main node's clock, in Unix seconds."""
        return self._told

    def send(self, path: str, file: Path, root: Path) -> None:
        """Send complete lines that the main node lacks.

        Args:
            path: the file's name there. root: the directory that it must lie beneath.

        Raises:
            OSError: it can't be read. Fatal: what the main node has isn't the file's beginning.
            Unavailable, Refused: see :meth:`ask`.
        """
        with confined.open_file(file, root=root) as lines:
            size = self._sizes.get(path)
            if size is None:
                held = self.ask(Request("size", path))
                if held.size == frames.NOT_TAKEN:
                    return
                lines.seek(max(held.size - frames.DIGEST_BYTES, 0))
                own = lines.read(min(held.size, frames.DIGEST_BYTES))
                if held.size and (len(own) < min(held.size, frames.DIGEST_BYTES) or frames.digest(own) != held.digest):
                    raise Fatal(f"{file} was changed: its first {held.size:,} bytes aren't those on the main node")
                size = self._sizes[path] = held.size
            while True:
                lines.seek(size)
                content = lines.read(PART_BYTES)
                if b"\n" in content or len(content) < PART_BYTES:
                    content = content[: content.rfind(b"\n") + 1]
                if not content:
                    return
                came = self.ask(Request("append", path, size, content)).size
                if came < size + len(content):
                    self.close()
                    raise Unavailable(f"{self._main} has only {came:,} bytes of {path}")
                size = self._sizes[path] = came

    def ask(self, request: Request) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            Unavailable: the main node can't be reached, or can't do it now. Refused: it doesn't know this launch's
                secret, or doesn't take what was sent.
        """
        self.look()
        assert self._socket is not None
        assert self._channels is not None
        try:
            self._socket.settimeout(TIMEOUT_S)
            self._socket.sendall(self._channels[0].seal(msgspec.msgpack.encode(request)))
            answer = msgspec.msgpack.decode(self._receive(self._channels[1]), type=Answer)
        except (OSError, Broken, *UNDECODABLE) as error:
            self.close()
            raise Unavailable(f"{self._main} can't be reached, or fails: {_reason(error)}") from None
        if answer.error:
            raise Unavailable(f"{self._main}: {answer.error[:300]}")
        return answer

    def close(self) -> None:
        """Leave the connection: a new one begins anew."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._channels = None, None
        self._buffer.clear()

    def _connect(self, address: str, found: meeting.Meeting) -> None:
        self._main = f"the main node at {_shown(address)}:{found.port}"
        drawn = os.urandom(NONCE)
        try:
            self._socket = socket.create_connection((address, found.port), CONNECT_S)
        except socket.gaierror as error:
            raise Unavailable(
                f"{self._main} can't be reached ({_reason(error)}): this node knows no host of that name; "
                "TRACKER_NODES_ADDRESS, or MASTER_ADDR, names the main rank's node as every node knows it"
            ) from None
        except OSError as error:
            raise Unavailable(
                f"{self._main} can't be reached ({_reason(error)}): does a firewall refuse that port? "
                "TRACKER_NODES_PORT chooses another"
            ) from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.sendall(MAGIC + drawn)
            answered = self._exactly(NONCE)
            shaking = frames.Handshake(found.secret, self._folder.name, drawn, answered)
            if not frames.same(self._exactly(MAC), shaking.main_proof()):
                raise Broken("it doesn't know this job's secret")
            self._socket.sendall(struct.pack(">I", self._node) + shaking.node_proof(self._node))
            self._channels = shaking.channels()
        except Broken as error:
            self.close()
            raise Refused(f"{self._main} is another job's, or somebody else's: {error}") from None
        except OSError as error:
            self.close()
            raise Unavailable(f"{self._main} can't be reached, or fails: {_reason(error)}") from None

    def _receive(self, channel: Channel) -> bytes:
        until = time.monotonic() + TIMEOUT_S
        while (content := channel.open(self._buffer)) is None:
            self._more(MOST_FRAME, until)
        return content

    def _exactly(self, size: int) -> bytes:
        until = time.monotonic() + TIMEOUT_S
        while len(self._buffer) < size:
            self._more(size - len(self._buffer), until)
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def _more(self, most: int, until: float) -> None:
        """Wait for bytes; whoever sends them one by one has no longer than one answer may take."""
        assert self._socket is not None
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left_s)
        came = self._socket.recv(most)
        if not came:
            raise ConnectionResetError("the connection was closed")
        self._buffer += came


def _shown(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
