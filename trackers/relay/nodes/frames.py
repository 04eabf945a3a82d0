"""Protocol of a connection between two nodes: proofs of the launch's secret, then requests and answers.

Both sides prove that they know the secret, by HMAC-SHA256 over random numbers that each draws for this connection. Two
keys are derived from them, one for each direction. Every frame is its length (4 bytes), MessagePack, and the HMAC of
both and of the frame's number in its direction: a changed, repeated, missing or inserted frame ends the connection.
Unless ``TRACKER_NODES_TLS=off``, all of it is sent within TLS, and the proofs are about the fingerprint of the main
node's certificate, too (:mod:`trackers.relay.nodes.encryption`).

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

from trackers.ranks.nodes import Seconds

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
"""Size that the main node answers for a file that it doesn't accept from this node."""


class NodeRequest(msgspec.Struct, array_like=True):
    """Request of a node.

    what: "size", of the main node's copy of the file at a path; "append", content from offset ``begin`` on; "tell", the
    node's news; "hear", the main node's.
    """

    what: Literal["size", "append", "tell", "hear"]
    path: str = ""
    begin: int = 0
    content: bytes = b""


class NodeAnswer(msgspec.Struct, array_like=True):
    """The main node's answer.

    error: why the request failed; "" if it didn't. size: of the file, in bytes. digest: of its end, see :func:`digest`.
    time: by the main node's clock, in Unix seconds. content: the main node's news; "" before the first.
    """

    error: str = ""
    size: int = 0
    digest: bytes = b""
    time: Seconds = 0.0
    content: bytes = b""


class Broken(Exception):
    """The connection can't continue: the peer doesn't know the secret, or bytes were changed."""


class Channel:
    """One direction of a connection: numbers and signs frames, or checks them."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def seal(self, content: bytes) -> bytes:
        """The next frame."""
        head = struct.pack(">I", len(content))
        return head + content + self._sign(head, content)

    def open(self, buffer: bytearray) -> bytes | None:
        """Remove the next frame from the beginning of the buffer, and return its content; None if it isn't complete.

        Raises:
            Broken: it isn't the other side's next frame.
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
        launch: its name. node_nonce, main_nonce: the random numbers of the node and of the main node. certificate: the
            fingerprint of the main node's; "" without TLS.
    """

    def __init__(self, secret: str, launch: str, node_nonce: bytes, main_nonce: bytes, certificate: str) -> None:
        self._secret = secret.encode()
        parts = launch, node_nonce.hex(), main_nonce.hex(), certificate
        self._transcript = b"\0".join(part.encode() for part in parts)

    def main_proof(self) -> bytes:
        """Proof that the main node knows the secret."""
        return self._derive(b"main")

    def node_proof(self, node: int) -> bytes:
        """Proof that a node knows the secret."""
        return self._derive(b"node %d" % node)

    def channels(self) -> tuple[Channel, Channel]:
        """Channels for the node's requests and for the main node's answers."""
        return Channel(self._derive(b"requests")), Channel(self._derive(b"answers"))

    def _derive(self, purpose: bytes) -> bytes:
        return hmac.new(self._secret, purpose + b"\0" + self._transcript, hashlib.sha256).digest()


def same(proof: bytes, expected: bytes) -> bool:
    """Whether two proofs are equal, compared in constant time."""
    return hmac.compare_digest(proof, expected)


def digest(end: bytes) -> bytes:
    """Digest of a file's last :data:`DIGEST_BYTES`: two files of equal length and digest are likely the same."""
    return hashlib.sha256(end).digest()
