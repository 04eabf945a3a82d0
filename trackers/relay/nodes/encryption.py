"""TLS of the connections between nodes: a certificate made for one launch, which no authority has signed.

The main node makes it when it listens, by the package cryptography, else the program openssl, and keeps it with its key
in the launch's folder: a helper that is started again has the same one. Nodes know it by its fingerprint:

- both proofs of the launch's secret are about it (:class:`trackers.relay.nodes.frames.Handshake`): who stands between
  two nodes with another certificate can pass on neither;
- where the store of ``torch.distributed`` tells nodes the address, it tells them the fingerprint, too: who can only
  read that store, and so knows the secret, can't stand between them either.

TLS 1.3 alone is spoken, with new keys for each connection: the certificate's key, if it becomes known, doesn't decrypt
what was recorded before.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trackers.errors import Refused
from trackers.ranks.launch import CERTIFICATE
from trackers.support import confined

if TYPE_CHECKING:
    import ssl

MOST_BYTES = 16 * 1024
"""Maximum size of the file with key and certificate."""
MOST_RECORD = 16 * 1024
"""Maximum content of a TLS record."""
VALID_DAYS = 3650
"""Nobody asks until when the certificate is valid: nodes' clocks differ, and the launch ends before."""
OPENSSL_S = 30.0
"""Maximum time of each call of openssl, in seconds."""
PLAIN = "TRACKER_NODES_TLS=off on every rank lets nodes send unencrypted"
SAME = "every rank needs the same TRACKER_NODES_TLS"
OPENSSL_CONFIG = "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = trackers\n"


class NotTls(Exception):
    """The other end doesn't speak TLS 1.3."""


class Closed(Exception):
    """The other end closed the connection before TLS began."""


class Identity:
    """The main node's key and certificate. fingerprint: SHA-256 of the certificate, in hexadecimal digits."""

    def __init__(self, pem: bytes) -> None:
        ssl = _ssl()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.num_tickets = 0  # each connection proves itself anew
        with tempfile.NamedTemporaryFile() as file:  # 0600; the original may be a link by now
            file.write(pem)
            file.flush()
            self._context.load_cert_chain(file.name, password=lambda: "")  # never asks at the terminal
        begin = pem.index(b"-----BEGIN CERTIFICATE-----")
        self.fingerprint = fingerprint(ssl.PEM_cert_to_DER_cert(pem[begin:].decode("ascii")))

    def accept(self) -> Encryption:
        """The main node's end of a new connection."""
        return Encryption(self._context)


class Encryption:
    """The main node's end of one connection, without its socket: takes and gives bytes as they are on the wire."""

    def __init__(self, context: ssl.SSLContext) -> None:
        ssl = _ssl()
        self._wants = ssl.SSLWantReadError
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False

    def decrypt(self, received: bytes) -> bytes:
        """Content of what was received; what must be sent for TLS itself is in :meth:`encrypt`'s next result.

        Raises:
            OSError: it isn't TLS, or was changed; or the other end has closed.
        """
        self._incoming.write(received)
        content = bytearray()
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while some := self._tls.read(MOST_RECORD):
                content += some
        except self._wants:
            return bytes(content)
        raise ConnectionResetError("the connection was closed")

    def encrypt(self, content: bytes = b"") -> bytes:
        """What is to be sent for the content."""
        if content:
            self._tls.write(content)
        return bytes(self._outgoing.read())


def connect(connection: socket.socket) -> tuple[ssl.SSLSocket, str]:
    """A node's end of a new connection, within the socket's time limit, and the fingerprint at the other end.

    Raises:
        NotTls, Closed: the other end doesn't speak TLS 1.3; it has closed the connection. OSError: no answer in time.
        Refused: this Python has no TLS.
    """
    ssl = _ssl()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the fingerprint is compared instead
    try:
        encrypted = context.wrap_socket(connection)
    except (ConnectionError, ssl.SSLEOFError) as error:
        raise Closed(str(error)) from None
    except ssl.SSLError as error:
        raise NotTls(error.reason or str(error)) from None
    return encrypted, fingerprint(encrypted.getpeercert(binary_form=True) or b"")


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of an encoded certificate, in hexadecimal digits."""
    return hashlib.sha256(certificate).hexdigest()


def identity(folder: Path) -> Identity:
    """Key and certificate of a launch: those of its folder, else new ones.

    Raises:
        Refused: there are none, and none can be made here.
    """
    path = folder / CERTIFICATE
    try:
        return Identity(confined.read(path, most=MOST_BYTES, own=True))
    except (OSError, ValueError):  # none yet, or damaged: nodes look a new one up
        pass
    try:
        made = Identity(pem := _make())
        confined.write_whole(path, pem, mode=0o600)
    except OSError as error:
        raise Refused(f"the certificate can't be written to {path} or {tempfile.gettempdir()}: {error}") from None
    return made


def _make() -> bytes:
    """A new key and its certificate, as PEM."""
    try:
        return _made_by_cryptography()
    except Exception:  # it isn't installed, or its binary doesn't fit this machine
        return _made_by_openssl()


def _made_by_cryptography() -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "trackers")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + certificate.public_bytes(pem)


def _made_by_openssl() -> bytes:
    program = shutil.which("openssl")
    if program is None:
        raise Refused(
            "the connection can't be encrypted, since neither the package cryptography nor the program openssl is "
            f"here: pip install 'trackers-relay[nodes]'; or {PLAIN}"
        )
    with tempfile.TemporaryDirectory() as place:  # 0700
        key, certificate, config = (Path(place, name) for name in ("key", "certificate", "config"))
        config.write_text(OPENSSL_CONFIG)
        _run(program, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
        _run(
            program, "req", "-x509", "-new", "-sha256", "-config", str(config), "-key", str(key),
            "-days", str(VALID_DAYS), "-out", str(certificate),
        )  # fmt: skip
        return key.read_bytes() + certificate.read_bytes()


def _run(*command: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENSSL_")}
    try:
        subprocess.run(
            command, env=environ, check=True, timeout=OPENSSL_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip() or str(error)
        raise Refused(
            f"the connection can't be encrypted: {command[0]} {command[1]} failed ({' '.join(said.split())[:200]}): "
            f"pip install 'trackers-relay[nodes]'; or {PLAIN}"
        ) from None


def _ssl() -> ModuleType:
    try:
        import ssl
    except ImportError:
        raise Refused(f"the connection can't be encrypted, since this Python has no module ssl; {PLAIN}") from None
    return ssl
