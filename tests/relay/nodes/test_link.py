"""What nodes send over the network reaches the main node: whole, once, from those who belong to the job alone."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from tests.helpers import readable, run_info, wait_for
from tests.relay.nodes.test_nodes import LAUNCH, Node, Quiet, main_node, reduce, run_of, streams
from trackers.errors import Fatal, NotFound, Refused, Unavailable
from trackers.hardware.plan import SamplingPlan
from trackers.ranks import launch, meeting
from trackers.relay.nodes import frames, landing, link
from trackers.relay.nodes.carrier import Carrier, CarryTask
from trackers.relay.nodes.child import Fetching
from trackers.relay.nodes.fetcher import Fetcher, FetchTask
from trackers.relay.nodes.frames import NodeRequest
from trackers.relay.nodes.link import NetworkTransport
from trackers.relay.parts.part import Beside
from trackers.support import machines, processes


@pytest.fixture
def main(tmp_path: Path) -> Node:
    """The main node, with the run: ranks 0 and 1."""
    node = main_node(tmp_path, ["json"], {"TRACKER_NODES": "network"})
    meeting.listen(node.folder, {"TRACKER_NODES_ADDRESS": "127.0.0.1"}, True)
    return node


@pytest.fixture
def other(tmp_path: Path) -> Node:
    """Another node: ranks 2 and 3."""
    return Node(tmp_path / "b", 1)


def carry(node: Node, *, tls: bool = True) -> Carrier:
    """Its carrier."""
    plan = SamplingPlan(node=node.number, nodes=2, pid=os.getpid(), pid_start=processes.process_start(os.getpid()))
    task = CarryTask(store="", every_s=0.0, main=0, ranks=4, plan=plan, sample=False, tls=tls)
    return Carrier(node.folder, task, lambda run, attempt: Quiet())


class Served:
    """The main node's fetcher, which listens; it may be ended and started again."""

    def __init__(self, main: Node, *others: Node) -> None:
        self.main, self.others = main, others
        self._over, self._stack = threading.Event(), contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        task = FetchTask(store="", every_s=0.0, attempt=1, parent=os.getppid())
        self.fetcher = Fetcher(run_of(self.main), task, self.main.said.append)
        assert self.fetcher.landing is not None
        self.landing = self.fetcher.landing
        self.landing.open()
        found = meeting.read(self.main.folder)
        assert found is not None
        self.meeting = found
        for node in self.others:
            meeting.write(node.folder, found)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(self._over,))
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self.landing.close()

    def _serve(self, over: threading.Event) -> None:
        while not over.is_set():
            self.landing.serve(0.01)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Proxy:
    """Between a node and the main node: cuts connections, and changes bytes, as chance has it."""

    def __init__(self, port: int, seed: int) -> None:
        self._chance, self._port = random.Random(seed), port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                left = self._chance.choice([100, 1000, 5000, 50_000])
                changes = self._chance.random() < 0.3
                threading.Thread(target=self._pass, args=(one, left, changes), daemon=True).start()

    def _pass(self, one: socket.socket, left: int, changes: bool) -> None:
        with contextlib.suppress(OSError), one, socket.create_connection(("127.0.0.1", self._port)) as other:
            while True:
                for source in readable([one, other], 20.0):
                    came = source.recv(min(left, 700))
                    left -= len(came)
                    if left <= 0 and changes and came:
                        came = came[:-1] + bytes([came[-1] ^ 1])
                    (other if source is one else one).sendall(came)
                    if left <= 0 or not came:
                        return

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed connection is tried again at once."""
    for name in ("FIRST_WAIT_S", "BEGIN_WAIT_S", "MOST_WAIT_S"):
        monkeypatch.setattr(link, name, 0.0)


def connected(
    main: Node, secret: str, port: int, node: int = 1, folder: Path | None = None, address: str = "127.0.0.1"
) -> NetworkTransport:
    """A connection of somebody who may not belong here."""
    folder = folder or main.root / f"stranger-{node}" / ".ranks" / LAUNCH
    folder.mkdir(parents=True, exist_ok=True)
    meeting.write(folder, meeting.Meeting([address], port, secret))
    return NetworkTransport(folder, node)


def test_rows_of_another_node_are_reduced_with_those_here(main: Node, other: Node) -> None:
    """Each rank's own disk, one connection: the values are those of all ranks, and no rank was missing."""
    for step in range(5):
        for number in (0, 1):
            main.log(number, step, number)
        for number in (2, 3):
            other.log(number, step, number)
    with Served(main, other) as served:
        carrying, fetching = carry(other), served.fetcher
        assert fetching.poll()
        assert carrying.send(), carrying.problem
        assert carrying.is_known
        main.close()
        other.close()
        assert carrying.send(done=True), carrying.problem
        assert fetching.poll()
        assert fetching.is_complete()
        assert fetching.poll(over=True)
        assert streams(main.folder / launch.OTHERS) == streams(other.folder)
    assert reduce(main) == [1.5] * 5
    assert main.said == other.said == []


@pytest.mark.heavy
@pytest.mark.parametrize(("seed", "tls"), [(0, True), (1, True), (2, True), (3, True), (0, False), (1, False)])
def test_cuts_changes_and_deaths_lose_and_double_nothing(
    seed: int, tls: bool, main: Node, other: Node, at_once: None
) -> None:
    """Connections end at any byte, bytes are changed, and both sides die in between: the files are the same."""
    chance = random.Random(seed)
    if not tls:
        meeting.listen(main.folder, {"TRACKER_NODES_ADDRESS": "127.0.0.1", "TRACKER_NODES_TLS": "off"}, True)
    with Served(main) as served:
        proxy = Proxy(served.meeting.port, seed)
        try:
            found = meeting.Meeting(["127.0.0.1"], proxy.port, served.meeting.secret, served.meeting.certificate)
            meeting.write(other.folder, found)
            carrying = carry(other, tls=tls)
            for step in range(40):
                for number in (2, 3):
                    other.log(number, step, number)
                if chance.random() < 0.2:
                    carrying = carry(other, tls=tls)
                if chance.random() < 0.1:
                    served.stop()
                    served.start()
                    assert served.meeting.port == proxy._port
                carrying.send()
                served.fetcher.poll()
                for name, content in streams(main.folder / launch.OTHERS).items():
                    assert (other.folder / name).read_bytes().startswith(content)
            other.close()
            for _ in range(500):
                if carrying.send(done=True):
                    break
            served.fetcher.poll()
            assert served.fetcher.is_complete()
        finally:
            proxy.close()
    assert streams(main.folder / launch.OTHERS) == streams(other.folder)


def test_file_larger_than_a_frame_comes_whole(main: Node, other: Node) -> None:
    """Of lines that are longer than a frame, too."""
    with Served(main, other):
        path = other.folder / "rank-2.7.jsonl"
        path.write_bytes(b"x" * (frames.PART_BYTES * 2 + 5) + b"\n" + b"y" * 100 + b"\n" + b"without an end")
        one = NetworkTransport(other.folder, 1)
        one.send_file(path.name, path, other.folder)
        whole = path.read_bytes().removesuffix(b"without an end")
        assert (main.folder / launch.OTHERS / path.name).read_bytes() == whole
        path.write_bytes(b"x" * len(whole))
        with pytest.raises(Fatal, match="aren't those on the main node"):
            NetworkTransport(other.folder, 1).send_file(path.name, path, other.folder)
        path.write_bytes(b"")
        with pytest.raises(Fatal, match="aren't those on the main node"):
            NetworkTransport(other.folder, 1).send_file(path.name, path, other.folder)


def test_who_does_not_know_the_secret_is_not_heard(main: Node, other: Node) -> None:
    """Nor believed: a node sends nothing to somebody who doesn't know it, either."""
    with Served(main) as served:
        stranger = connected(main, "another secret, long enough", served.meeting.port)
        with pytest.raises(Refused, match="another job's, or somebody else's: it doesn't know this job's secret"):
            stranger.send_news(b"{}")
        assert list(served.landing.objects(".ranks")) == []


def test_node_without_the_proof_is_not_heard(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the main node's word, and can't give its own; or says that it is the main one, or one too many."""
    with Served(main) as served:
        for node in (0, 2, 2**32 - 1):
            with pytest.raises(Unavailable, match="can't be reached, or fails"):
                connected(main, served.meeting.secret, served.meeting.port, node).send_news(b"{}")
        monkeypatch.setattr(frames.Handshake, "node_proof", lambda self, node: os.urandom(frames.MAC))
        with pytest.raises(Unavailable, match="can't be reached, or fails"):
            connected(main, served.meeting.secret, served.meeting.port).send_news(b"{}")
        assert list(served.landing.objects(".ranks")) == []


def test_two_jobs_at_once_do_not_meet(tmp_path: Path, main: Node, other: Node) -> None:
    """A node that is sent to the other job's port leaves nothing there, though both have the same launch's name."""
    second = Node(tmp_path / "c", 0)
    meeting.listen(second.folder, {"TRACKER_NODES_ADDRESS": "127.0.0.1"}, True)
    order = meeting.read_order(second.folder)
    assert order is not None
    place = landing.Landing(second.folder, 0, 2, lambda node, path: (second.folder, path))
    place.open()
    with Served(main, other) as served:
        assert meeting.read(second.folder).port != served.meeting.port  # type: ignore[union-attr]
        with pytest.raises(Refused):
            connected(main, order.secret, served.meeting.port).send_news(b"{}")
    place.close()


@pytest.mark.parametrize(
    "content",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, frames.MAGIC + b"n" * frames.NONCE + b"\xff" * 100, b"\x80\x04pickle" * 9],
    ids=["http", "zeros", "no proof", "pickle"],
)
def test_what_strangers_send_ends_their_connection(content: bytes, main: Node, other: Node) -> None:
    """And nobody else's."""
    with Served(main, other) as served:
        one = NetworkTransport(other.folder, 1)
        one.send_news(b"{}")
        with socket.create_connection(("127.0.0.1", served.meeting.port)) as stranger:
            stranger.sendall(content)
            stranger.settimeout(20.0)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(1000):
                    pass
        one.send_news(b"{}")


def test_strangers_who_wait_are_few_and_go(main: Node, other: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections somebody opens, nodes come through, and those are closed after a while."""
    monkeypatch.setattr(landing, "MOST_STRANGERS", 4)
    with Served(main, other) as served, contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.meeting.port))) for _ in range(20)
        ]
        one = NetworkTransport(other.folder, 1)
        one.send_news(b"{}")
        assert len(served.landing._connections) <= 5
        served.landing.stranger_s = 0.0
        for stranger in strangers:
            stranger.settimeout(20.0)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
        one.send_news(b"{}")


def test_peer_that_sends_byte_by_byte_holds_nobody_up(main: Node, other: Node, tmp_path: Path) -> None:
    """A frame that comes slowly is waited for beside other nodes' frames."""
    third = Node(tmp_path / "c", 2)
    entry = run_of(main).read_info().attempts[0] | {"nodes": 3}
    run_of(main).write_info(run_info(run_of(main).path, attempts=[entry], options={"TRACKER_NODES": "network"}))
    with Served(main, other, third):
        slow, quick = NetworkTransport(other.folder, 1), NetworkTransport(third.folder, 2)
        slow.connect()
        assert slow._channels is not None
        assert slow._socket is not None
        frame = slow._channels[0].seal(landing.msgspec.msgpack.encode(NodeRequest("tell", content=b"{}")))
        for byte in frame[:-1]:
            slow._socket.sendall(bytes([byte]))
            quick.send_news(b"{}")
        slow._socket.sendall(frame[-1:])
        assert slow._receive_frame(slow._channels[1])


def test_node_that_comes_back_has_one_connection(main: Node, other: Node) -> None:
    """The older one is closed: it may be of a carrier that was killed."""
    with Served(main, other) as served:
        old, new = NetworkTransport(other.folder, 1), NetworkTransport(other.folder, 1)
        old.send_news(b"{}")
        new.send_news(b"{}")
        assert len([one for one in served.landing._connections.values() if one.node == 1]) == 1
        assert old._socket is not None
        assert old._socket.recv(1) == b""
        new.send_news(b"{}")


def test_names_that_lead_elsewhere_are_not_taken(main: Node, other: Node) -> None:
    """Streams of the run's own node, of ranks that there aren't, of other attempts, and paths out of the run."""
    with Served(main, other):
        before = sorted(path for path in main.root.rglob("*") if path.is_file())
        one = NetworkTransport(other.folder, 1)
        for path in (
            "streams/sampler-0.1.jsonl", "streams/sampler-1.2.jsonl", "streams/console-0.1.jsonl", "rank-7.1.jsonl",
            "streams/console-9.1.jsonl", "streams/node-1.1.jsonl", "run.json", "../rank-2.1.jsonl", "listen.json",
            "streams/../streams/sampler-1.1.jsonl", "streams/x/sampler-1.1.jsonl", "/etc/passwd", "", ".", "a\0b",
            "x/rank-2.1.jsonl", "rank-2.1.jsonl/", "../others/rank-2.1.jsonl",
            "rank-02.1.jsonl", "rank-2.01.jsonl", "rank-\u0662.1.jsonl", f"rank-2.{'9' * 5000}.jsonl",
        ):  # fmt: skip
            assert one.ask(NodeRequest("size", path)).size == frames.NOT_TAKEN
            assert one.ask(NodeRequest("append", path, 0, b"{}\n")).size == frames.NOT_TAKEN
        assert one.ask(NodeRequest("append", "rank-2.1.jsonl", -5, b"{}\n")).size == 0
        assert one.ask(NodeRequest("append", "rank-2.1.jsonl", 2**60, b"{}\n")).size == 0
        with pytest.raises(Unavailable, match="a node's word is too long"):
            one.send_news(b" " * 100_000)
        after = sorted(path for path in main.root.rglob("*") if path.is_file())
        assert set(after) - set(before) <= {main.folder / launch.ARRIVALS}


def test_planted_link_is_not_followed(main: Node, other: Node, tmp_path: Path) -> None:
    """What lies in a stream's place on the main node leads nowhere else."""
    victim = tmp_path / "precious"
    victim.write_text("precious")
    (main.folder / launch.OTHERS).mkdir()
    (main.folder / launch.OTHERS / "rank-2.1.jsonl").symlink_to(victim)
    with Served(main, other), pytest.raises(Unavailable):
        NetworkTransport(other.folder, 1).ask(NodeRequest("append", "rank-2.1.jsonl", 0, b"{}\n" * 1000))
    assert victim.read_text() == "precious"


def test_full_disk_of_the_main_node_is_named_and_made_up_for(
    main: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows lie on the other node's disk meanwhile."""
    other.log(2, 0, 2)
    with Served(main, other):
        carrying = carry(other)
        with monkeypatch.context() as patched:
            patched.setattr(landing.mirror, "KEPT_FREE", 1 << 60)
            assert not carrying.send()
            assert "No space left on device" in carrying.problem
        assert carrying.send()
        assert streams(main.folder / launch.OTHERS) == streams(other.folder)


def test_main_node_that_is_away_is_named_and_tried_seldom(
    main: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what may be wrong; later tries wait longer, each by chance; its address is looked for anew."""
    carrying = carry(other)
    assert not carrying.send()
    assert carrying.problem == "where the main node listens isn't known yet"
    with Served(main, other) as served:
        port = served.meeting.port
    now, waits = time.monotonic(), []
    monkeypatch.setattr(link.time, "monotonic", lambda: now)
    for _ in range(8):
        assert not carrying.send()
        assert f"127.0.0.1:{port} can't be reached (Connection refused): does a firewall refuse" in carrying.problem
        one = carrying._transport
        assert isinstance(one, NetworkTransport)
        waits.append(one._connect_at - now)
        with pytest.raises(Unavailable):
            one.connect()
        assert one._connect_at - now == waits[-1]  # nothing was tried
        now = one._connect_at + 0.001
    assert waits[0] < 1.0
    assert max(waits) <= 1.5 * link.BEGIN_WAIT_S
    assert len(set(waits)) == len(waits)
    assert (other.folder / launch.LOST_MAIN).exists()


def test_name_that_is_unknown_is_named(main: Node) -> None:
    """With what names the main node, and not with a firewall."""
    one = connected(main, "a secret, long enough", 29777, address="gpu-0.invalid")
    with pytest.raises(
        Unavailable, match=r"gpu-0.invalid:29777 can't be reached .*knows no host of that name.*ADDRESS"
    ):
        one.send_news(b"{}")


def test_port_that_is_taken_is_named(main: Node) -> None:
    """In one line, with the options that choose another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        meeting.listen(main.folder, {"TRACKER_NODES_ADDRESS": "127.0.0.1", "TRACKER_NODES_PORT": port}, True)
        one = landing.Landing(main.folder, 0, 2, lambda node, path: None)
        with pytest.raises(Refused, match=f"port {port} .*in use.*TRACKER_NODES_ADDRESS and TRACKER_NODES_PORT"):
            one.open()
        one.close()
    with pytest.raises(NotFound):
        landing.Landing(main.root, 0, 2, lambda node, path: None)


@pytest.mark.parametrize("address", ["::1", "localhost", ""])
def test_addresses_of_any_kind_are_listened_at(
    address: str, main: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IPv6, a name, and all that the machine has."""
    if address == "::1" and not socket.has_dualstack_ipv6():
        address = "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1" if not address else "10.9.9.9")
    meeting.listen(main.folder, {"TRACKER_NODES_ADDRESS": address}, bool(address))
    with Served(main, other) as served:
        if not address:
            meeting.write(other.folder, meeting.Meeting(["127.0.0.1"], served.meeting.port, served.meeting.secret))
        else:
            assert served.meeting.addresses == [address]
        NetworkTransport(other.folder, 1).send_news(b"{}")


def test_clock_that_is_ahead_is_said_and_put_right(main: Node, other: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main node says when a word came; what the other node's clock is ahead is told once."""
    with Served(main, other) as served:
        carrying, fetching = carry(other), served.fetcher
        other.log(2, 0, 2)
        real = time.time
        shifted = threading.get_ident()
        monkeypatch.setattr(
            time, "time", lambda: real() + (3600.0 if threading.get_ident() == shifted and ahead else 0.0)
        )
        for _ in range(4):
            ahead = True
            carrying.send()
            ahead = False
            fetching.poll()
        (text,) = main.said
        assert f"node 1 ({machines.host()}): its clock is 3600.0 s ahead of the main node's" in text
        (arrival,) = fetching.arrivals.streams.values()
        assert abs(arrival.ahead_s - 3600) < 0.5


def test_disk_that_nodes_share_is_left_as_it_is(main: Node) -> None:
    """Where the directory of runs is on a shared disk after all, nothing is sent."""
    same = Node.__new__(Node)
    same.__dict__.update(main.__dict__, number=1, ranks={})
    for number in (2, 3):
        same.log(number, 0, number)
    with Served(main) as served:
        served.fetcher.poll()
        carrying = carry(same)
        assert carrying.send(), carrying.problem
        assert streams(main.folder / launch.OTHERS) == {}


def test_nodes_that_have_not_found_the_main_node_are_waited_for(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """For some seconds from the fetcher's start: values of the first steps aren't recorded without their ranks."""
    with Served(main) as served:
        fetching = served.fetcher
        fetching.poll()
        assert not fetching.is_complete()
        assert fetching.arrivals.looked == 0.0
        monkeypatch.setattr(fetching, "_began", time.monotonic() - 1000.0)
        fetching.poll()
        assert fetching.is_complete()
        assert fetching.arrivals.looked > 0.0


def test_node_that_never_comes_is_named_with_the_port(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, after a minute."""
    with Served(main) as served:
        served.fetcher.poll()
        assert main.said == []
        monkeypatch.setattr(served.fetcher, "_began", time.monotonic() - 1000.0)
        served.fetcher.poll()
        served.fetcher.poll()
        (text,) = main.said
        assert "nothing has come from node 1 within 60 s: every node needs TRACKER_NODES=network" in text
        assert f"must reach the port that this one listens at ({served.meeting.port}); {main.folder}" in text


def test_node_with_another_secret_is_named_where_none_comes(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its address: the main node's user sees why, too."""
    with Served(main) as served:
        with pytest.raises(Refused):
            connected(main, "another secret, long enough", served.meeting.port).send_news(b"{}")
        wait_for(lambda: served.landing.stranger)
        monkeypatch.setattr(served.fetcher, "_began", time.monotonic() - 1000.0)
        served.fetcher.poll()
        (text,) = main.said
        assert f"({served.meeting.port}); somebody at 127.0.0.1 tried with another secret than this job's; " in text


def test_nothing_listens_for_a_run_that_nobody_ordered_it_for(main: Node) -> None:
    """An order of the main rank must lie there, and the run's options, or the reader's, must want it."""
    run = run_of(main)

    def over(**options: str) -> bool:
        info = run_info(run.path, attempts=run.read_info().attempts, options=options)
        return Fetching(Beside(run, info, 1, lambda text, _: main.said.append(text), ended=True)).over

    assert not over(TRACKER_NODES="network")
    assert over()
    (main.folder / launch.LISTEN).unlink()
    assert over(TRACKER_NODES="network")


def test_any_changed_byte_of_a_frame_is_seen() -> None:
    """As are a frame that comes twice, one that is left out, and one of the other direction."""
    shaking = frames.Handshake("secret", LAUNCH, b"a", b"b", "")
    frame = shaking.channels()[0].seal(b"content")
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 1
        channel = shaking.channels()[0]
        try:
            assert channel.open(changed) is None
            assert place < 4  # a greater length: more is waited for
        except frames.Broken:
            pass
    one, other = shaking.channels()
    twice = bytearray(frame + frame)
    assert one.open(twice) == b"content"
    with pytest.raises(frames.Broken):
        one.open(twice)
    with pytest.raises(frames.Broken):
        other.open(bytearray(frame))
    writing, reading = shaking.channels()[0], shaking.channels()[0]
    writing.seal(b"lost")
    with pytest.raises(frames.Broken):
        reading.open(bytearray(writing.seal(b"second")))
    with pytest.raises(frames.Broken, match="a frame of 4,294,967,295 bytes"):
        reading.open(bytearray(b"\xff" * 4))


def test_secret_is_its_owners_to_read(main: Node, other: Node) -> None:
    """In the order to listen, and where its answer is noted, also where others can read the launch's folder; so is the
    certificate's key."""
    main.folder.chmod(0o755)
    meeting.listen(main.folder, {"TRACKER_NODES_ADDRESS": "127.0.0.1"}, True)
    with Served(main, other):
        kept = (launch.LISTEN, launch.MEETING, launch.CERTIFICATE)
        for path in (*(main.folder / name for name in kept), other.folder / launch.MEETING):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
