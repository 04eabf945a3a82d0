"""The main node's end of the connections of :mod:`trackers.relay.nodes.link`: takes what other nodes send.

Part of the fetcher's process, which serves it between its looks. What comes is written where the fetcher would have
copied it from a store. Only who knows the launch's secret is heard, and only where that node may write. There is at
most one connection for each node, and one frame of it in memory.
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
from trackers.relay.nodes import frames
from trackers.relay.nodes.frames import HELLO, MAGIC, NONCE, NOT_TAKEN, PROOF, Answer, Broken, Channel, Request
from trackers.support import confined

MOST_STRANGERS = 64
"""Connections that haven't proved yet that they belong to the launch; the oldest one goes for another."""
STRANGER_S = 10.0
"""How long such a connection has for its proof, in seconds."""
STUCK_S = 60.0
"""How long a frame may take to come, or an answer to be taken, in seconds."""
RECEIVED = 64 * 1024
BACKLOG = 512
PAUSE_S = 1.0
"""Without accepting, where there are no more descriptors, in seconds."""
Place = Callable[[int, str], "tuple[Path, str] | None"]


class _Connection:
    def __init__(self, one: socket.socket) -> None:
        self.socket, self.since = one, time.monotonic()
        self.inbox, self.outbox = bytearray(), bytearray()
        self.shaking: frames.Handshake | None = None
        self.channels: tuple[Channel, Channel] | None = None
        self.node = -1
        self.address = ""


class Landing:
    """Listens for one launch. To a :class:`trackers.relay.nodes.fetcher.Fetcher` it is a store: it holds the nodes'
    last words, and has nothing to copy, since what comes is put in its place at once.

    Args:
        folder: the launch's.
        place: where a node's file goes, as a directory and a path beneath it; None for one that isn't taken.

    Attributes:
        stranger: the address of the last one who spoke as nodes do, with another secret; "" for none.

    Raises:
        NotFound: the main rank hasn't ordered it.
    """

    def __init__(self, folder: Path, node: int, count: int, place: Place) -> None:
        order = meeting.read_order(folder)
        if order is None:
            raise NotFound(f"{folder} has no order to listen")
        self.where = "the network"
        self._order, self._folder, self._own, self._count, self._place = order, folder, node, count, place
        self._listening: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._words: dict[str, tuple[bytes, float]] = {}
        self._accept_at = 0.0
        self.came = False
        self.stranger = ""

    def open(self) -> None:
        """Listen, on the port of an earlier helper of this launch where that is free, and note where.

        Raises:
            Refused: the port isn't free, or the address isn't this machine's.
        """
        (self._folder / OTHERS).mkdir(exist_ok=True)
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
        port = self._listening[0].getsockname()[1]
        meeting.write(self._folder, meeting.Meeting(meeting.addresses(self._order), port, self._order.secret))

    def serve(self, seconds: float) -> None:
        """Take what comes meanwhile."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            self._tidy(now)
            for key, events in self._selector.select(max(0.0, until - now)):
                if key.data is None:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
                elif key.data.socket.fileno() >= 0:
                    self._turn(key.data, events)
            if time.monotonic() >= until:
                return

    def close(self) -> None:
        """Hang up and listen no more."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        for listening in self._listening:
            listening.close()
        self._selector.close()

    def put(self, name: str, content: bytes) -> str:
        """Keep the main node's last word, for who asks."""
        self._words[name] = content, time.time()
        return ""

    def get(self, name: str, most: int) -> bytes:
        """A last word.

        Raises:
            NotFound: there is none.
        """
        if name not in self._words:
            raise NotFound(f"{name}: nothing has come")
        return self._words[name][0]

    def objects(self, below: str) -> Iterator[Listed]:
        """The last words, as a store lists them."""
        for name, (content, came) in list(self._words.items()):
            if name.startswith(f"{below}/"):
                yield Listed(name, len(content), str(came), came)

    def _listen(self, port: int) -> None:
        address = self._order.address or None
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        both = socket.has_dualstack_ipv6() and address is None
        wanted = socket.AF_INET6 if both else socket.AF_INET
        family, _, _, _, name = next((one for one in found if address is None and one[0] == wanted), found[0])
        listening = socket.create_server(
            name[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both and family == socket.AF_INET6
        )
        listening.setblocking(False)
        self._listening.append(listening)
        self._selector.register(listening, selectors.EVENT_READ)

    def _accept(self, listening: socket.socket) -> None:
        try:
            one, address = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._selector.unregister(listening)
                self._accept_at = time.monotonic() + PAUSE_S
            return
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        strangers = [found for found in self._connections.values() if found.channels is None]
        if len(strangers) >= MOST_STRANGERS:
            self._drop(min(strangers, key=lambda found: found.since))
        connection = self._connections[one.fileno()] = _Connection(one)
        connection.address = str(address[0]).removeprefix("::ffff:")
        self._selector.register(one, selectors.EVENT_READ, connection)

    def _turn(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                came = connection.socket.recv(RECEIVED)
                if not came:
                    raise Broken("closed")
                if not connection.inbox:
                    connection.since = time.monotonic() if connection.channels is not None else connection.since
                connection.inbox += came
            self._write(connection)
            while not connection.outbox and self._take(connection):
                self._write(connection)
            waits = selectors.EVENT_WRITE if connection.outbox else selectors.EVENT_READ
            self._selector.modify(connection.socket, waits, connection)
        except BlockingIOError:
            return
        except (OSError, Broken, *UNDECODABLE):
            if connection.shaking is not None and connection.channels is None:
                self.stranger = connection.address  # it didn't take this side's proof, or gave a wrong one
            self._drop(connection)

    def _write(self, connection: _Connection) -> None:
        if connection.outbox:
            with contextlib.suppress(BlockingIOError):
                sent = connection.socket.send(connection.outbox)
                del connection.outbox[:sent]
                connection.since = time.monotonic() if connection.channels is not None else connection.since

    def _take(self, connection: _Connection) -> bool:
        """Answer the next request, or the next step of the proofs; False where more must come first."""
        inbox = connection.inbox
        if connection.channels is not None:
            content = connection.channels[0].open(inbox)
            if content is None:
                return False
            answer = self._answer(connection.node, msgspec.msgpack.decode(content, type=Request))
            connection.outbox += connection.channels[1].seal(msgspec.msgpack.encode(answer))
            connection.since = time.monotonic()
        elif connection.shaking is None:
            if not MAGIC.startswith(inbox[: len(MAGIC)]):
                raise Broken("no node")
            if len(inbox) < HELLO:
                return False
            drawn, own = bytes(inbox[len(MAGIC) : HELLO]), os.urandom(NONCE)
            del inbox[:HELLO]
            connection.shaking = frames.Handshake(self._order.secret, self._folder.name, drawn, own)
            connection.outbox += own + connection.shaking.main_proof()
        else:
            if len(inbox) < PROOF:
                return False
            (node,) = struct.unpack_from(">I", inbox)
            proof = bytes(inbox[4:PROOF])
            del inbox[:PROOF]
            if not frames.same(proof, connection.shaking.node_proof(node)) or node == self._own or node >= self._count:
                raise Broken("another job's node")
            for other in [one for one in self._connections.values() if one.node == node]:
                self._drop(other)  # it has come back
            connection.node, connection.channels = node, connection.shaking.channels()
        return True

    def _answer(self, node: int, request: Request) -> Answer:
        if request.what == "hear":
            return Answer(content=self._words.get(self._main(), (b"", 0.0))[0])
        if request.what == "tell":
            if len(request.content) > launches.NEWS_BYTES:
                return Answer(error="a node's word is too long")
            now = time.time()
            self._words[f"{nodes.home(self._folder)}/nodes/{nodes.node_file(node)}"] = request.content, now
            self.came = True
            return Answer(time=now)
        try:
            found = self._place(node, request.path)
            if found is None:
                return Answer(size=NOT_TAKEN)
            if request.what == "size":
                return self._size(*found)
            return Answer(size=_append(*found, request.begin, request.content))
        except (TrackersError, OSError) as error:
            return Answer(error=(getattr(error, "strerror", None) or str(error))[:300])

    def _size(self, root: Path, path: str) -> Answer:
        try:
            with confined.open_file(root / path, root=root) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - frames.DIGEST_BYTES, 0))
                return Answer(size=size, digest=frames.digest(file.read(min(size, frames.DIGEST_BYTES))))
        except FileNotFoundError:
            return Answer()

    def _main(self) -> str:
        return f"{nodes.home(self._folder)}/{launches.MAIN}"

    def _drop(self, connection: _Connection) -> None:
        fd = connection.socket.fileno()
        if fd >= 0:
            self._connections.pop(fd, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection.socket)
            connection.socket.close()

    def _tidy(self, now: float) -> None:
        """End connections that keep this one waiting."""
        for connection in list(self._connections.values()):
            stuck = bool(connection.inbox or connection.outbox)
            limit_s = STRANGER_S if connection.channels is None else STUCK_S
            if (stuck or connection.channels is None) and now - connection.since > limit_s:
                self._drop(connection)
        if self._accept_at and now > self._accept_at:
            self._accept_at = 0.0
            for listening in self._listening:
                with contextlib.suppress(KeyError):
                    self._selector.register(listening, selectors.EVENT_READ)


def _append(root: Path, path: str, begin: int, content: bytes) -> int:
    """Write bytes at a place in a file, unless a gap would come before them; how long the file is then."""
    target, size = mirror.begun(root, path)
    if not 0 <= begin <= size or begin + len(content) <= size:
        return size
    mirror.need_room(root, begin + len(content) - size)
    mirror.write_at(target, size, content[size - begin :], root)
    return begin + len(content)
