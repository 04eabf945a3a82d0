"""A node's connection to the main node, where they share neither a directory nor a store.

A carrier sends over it what it would send to a store. No state survives a connection: a new one asks how much of each
file the main node has, and continues from there. See :mod:`trackers.relay.nodes.landing` for the other side.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import random
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE, Fatal, NotFound, Refused, Unavailable
from trackers.ranks import meeting
from trackers.ranks.launch import LOST_MAIN
from trackers.relay.nodes import encryption, frames
from trackers.relay.nodes.frames import (
    MAC,
    MAGIC,
    MOST_FRAME,
    NONCE,
    PART_BYTES,
    Broken,
    Channel,
    NodeAnswer,
    NodeRequest,
)
from trackers.support import confined

CONNECT_S = 5.0
"""Maximum time to connect to one address, in seconds."""
TIMEOUT_S = 20.0
"""Maximum time of one answer, in seconds."""
FIRST_WAIT_S, BEGIN_WAIT_S, MOST_WAIT_S = 0.5, 2.0, 15.0
"""Pause after the first failed try to connect, the longest before the first connection, and the longest, in seconds;
each is multiplied by a random factor of 0.5 to 1.5, so that nodes don't reconnect all at once."""
LOST = 3
"""Failed tries after which the main node's address is looked up again."""


class NetworkTransport:
    """Transport over a TCP connection, opened by the first request and again after a failure.

    Args:
        folder: the launch's, with the main node's addresses. node: number of this node. tls: encrypt.
    """

    def __init__(self, folder: Path, node: int, *, tls: bool = True) -> None:
        self._folder, self._node, self._tls = folder, node, tls
        self._socket: socket.socket | None = None
        self._channels: tuple[Channel, Channel] | None = None
        self._buffer = bytearray()
        self._sizes: dict[str, int] = {}
        self._wait_s, self._longest_wait_s, self._failures = FIRST_WAIT_S, BEGIN_WAIT_S, 0
        self._connect_at = 0.0
        self._failure = ""
        self._main_name = ""
        self._news_time = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def connect(self) -> None:
        """Connect to the main node, unless connected.

        Raises:
            Unavailable, Refused: see :meth:`ask`.
        """
        if self._socket is not None:
            return
        if time.monotonic() < self._connect_at:
            raise Unavailable(self._failure)
        main_node = meeting.read(self._folder)
        if main_node is None:
            raise Unavailable("where the main node listens isn't known yet")
        error: Unavailable | Refused | None = None
        for address in main_node.addresses:
            try:
                self._connect_to(address, main_node)
            except (Unavailable, Refused) as failed:  # a refusal says more than silence
                error = failed if error is None or isinstance(failed, Refused) else error
            else:
                self._sizes, self._wait_s, self._longest_wait_s, self._failures = {}, FIRST_WAIT_S, MOST_WAIT_S, 0
                return
        assert error is not None
        self._failure = str(error)
        self._connect_at = time.monotonic() + self._wait_s * random.uniform(0.5, 1.5)
        self._wait_s = min(2 * self._wait_s, self._longest_wait_s)
        self._failures += 1
        if self._failures % LOST == 0:
            with contextlib.suppress(OSError):
                confined.touch(self._folder / LOST_MAIN)
        raise error

    def fetch_main_news(self) -> bytes:
        """Encoded MainNews, as the main node last set it.

        Raises:
            NotFound: it serves no run yet. Unavailable, Refused: see :meth:`ask`.
        """
        content = self.ask(NodeRequest("hear")).content
        if not content:
            raise NotFound(f"{self._main_name} serves no run yet")
        return content

    def send_news(self, content: bytes) -> None:
        """Send this node's encoded NodeNews.

        Raises:
            Unavailable, Refused: see :meth:`ask`.
        """
        self._news_time = self.ask(NodeRequest("tell", content=content)).time

    def news_time(self) -> float:
        """When the news arrived, in Unix seconds by the main node's clock."""
        return self._news_time

    def send_file(self, path: str, file: Path, root: Path) -> None:
        """Send the complete lines of a file that the main node lacks.

        Args:
            path: the file's name on the main node. root: the directory that must contain it.

        Raises:
            OSError: the file can't be read. Fatal: the main node's content isn't the file's beginning.
            Unavailable, Refused: see :meth:`ask`.
        """
        with confined.open_file(file, root=root) as lines:
            end = os.fstat(lines.fileno()).st_size  # what is added meanwhile is for the next call
            size = self._sizes.get(path)
            if size is None:
                stored = self.ask(NodeRequest("size", path))
                if stored.size == frames.NOT_TAKEN:
                    return
                lines.seek(max(stored.size - frames.DIGEST_BYTES, 0))
                own = lines.read(min(stored.size, frames.DIGEST_BYTES))
                if stored.size and (
                    len(own) < min(stored.size, frames.DIGEST_BYTES) or frames.digest(own) != stored.digest
                ):
                    raise Fatal(f"{file} was changed: its first {stored.size:,} bytes aren't those on the main node")
                size = self._sizes[path] = stored.size
            while True:
                lines.seek(size)
                content = lines.read(max(0, min(PART_BYTES, end - size)))
                if b"\n" in content or len(content) < PART_BYTES:  # else one line longer than a part
                    content = content[: content.rfind(b"\n") + 1]
                if not content:
                    return
                self.meanwhile()
                stored_size = self.ask(NodeRequest("append", path, size, content)).size
                if stored_size < size + len(content):
                    self.close()
                    raise Unavailable(f"{self._main_name} has only {stored_size:,} bytes of {path}")
                size = self._sizes[path] = stored_size

    def ask(self, request: NodeRequest) -> NodeAnswer:
        """Send a request and wait for its answer.

        Raises:
            Unavailable: the main node can't be reached, or fails now. Refused: it doesn't know this launch's secret, or
                rejects the request.
        """
        self.connect()
        assert self._socket is not None
        assert self._channels is not None
        try:
            self._send(self._channels[0].seal(msgspec.msgpack.encode(request)))
            answer = msgspec.msgpack.decode(self._receive_frame(self._channels[1]), type=NodeAnswer)
        except (OSError, Broken, *UNDECODABLE) as error:
            self.close()
            raise Unavailable(f"{self._main_name} can't be reached, or fails: {_reason(error)}") from None
        if answer.error:
            raise Unavailable(f"{self._main_name}: {answer.error[:300]}")
        return answer

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._channels = None, None
        self._buffer.clear()

    def _connect_to(self, address: str, main_node: meeting.Meeting) -> None:
        self._main_name = f"the main node at {f'[{address}]' if ':' in address else address}:{main_node.port}"
        own_nonce = os.urandom(NONCE)
        try:
            self._socket = socket.create_connection((address, main_node.port), CONNECT_S)
        except socket.gaierror as error:
            raise Unavailable(
                f"{self._main_name} can't be reached ({_reason(error)}): this node knows no host of that name; "
                "TRACKER_NODES_ADDRESS, or MASTER_ADDR, names the main rank's node as every node knows it"
            ) from None
        except OSError as error:
            raise Unavailable(
                f"{self._main_name} can't be reached ({_reason(error)}): does a firewall refuse that port? "
                "TRACKER_NODES_PORT chooses another"
            ) from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            certificate = self._encrypt(main_node)
            self._send(MAGIC + own_nonce)
            main_nonce = self._receive_exactly(NONCE)
            handshake = frames.Handshake(main_node.secret, self._folder.name, own_nonce, main_nonce, certificate)
            if not frames.same(self._receive_exactly(MAC), handshake.main_proof()):
                raise Broken("it doesn't know this job's secret, or somebody stands between")
            self._send(struct.pack(">I", self._node) + handshake.node_proof(self._node))
            self._channels = handshake.channels()
        except Refused:
            self.close()
            raise
        except Broken as error:
            self.close()
            raise Refused(f"{self._main_name} is another job's, or somebody else's: {error}") from None
        except OSError as error:
            self.close()
            raise Unavailable(f"{self._main_name} can't be reached, or fails: {_reason(error)}") from None

    def _encrypt(self, main_node: meeting.Meeting) -> str:
        """Begin TLS, if this node encrypts. Returns the fingerprint of the main node's certificate, else ""."""
        assert self._socket is not None
        if not self._tls:
            if main_node.certificate:
                raise Broken(f"it encrypts, and this node doesn't: {encryption.SAME}")
            return ""
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket, certificate = encryption.connect(self._socket)
        except encryption.Closed:
            raise ConnectionResetError(f"the connection was closed before TLS began; {encryption.SAME}") from None
        except encryption.NotTls as error:
            raise Broken(f"it doesn't encrypt ({_reason(error)}): {encryption.SAME}") from None
        if main_node.certificate and not hmac.compare_digest(certificate, main_node.certificate):
            raise Broken("its certificate isn't this job's")
        return certificate

    def _receive_frame(self, channel: Channel) -> bytes:
        deadline = time.monotonic() + TIMEOUT_S
        while (content := channel.open(self._buffer)) is None:
            self._receive_some(MOST_FRAME, deadline)
        return content

    def _receive_exactly(self, size: int) -> bytes:
        deadline = time.monotonic() + TIMEOUT_S
        while len(self._buffer) < size:
            self._receive_some(size - len(self._buffer), deadline)
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def _send(self, content: bytes) -> None:
        """Send bytes within the time of an answer, all together."""
        assert self._socket is not None
        deadline, rest = time.monotonic() + TIMEOUT_S, memoryview(content)
        while rest:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("nothing was taken in time")
            self._socket.settimeout(left_s)
            rest = rest[self._socket.send(rest) :]

    def _receive_some(self, most: int, deadline: float) -> None:
        """Receive bytes until a deadline for the whole answer: a peer that sends single bytes gets no more time."""
        assert self._socket is not None
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left_s)
        received = self._socket.recv(most)
        if not received:
            raise ConnectionResetError("the connection was closed")
        self._buffer += received


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
