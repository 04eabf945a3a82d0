"""The main node's end of the connections of :mod:`trackers.relay.nodes.link`: receives what other nodes send.

Part of the fetcher's process, which serves it between its passes. Content is written to the files to which the fetcher
would copy it from a store. A node must know the launch's secret, and may write its own files only. There is at most one
connection for each node, and one frame of it in memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE, NotFound, Refused, TrackersError
from trackers.object_storage import launches, mirror
from trackers.object_storage.store import Listed
from trackers.ranks import meeting, nodes
from trackers.ranks.launch import OTHERS
from trackers.relay.nodes import encryption, frames
from trackers.relay.nodes.encryption import Encryption
from trackers.relay.nodes.frames import HELLO, MAGIC, NONCE, NOT_TAKEN, PROOF, Broken, Channel, NodeAnswer, NodeRequest
from trackers.support import confined

MOST_STRANGERS = 64
"""Maximum connections without a proof of the launch's secret; the oldest is dropped for a new one."""
STRANGER_S, STUCK_S = 10.0, 60.0
RECEIVED = 64 * 1024
BACKLOG = 512
PAUSE_S = 1.0
"""Pause without accepting when file descriptors run out, in seconds."""
FindTarget = Callable[[int, str], "tuple[Path, str] | None"]


class _Connection:
    """encryption: None without TLS. inbox: received content. outbox: to be sent, encrypted. amid: a TLS record is
    incomplete."""

    def __init__(self, accepted: socket.socket, encryption: Encryption | None) -> None:
        self.socket, self.since, self.encryption = accepted, time.monotonic(), encryption
        self.inbox, self.outbox, self.amid = bytearray(), bytearray(), False
        self.handshake: frames.Handshake | None = None
        self.channels: tuple[Channel, Channel] | None = None
        self.node = -1
        self.address = ""

    def receive(self, received: bytes) -> None:
        """Take what was received."""
        if self.encryption is None:
            self.inbox += received
            return
        content = self.encryption.decrypt(received)
        self.amid = not content
        self.inbox += content
        self.outbox += self.encryption.encrypt()

    def send(self, content: bytes) -> None:
        """Append to what is to be sent."""
        self.outbox += content if self.encryption is None else self.encryption.encrypt(content)


class Landing:
    """Listens for one launch. To a :class:`trackers.relay.nodes.fetcher.Fetcher` it is a store: it holds the nodes'
    news, and lists no streams, since their content is written to its file at once.

    Args:
        folder: the launch's.
        find_target: where a node's file goes, as a directory and a path below it; None for one that isn't accepted.
        stranger_s: how long a connection has for its proof. stuck_s: to receive a frame, or to send an answer.

    Attributes:
        stranger: address of the last peer that spoke the protocol, and how it differed; "" for none.

    Raises:
        NotFound: the main rank hasn't ordered to listen.
    """

    def __init__(
        self, folder: Path, node: int, node_count: int, find_target: FindTarget,
        stranger_s: float = STRANGER_S, stuck_s: float = STUCK_S,
    ) -> None:  # fmt: skip
        order = meeting.read_order(folder)
        if order is None:
            raise NotFound(f"{folder} has no order to listen")
        self.where = "the network"
        self._order, self._folder, self._own_node = order, folder, node
        self._node_count, self._find_target = node_count, find_target
        self.stranger_s, self.stuck_s = stranger_s, stuck_s
        self._listeners: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._news: dict[str, tuple[bytes, float]] = {}
        self._accept_at = 0.0
        self._identity: encryption.Identity | None = None
        self.stranger = ""

    def open(self) -> None:
        """Listen, on the port of this launch's earlier helper if that is free, and write the address for other nodes.

        Raises:
            Refused: the port isn't free, or the address isn't this machine's; or no certificate can be made.
        """
        (self._folder / OTHERS).mkdir(exist_ok=True)
        if self._order.tls and self._identity is None:
            self._identity = encryption.identity(self._folder)
        before = meeting.read(self._folder)
        ports = [self._order.port] if self._order.port else [before.port if before is not None else 0, 0]
        error: OSError | None = None
        for port in ports:
            try:
                self._listen(port)
                break
            except OSError as failed:
                error = failed
        else:
            where = self._order.address or "any address"
            raise Refused(
                f"this machine can't listen at {where}, port {ports[-1]} ({error and error.strerror}): "
                "choose others by TRACKER_NODES_ADDRESS and TRACKER_NODES_PORT"
            )
        port = self._listeners[0].getsockname()[1]
        found = meeting.Meeting(meeting.addresses(self._order), port, self._order.secret, self._certificate)
        meeting.write(self._folder, found)

    def serve(self, seconds: float) -> None:
        """Accept connections and answer requests for so long."""
        deadline = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            self._drop_stuck(now)
            for key, events in self._selector.select(max(0.0, deadline - now)):
                if key.data is None:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
                elif key.data.socket.fileno() >= 0:
                    self._handle(key.data, events)
            if time.monotonic() >= deadline:
                return

    def close(self) -> None:
        """Close every connection, and stop listening."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        for listener in self._listeners:
            listener.close()
        self._selector.close()

    def put(self, name: str, content: bytes) -> str:
        """Keep the main node's news, for nodes that ask."""
        self._news[name] = content, time.time()
        return ""

    def get(self, name: str, most: int) -> bytes:
        """News by name.

        Raises:
            NotFound: none arrived under that name.
        """
        if name not in self._news:
            raise NotFound(f"{name}: nothing has come")
        return self._news[name][0]

    def objects(self, below: str) -> Iterator[Listed]:
        """The news, as a store lists objects."""
        for name, (content, arrived_at) in list(self._news.items()):
            if name.startswith(f"{below}/"):
                yield Listed(name, len(content), str(arrived_at), arrived_at)

    @property
    def _certificate(self) -> str:
        """The fingerprint of this node's; "" without TLS."""
        return "" if self._identity is None else self._identity.fingerprint

    def _listen(self, port: int) -> None:
        address = self._order.address or None
        candidates = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        dual_stack = socket.has_dualstack_ipv6() and address is None
        preferred = socket.AF_INET6 if dual_stack else socket.AF_INET
        family, _, _, _, name = next(
            (candidate for candidate in candidates if address is None and candidate[0] == preferred), candidates[0]
        )
        listener = socket.create_server(
            name[:2], family=family, backlog=BACKLOG, dualstack_ipv6=dual_stack and family == socket.AF_INET6
        )
        listener.setblocking(False)
        self._listeners.append(listener)
        self._selector.register(listener, selectors.EVENT_READ)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._selector.unregister(listener)
                self._accept_at = time.monotonic() + PAUSE_S
            return
        accepted.setblocking(False)
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        strangers = [other for other in self._connections.values() if other.channels is None]
        if len(strangers) >= MOST_STRANGERS:  # who says nothing keeps no node out
            self._drop(min(strangers, key=lambda other: other.since))
        connection = self._connections[accepted.fileno()] = _Connection(
            accepted, None if self._identity is None else self._identity.accept()
        )
        connection.address = str(address[0]).removeprefix("::ffff:")
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _handle(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                received = connection.socket.recv(RECEIVED)
                if not received:
                    raise Broken("closed")
                if not connection.inbox and not connection.amid:
                    connection.since = time.monotonic() if connection.channels is not None else connection.since
                if connection.encryption is not None and received.startswith(MAGIC[:8]):
                    self.stranger = f"{connection.address} doesn't encrypt: {encryption.SAME}"
                connection.receive(received)
            self._write(connection)
            while not connection.outbox and self._answer_next(connection):
                self._write(connection)
            waits = selectors.EVENT_WRITE if connection.outbox else selectors.EVENT_READ
            self._selector.modify(connection.socket, waits, connection)
        except BlockingIOError:
            return
        except (OSError, Broken, *UNDECODABLE):
            if connection.handshake is not None and connection.channels is None:
                # it rejected this side's proof, or sent a wrong one
                self.stranger = f"{connection.address} tried with another secret than this job's"
            self._drop(connection)

    def _write(self, connection: _Connection) -> None:
        if connection.outbox:
            with contextlib.suppress(BlockingIOError):
                sent = connection.socket.send(connection.outbox)
                del connection.outbox[:sent]
                connection.since = time.monotonic() if connection.channels is not None else connection.since

    def _answer_next(self, connection: _Connection) -> bool:
        """Answer the next request, or the next step of the handshake; False if it isn't complete yet."""
        inbox = connection.inbox
        if connection.channels is not None:
            content = connection.channels[0].open(inbox)
            if content is None:
                return False
            answer = self._answer(connection.node, msgspec.msgpack.decode(content, type=NodeRequest))
            connection.send(connection.channels[1].seal(msgspec.msgpack.encode(answer)))
            connection.since = time.monotonic()
        elif connection.handshake is None:
            if not MAGIC.startswith(inbox[: len(MAGIC)]):
                raise Broken("no node")
            if len(inbox) < HELLO:
                return False
            node_nonce, own_nonce = bytes(inbox[len(MAGIC) : HELLO]), os.urandom(NONCE)
            del inbox[:HELLO]
            connection.handshake = frames.Handshake(
                self._order.secret, self._folder.name, node_nonce, own_nonce, self._certificate
            )
            connection.send(own_nonce + connection.handshake.main_proof())
        else:
            if len(inbox) < PROOF:
                return False
            (node,) = struct.unpack_from(">I", inbox)
            proof = bytes(inbox[4:PROOF])
            del inbox[:PROOF]
            if (
                not frames.same(proof, connection.handshake.node_proof(node))
                or node == self._own_node
                or node >= self._node_count
            ):
                raise Broken("another job's node")
            for other in [other for other in self._connections.values() if other.node == node]:
                self._drop(other)  # the node has reconnected
            connection.node, connection.channels = node, connection.handshake.channels()
        return True

    def _answer(self, node: int, request: NodeRequest) -> NodeAnswer:
        if request.what == "hear":
            return NodeAnswer(content=self._news.get(f"{nodes.home(self._folder)}/{launches.MAIN}", (b"", 0.0))[0])
        if request.what == "tell":
            if len(request.content) > launches.NEWS_BYTES:
                return NodeAnswer(error="a node's word is too long")
            now = time.time()
            self._news[f"{nodes.home(self._folder)}/nodes/{nodes.node_file(node)}"] = request.content, now
            return NodeAnswer(time=now)
        try:
            target = self._find_target(node, request.path)
            if target is None:
                return NodeAnswer(size=NOT_TAKEN)
            if request.what == "size":
                return self._size(*target)
            return NodeAnswer(size=_append(*target, request.begin, request.content))
        except (TrackersError, OSError) as error:
            return NodeAnswer(error=(getattr(error, "strerror", None) or str(error))[:300])

    def _size(self, root: Path, path: str) -> NodeAnswer:
        try:
            with confined.open_file(root / path, root=root) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - frames.DIGEST_BYTES, 0))
                return NodeAnswer(size=size, digest=frames.digest(file.read(min(size, frames.DIGEST_BYTES))))
        except FileNotFoundError:
            return NodeAnswer()

    def _drop(self, connection: _Connection) -> None:
        fd = connection.socket.fileno()
        if fd >= 0:
            self._connections.pop(fd, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection.socket)
            connection.socket.close()

    def _drop_stuck(self, now: float) -> None:
        """Drop connections that made no progress in time, and accept again after a pause."""
        for connection in list(self._connections.values()):
            stuck = bool(connection.inbox or connection.outbox or connection.amid)
            limit_s = self.stranger_s if connection.channels is None else self.stuck_s
            if (stuck or connection.channels is None) and now - connection.since > limit_s:
                self._drop(connection)
        if self._accept_at and now > self._accept_at:
            self._accept_at = 0.0
            for listener in self._listeners:
                with contextlib.suppress(KeyError):
                    self._selector.register(listener, selectors.EVENT_READ)


def _append(root: Path, path: str, begin: int, content: bytes) -> int:
    """Write bytes at an offset of a file, unless that leaves a gap before them. Returns the file's size after it."""
    target, size = mirror.prepare_file(root, path)
    if not 0 <= begin <= size or begin + len(content) <= size:  # sent again, its answer was lost
        return size
    mirror.need_room(root, begin + len(content) - size)
    mirror.write_at(target, size, content[size - begin :], root)
    return begin + len(content)
