"""What two nodes say to each other over a connection: proofs of the launch's secret, then requests and answers.

Both sides prove that they know the secret, by HMAC-SHA256 over numbers that each has drawn for this connection. From
these come two keys, one for each direction. Every frame is its length (4 bytes), MessagePack, and the HMAC of both and
of the frame's number in its direction: one that was changed, repeated, left out or put in ends the connection. Nothing
is encrypted.

    node                                        main node
    MAGIC, a number           ────────────>
                              <────────────     a number, its proof
    its node's number, proof  ────────────>
    a request                 ────────────>
                              <────────────     an answer
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Literal

import msgspec

MAGIC = b"trackers nodes 1\n"
NONCE = 32
MAC = 32
HELLO = len(MAGIC) + NONCE
PROOF = 4 + MAC
PART_BYTES = 256 * 1024
"""Maximum content of a request."""
MOST_FRAME = PART_BYTES + 4096
"""Maximum length of a frame's MessagePack."""
DIGEST_BYTES = 64 * 1024
NOT_TAKEN = -1
"""Size of a file that the main node doesn't take from this node."""


class Request(msgspec.Struct, array_like=True):
    """What a node asks for.

    what: "size", of the file at a path, as far as the main node has it; "append", content from a place in it on;
    "tell", the node's last word; "hear", the main node's.
    """

    what: Literal["size", "append", "tell", "hear"]
    path: str = ""
    begin: int = 0
    content: bytes = b""


class Answer(msgspec.Struct, array_like=True):
    """The answer.

    error: why nothing was done; "" where it was. size: of the file, in bytes. digest: of its end, see :func:`digest`.
    time: by the main node's clock, in Unix seconds. content: the main node's last word; "" before the first.
    """

    error: str = ""
    size: int = 0
    digest: bytes = b""
    time: float = 0.0
    content: bytes = b""


class Broken(Exception):
    """A connection that can't go on: somebody doesn't know the secret, or bytes were changed."""


class Channel:
    """One direction of a connection: numbers and signs frames, or checks them."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def seal(self, content: bytes) -> bytes:
        """The next frame."""
        head = struct.pack(">I", len(content))
        return head + content + self._sign(head, content)

    def open(self, buffer: bytearray) -> bytes | None:
        """Take the next frame's content from the beginning of what has come; None where more must come first.

        Raises:
            Broken: it isn't the next frame of the other side.
        """
        if len(buffer) < 4:
            return None
        (size,) = struct.unpack_from(">I", buffer)
        if size > MOST_FRAME:
            raise Broken(f"a frame of {size:,} bytes")
        end = 4 + size + MAC
        if len(buffer) < end:
            return None
        content = bytes(buffer[4 : 4 + size])
        if not hmac.compare_digest(self._sign(bytes(buffer[:4]), content), bytes(buffer[4 + size : end])):
            raise Broken("a frame that was changed on its way")
        del buffer[:end]
        return content

    def _sign(self, head: bytes, content: bytes) -> bytes:
        sign = hmac.new(self._key, struct.pack(">Q", self._count) + head, hashlib.sha256)
        sign.update(content)
        self._count += 1
        return sign.digest()


class Handshake:
    """The proofs of one connection.

    Args:
        launch: its name. drawn, answered: the numbers that the node and the main node have drawn.
    """

    def __init__(self, secret: str, launch: str, drawn: bytes, answered: bytes) -> None:
        self._secret = secret.encode()
        self._seen = b"\0".join((launch.encode(), drawn.hex().encode(), answered.hex().encode()))

    def main_proof(self) -> bytes:
        """That the main node knows the secret."""
        return self._derive(b"main")

    def node_proof(self, node: int) -> bytes:
        """That a node does."""
        return self._derive(b"node %d" % node)

    def channels(self) -> tuple[Channel, Channel]:
        """Of what nodes say, and of what the main node says."""
        return Channel(self._derive(b"requests")), Channel(self._derive(b"answers"))

    def _derive(self, purpose: bytes) -> bytes:
        return hmac.new(self._secret, purpose + b"\0" + self._seen, hashlib.sha256).digest()


def same(one: bytes, other: bytes) -> bool:
    """Whether two proofs are the same, compared in constant time."""
    return hmac.compare_digest(one, other)


def digest(end: bytes) -> bytes:
    """Of a file's last :data:`DIGEST_BYTES`: whether two files that are equally long are likely the same."""
    return hashlib.sha256(end).digest()
