"""What encryption between nodes costs: a node's file to the main node over TCP, with TLS and without, in turns."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, cores, main
from trackers.ranks import launch, meeting
from trackers.relay.nodes import encryption
from trackers.relay.nodes.landing import Landing
from trackers.relay.nodes.link import NetworkTransport

LINE = b'{"kind":"row","step":1,"values":[0.123456789,1.5,2.25,3.125,0.0078125,12345.678]}\n'
SENT_BYTES = 64 << 20
CONNECTIONS = 100
MOST = 3.0
"""Bound of what an encrypted byte costs both nodes beside an unencrypted one."""


class Ways:
    """One main node and one other node, connected with TLS or without."""

    def __init__(self, tls: bool) -> None:
        root = Path.cwd() / ("tls" if tls else "plain")
        self.folder, self.other = root / "a/.ranks/launch", root / "b/.ranks/launch"
        self.folder.mkdir(parents=True)
        self.other.mkdir(parents=True)
        options = {"TRACKER_NODES_ADDRESS": "127.0.0.1", "TRACKER_NODES_TLS": "require" if tls else "off"}
        meeting.listen(self.folder, options, True)
        self.tls = tls
        self._landing = Landing(self.folder, 0, 2, lambda node, path: (self.folder / launch.OTHERS, path))
        self._landing.open()
        found = meeting.read(self.folder)
        assert found is not None
        meeting.write(self.other, found)
        self._over, self.main_cpu_s = threading.Event(), 0.0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            self._landing.serve(0.01)
            self.main_cpu_s = time.thread_time()

    def send(self, number: int, size: int) -> float:
        """Send a file of so many bytes. Returns processor seconds of both nodes together."""
        file = self.other / f"rank-{number}.1.jsonl"
        file.write_bytes(LINE * (size // len(LINE)))
        transport = NetworkTransport(self.other, 1, tls=self.tls)
        transport.connect()
        self._settle()
        before = time.thread_time() + self.main_cpu_s
        transport.send_file(file.name, file, self.other)
        after = time.thread_time()
        self._settle()
        used = after + self.main_cpu_s - before
        transport.close()
        arrived = self.folder / launch.OTHERS / file.name
        assert arrived.read_bytes() == file.read_bytes(), "what arrived isn't what was sent"
        for path in (file, arrived):
            path.unlink()
        return used

    def connect(self) -> float:
        """Seconds of a new connection, until the first answer."""
        began = time.perf_counter()
        transport = NetworkTransport(self.other, 1, tls=self.tls)
        transport.send_news(b"{}")
        used = time.perf_counter() - began
        transport.close()
        return used

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._landing.close()

    def _settle(self) -> None:
        """Wait until the main node's time includes all that it did."""
        for _ in range(2):
            seen = self.main_cpu_s
            while self.main_cpu_s == seen:
                time.sleep(0.001)


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    began = time.perf_counter()
    encryption._make()
    first_s = time.perf_counter() - began
    ways = Ways(True), Ways(False)
    size, turns = (4 << 20, 3) if quick else (SENT_BYTES, 7)
    sent: dict[bool, list[float]] = {True: [], False: []}
    connected: dict[bool, list[float]] = {True: [], False: []}
    try:
        for turn in range(turns):
            for way in ways if turn % 2 else ways[::-1]:
                sent[way.tls].append(1e3 * way.send(turn, size) / (size / 1e6))
        for _ in range(10 if quick else CONNECTIONS):
            for way in ways:
                connected[way.tls].append(1e3 * way.connect())
    finally:
        for way in ways:
            way.close()
    figures = []
    for name, found, unit, bound in (
        ("processor time of both nodes", sent, "ms/MB", MOST),
        ("a new connection", connected, "ms", None),
    ):
        encrypted, plain = (statistics.median(found[tls]) for tls in (True, False))
        figures += [Figure(f"{name}: unencrypted", plain, unit), Figure(f"{name}: TLS", encrypted, unit)]
        figures.append(Figure("  TLS / unencrypted", encrypted / plain, "x", at_most=bound))
    return [
        *figures,
        Figure("a job's certificate, once, imports included", 1e3 * first_s, "ms"),
        Figure("cores", cores()),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
