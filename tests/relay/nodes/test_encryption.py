"""What nodes send each other over the network is read by nobody else, and nobody stands between them unseen."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import readable, wait_for
from tests.relay.nodes.test_link import Served, carry, connected
from tests.relay.nodes.test_nodes import LAUNCH, Node, main_node, run_of, streams
from trackers.errors import Refused, Unavailable
from trackers.journal.messages import MessageReader, Messages
from trackers.ranks import launch, meeting
from trackers.ranks.meeting import Meeting
from trackers.relay.nodes import encryption, fetcher, frames, landing, link
from trackers.relay.nodes.link import NetworkTransport

VALUE = 8.123456789012345
WORDS = (str(VALUE), "loss", "rank-2", "trackers nodes", "hear")
"""What a node sends, among it a value, in as many letters."""


def ordered(tmp_path: Path, **options: str) -> Node:
    """The main node, whose helper was ordered to listen with these options."""
    node = main_node(tmp_path, ["json"], {"TRACKER_NODES": "network"})
    meeting.listen(node.folder, {"TRACKER_NODES_ADDRESS": "127.0.0.1", **options}, True)
    return node


@pytest.fixture
def main(tmp_path: Path) -> Node:
    """The main node, with the run: ranks 0 and 1."""
    return ordered(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Node:
    """Another node: ranks 2 and 3."""
    return Node(tmp_path / "b", 1)


Pass = Callable[[socket.socket, socket.socket], None]


class Between:
    """Somebody between a node and the main node, on the network. passes: what he does with a connection."""

    def __init__(self, port: int, passes: Pass) -> None:
        self._port, self._passes = port, passes
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                node, _ = self._listening.accept()
                ignored = contextlib.suppress(OSError, encryption.NotTls, encryption.Closed)
                with ignored, node, socket.create_connection(("127.0.0.1", self._port)) as main_node:
                    self._passes(node, main_node)

    def __enter__(self) -> Between:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def pass_on(one: socket.socket, other: socket.socket, seen: bytearray) -> None:
    """Pass on what comes from either side, and note it, until one closes."""
    while True:
        ready = [each for each in (one, other) if isinstance(each, ssl.SSLSocket) and each.pending()]
        for source in ready or readable([one, other], 20.0):
            came = source.recv(65536)
            seen += came
            if not came:
                return
            (other if source is one else one).sendall(came)


def made(tmp_path: Path) -> Path:
    """A certificate of somebody else, with its key."""
    path = tmp_path / "own.pem"
    path.write_bytes(encryption._make())
    return path


@pytest.mark.parametrize("tls", [True, False], ids=["require", "off"])
def test_nobody_on_the_network_reads_what_is_sent(tmp_path: Path, other: Node, tls: bool) -> None:
    """Neither values nor names, in either direction; unencrypted they are there to read. The secret never is."""
    main, seen = ordered(tmp_path, TRACKER_NODES_TLS="require" if tls else "off"), bytearray()
    for step in range(20):
        other.log(2, step, VALUE)
    with Served(main) as served, Between(served.meeting.port, lambda a, b: pass_on(a, b, seen)) as between:
        place = Meeting(["127.0.0.1"], between.port, served.meeting.secret, served.meeting.certificate)
        meeting.write(other.folder, place)
        carrying = carry(other, tls=tls)
        served.fetcher.poll()
        assert carrying.send(), carrying.problem
        assert carrying.is_known
        assert streams(main.folder / launch.OTHERS) == streams(other.folder)
        carrying._transport.close()  # type: ignore[attr-defined]
    assert served.meeting.secret.encode() not in seen
    assert len(seen) > 2000
    assert [word for word in WORDS if word.encode() in seen] == ([] if tls else list(WORDS))
    assert bool(served.meeting.certificate) is tls


@pytest.mark.parametrize(
    ("pinned", "why"),
    [
        (True, "its certificate isn't this job's"),
        (False, "it doesn't know this job's secret, or somebody stands between"),
    ],
    ids=["fingerprint from torch's store", "secret alone"],
)
def test_who_stands_between_is_refused(tmp_path: Path, main: Node, other: Node, pinned: bool, why: str) -> None:
    """With a certificate of his own he gets no proof, no value, and nothing to the main node; one line says so."""
    seen, context = bytearray(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made(tmp_path))

    def stand(node: socket.socket, main_node: socket.socket) -> None:
        onwards, _ = encryption.connect(main_node)
        with context.wrap_socket(node, server_side=True) as own, onwards:
            pass_on(own, onwards, seen)

    other.log(2, 0, VALUE)
    with Served(main) as served, Between(served.meeting.port, stand) as between:
        certificate = served.meeting.certificate if pinned else ""
        meeting.write(other.folder, Meeting(["127.0.0.1"], between.port, served.meeting.secret, certificate))
        carrying = carry(other)
        assert not carrying.send()
        assert carrying.problem == (
            f"the main node at 127.0.0.1:{between.port} is another job's, or somebody else's: {why}"
        )
        assert list(served.landing.objects(".ranks")) == []
        assert streams(main.folder / launch.OTHERS) == {}
    assert str(VALUE).encode() not in seen
    assert len(seen) <= frames.HELLO + frames.NONCE + frames.MAC  # and not the node's proof


def test_proof_of_another_certificate_is_worth_nothing(
    main: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the main node's to a node, nor, where that doesn't care, a node's to the main node."""
    here, connect, same = threading.get_ident(), encryption.connect, frames.same
    with Served(main) as served:
        one = connected(main, served.meeting.secret, served.meeting.port)
        monkeypatch.setattr(encryption, "connect", lambda connection: (connect(connection)[0], "f" * 64))
        with pytest.raises(Refused, match="it doesn't know this job's secret, or somebody stands between"):
            one.send_news(b"{}")
        one._connect_at = 0.0
        monkeypatch.setattr(frames, "same", lambda *proofs: threading.get_ident() == here or same(*proofs))
        with pytest.raises(Unavailable):
            one.send_news(b"{}")
        assert list(served.landing.objects(".ranks")) == []


def test_fingerprint_that_is_not_the_jobs_is_refused(main: Node, other: Node) -> None:
    """Though the secret is right; the right one is taken."""
    with Served(main) as served:
        found = served.meeting
        for certificate, well in (("0" * 64, False), (found.certificate, True)):
            meeting.write(other.folder, Meeting(found.addresses, found.port, found.secret, certificate))
            one = NetworkTransport(other.folder, 1)
            if well:
                one.send_news(b"{}")
                continue
            with pytest.raises(Refused, match="is another job's, or somebody else's: its certificate isn't this job's"):
                one.send_news(b"{}")


def test_both_sides_must_want_the_same(
    tmp_path: Path, main: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither falls back to sending unencrypted; both say which option differs, the main node where none comes."""
    with Served(main, other) as served:
        with pytest.raises(Refused, match="it encrypts, and this node doesn't: every rank needs the same"):
            NetworkTransport(other.folder, 1, tls=False).send_news(b"{}")
        connected(main, served.meeting.secret, served.meeting.port)
        with pytest.raises(Unavailable, match="can't be reached, or fails"):
            NetworkTransport(main.root / f"stranger-1/.ranks/{LAUNCH}", 1, tls=False).send_news(b"{}")
        wait_for(lambda: served.landing.stranger)
        monkeypatch.setattr(served.fetcher, "_began", time.monotonic() - 1000.0)
        served.fetcher.poll()
        (text,) = main.said
        assert "; somebody at 127.0.0.1 doesn't encrypt: every rank needs the same TRACKER_NODES_TLS; " in text
    plain = ordered(tmp_path / "plain", TRACKER_NODES_TLS="off")
    with Served(plain) as served:
        with pytest.raises((Unavailable, Refused), match="every rank needs the same TRACKER_NODES_TLS"):
            connected(plain, served.meeting.secret, served.meeting.port).send_news(b"{}")
        assert list(served.landing.objects(".ranks")) == []


def test_server_that_speaks_no_tls_is_named(main: Node, other: Node) -> None:
    """One line, with what it may be; the socket is closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            taken, _ = server.accept()
            with taken:
                taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
                taken.settimeout(20.0)
                with contextlib.suppress(OSError):
                    while taken.recv(1000):
                        pass

        thread = threading.Thread(target=answer)
        thread.start()
        one = connected(main, "a secret, long enough", server.getsockname()[1])
        with pytest.raises(Refused, match=r"it doesn't encrypt \(\S.*\): every rank needs the same TRACKER_NODES_TLS"):
            one.send_news(b"{}")
        thread.join(20.0)
        assert one._socket is None


def test_older_tls_is_not_spoken(main: Node) -> None:
    """Whose keys the certificate's would give away."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with Served(main) as served:
        connection = socket.create_connection(("127.0.0.1", served.meeting.port), 20.0)
        with connection, pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(connection)


def test_helper_that_begins_again_has_the_same_certificate(main: Node, other: Node) -> None:
    """Nodes that know it connect again; its key is its owner's to read, and goes with the launch's folder."""
    path = main.folder / launch.CERTIFICATE
    with Served(main, other) as served:
        one = NetworkTransport(other.folder, 1)
        one.send_news(b"{}")
        before = served.meeting
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        served.stop()
        served.start()
        assert served.meeting == before
        with pytest.raises(Unavailable):
            one.send_news(b"{}")
        one.send_news(b"{}")
    for rank in launch.rank_streams(main.folder).values():
        rank.unlink()
    launch.remove_if_empty(main.folder)
    assert not main.folder.exists()


@pytest.mark.parametrize("what", ["damaged", "cut", "pipe", "link", "password"])
def test_certificate_that_cannot_be_used_is_made_anew(
    what: str, main: Node, other: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies in its place: nothing waits, is asked for or is followed."""
    path, victim = main.folder / launch.CERTIFICATE, tmp_path / "victim"
    victim.write_bytes(encryption._make())
    if what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(victim)
    elif what == "password":
        from cryptography.hazmat.primitives import serialization

        pem = encryption._make()
        key = serialization.load_pem_private_key(pem, None)
        locked = serialization.BestAvailableEncryption(b"secret")
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
            + pem[pem.index(b"-----BEGIN CERT") :]
        )
    else:
        path.write_bytes(b"\x80damaged" if what == "damaged" else victim.read_bytes()[:300])
    kept = victim.read_bytes()
    with Served(main, other):
        NetworkTransport(other.folder, 1).send_news(b"{}")
    assert victim.read_bytes() == kept
    assert path.is_file()
    assert not path.is_symlink()
    assert path.read_bytes() != kept


@pytest.mark.processes
def test_openssl_makes_it_where_the_package_is_missing(
    main: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, whatever its configuration says."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setenv("OPENSSL_CONF", "/nowhere")
    with Served(main, other) as served:
        NetworkTransport(other.folder, 1).send_news(b"{}")
        assert len(served.meeting.certificate) == 64


@pytest.mark.processes
def test_channel_that_cannot_be_encrypted_is_said_and_not_opened(
    main: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, with both ways out; neither address nor certificate is written."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    messages, reader = Messages(run_of(main).messages), MessageReader(run_of(main).messages)
    assert not fetcher._try_open(landing.Landing(main.folder, 0, 2, lambda node, path: None), messages)
    (program := tmp_path / "openssl").write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    program.chmod(0o755)
    assert not fetcher._try_open(landing.Landing(main.folder, 0, 2, lambda node, path: None), messages)
    ways = "pip install 'trackers-relay[nodes]'; or TRACKER_NODES_TLS=off on every rank lets nodes send unencrypted"
    begin = "what other nodes log can't come: the connection can't be encrypted"
    assert [message.text for message in reader.read()] == [
        f"{begin}, since neither the package cryptography nor the program openssl is here: {ways}",
        f"{begin}: {program} ecparam failed (no entropy): {ways}",
    ]
    assert meeting.read(main.folder) is None
    assert not (main.folder / launch.CERTIFICATE).exists()


@pytest.mark.parametrize("place", ["NamedTemporaryFile", "TemporaryDirectory", "write_whole"])
def test_certificate_that_finds_no_room_is_said(place: str, main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, and tried again: the helper goes on once there is room."""

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    messages, reader = Messages(run_of(main).messages), MessageReader(run_of(main).messages)
    one = landing.Landing(main.folder, 0, 2, lambda node, path: None)
    with monkeypatch.context() as patched:
        patched.setattr(encryption.confined if place == "write_whole" else encryption.tempfile, place, full)
        if place == "TemporaryDirectory":
            patched.setitem(sys.modules, "cryptography", None)
        assert not fetcher._try_open(one, messages)
    (message,) = reader.read()
    assert message.text.startswith(
        f"what other nodes log can't come: the certificate can't be written to {main.folder}"
    )
    assert message.text.endswith("No space left on device")
    assert fetcher._try_open(one, messages)
    one.close()


def test_channel_of_a_python_without_tls(
    tmp_path: Path, main: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node says so in one line, and closes its connection; unencrypted it works, as it does without any library."""
    real, here = builtins.__import__, threading.get_ident()

    def missing(name: str, *rest: Any, **named: Any) -> Any:
        if name == "ssl" and threading.get_ident() == here:
            raise ImportError(name)
        return real(name, *rest, **named)

    with Served(main, other):
        monkeypatch.setattr(builtins, "__import__", missing)
        one = NetworkTransport(other.folder, 1)
        for _ in range(2):
            with pytest.raises(Refused, match="this Python has no module ssl; TRACKER_NODES_TLS=off on every rank"):
                one.send_news(b"{}")
            one._connect_at = 0.0
            assert one._socket is None
    plain = ordered(tmp_path / "plain", TRACKER_NODES_TLS="off")
    with Served(plain, other):
        NetworkTransport(other.folder, 1, tls=False).send_news(b"{}")


def test_main_node_that_is_silent_holds_no_carrier(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes a connection and never begins TLS: an answer's time is all it gets."""
    monkeypatch.setattr(link, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = connected(main, "a secret, long enough", silent.getsockname()[1])
        with pytest.raises(Unavailable, match="timed out"):
            one.send_news(b"{}")
        assert one._socket is None


@pytest.mark.parametrize("begins", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "a byte", "a head"])
def test_tls_that_is_not_finished_ends(begins: bytes, main: Node, other: Node) -> None:
    """A stranger has ten seconds for it, as for his proof."""
    with Served(main, other) as served, socket.create_connection(("127.0.0.1", served.meeting.port), 20.0) as stranger:
        one = NetworkTransport(other.folder, 1)
        one.send_news(b"{}")
        stranger.sendall(begins)
        wait_for(lambda: len(served.landing._connections) == 2)
        served.landing.stranger_s = 0.0
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
        one.send_news(b"{}")


def test_record_that_is_not_finished_ends(main: Node, other: Node) -> None:
    """A node that stops amid one is let go, as amid a frame; one that is quiet between frames stays."""
    with Served(main, other) as served:
        one = NetworkTransport(other.folder, 1)
        one.send_news(b"{}")
        assert one._socket is not None
        (connection,) = served.landing._connections.values()
        raw = socket.socket(fileno=os.dup(one._socket.fileno()))
        raw.settimeout(20.0)
        with raw:
            served.landing.stuck_s = -1.0
            one.send_news(b"{}")
            raw.sendall(b"\x17\x03\x03\x10\x00begun")
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(1) == b""
        assert connection.amid
        with pytest.raises(Unavailable):
            one.send_news(b"{}")


@pytest.mark.parametrize("certificate", ["0", "G" * 64, "é" * 64, "0" * 65])
def test_fingerprint_from_elsewhere_is_one(certificate: str, tmp_path: Path) -> None:
    """What torch's store holds is data."""
    assert not Meeting(["127.0.0.1"], 1, "0123456789abcdef", certificate).valid
    assert Meeting(["127.0.0.1"], 1, "0123456789abcdef", "0f" * 32).valid
