"""Requests and bytes a minute that a run's sending to a store takes, where each request takes 50 ms."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main, rows
from trackers.backends.storage import tracker as storage
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.object_storage import layout, mirror
from trackers.object_storage.store import Store
from trackers.records import Finish, Metrics, Start, encode
from trackers.relay.delivery.delivery import Delivery
from trackers.tracker import RunInfo

RATES = (1, 25, 100)
"""Records a second, of ten values each."""
REQUEST_S = 0.05
EVERY_S = 5.0
"""``TRACKER_STORE_EVERY``, as it is by default."""
BEFORE_BYTES = layout.PIECE_BYTES // 2
"""Length of the stream at the beginning: its last piece is sent again with each look until it is 256 kB long."""
REQUESTS_A_LOOK = 5
"""A look asks for a later attempt, writes a piece, deletes the one that it replaces, and writes the delivery's state;
every fourth one gives a sign of life."""
LOOK_S = 1.0
SILENT_S = 30.0


class Counting(Store):
    """A store on this disk, each of whose requests takes a while."""

    requests = 0
    written = 0
    beats: ClassVar[list[float]] = []

    def _call(self, call: Any) -> Any:
        Counting.requests += 1
        time.sleep(REQUEST_S)
        return super()._call(call)

    def put(self, name: str, content: bytes | Path) -> str:
        Counting.written += len(content) if isinstance(content, bytes) else content.stat().st_size
        if name.endswith("relay.lease"):
            Counting.beats.append(time.monotonic())
        return super().put(name, content)


class Training(threading.Thread):
    """Appends records at a rate, and gives the signs of life of a relay."""

    def __init__(self, run: RunDirectory, rate: float) -> None:
        super().__init__(daemon=True)
        self._stream, self._rate = StreamWriter(run.stream(StreamName("rank", 0, 1))), rate
        self._lease = Lease(run.path / "relay.lease")
        self._values = rows(100)
        self._lease.acquire()
        self.step = 0
        self.over = threading.Event()
        self._stream.write(encode(Start(time=time.time(), pid=os.getpid())))
        while self._stream.path.stat().st_size < BEFORE_BYTES:
            self.log()

    def log(self) -> None:
        """Append one record."""
        self._stream.write(encode(Metrics(step=self.step, time=time.time(), values=self._values[self.step % 100])))
        self.step += 1

    def end(self) -> None:
        """Append the end, as training does."""
        self.over.set()
        self.join()
        self._stream.write(encode(Finish(time=time.time(), status="finished", exit_code=0)))
        self._stream.release()
        self._lease.release()

    def run(self) -> None:
        """Append until it is over."""
        began, first = time.monotonic(), self.step
        while not self.over.wait(max(0.0, began + (self.step + 1 - first) / self._rate - time.monotonic())):
            self.log()
            self._lease.beat()


def one(rate: int, seconds: float) -> list[Figure]:
    """The figures of one rate."""
    where = f"file://{Path.cwd()}/store{rate}"
    run = RunDirectory(Path("runs/storing") / f"rate{rate}")
    run.make()
    options = {"TRACKER_DIR": where, "TRACKER_STORE_EVERY": EVERY_S}
    run.write_info(RunInfo(id=run.path.name, name="a", project="storing", trackers=["storage"], options=options))
    training = Training(run, rate)
    storage.Store = Counting  # type: ignore[misc]
    delivery = Delivery(run, "storage", say=print, alone=False)
    delivery.step()  # what is there, which isn't counted
    size = run.sizes()["rank-0.1"]
    Counting.requests = Counting.written = 0
    Counting.beats[:] = [time.monotonic()]
    training.start()
    began, longest = time.monotonic(), 0.0
    while (now := time.monotonic()) < began + seconds:
        delivery.step()
        longest = max(longest, time.monotonic() - now)
        time.sleep(0.1)
    minutes = (time.monotonic() - began) / 60
    training.end()
    logged = (run.sizes()["rank-0.1"] - size) / minutes / 1e6
    Counting.beats.append(time.monotonic())
    while delivery.step() is not None:
        pass
    silent = max(later - earlier for earlier, later in zip(Counting.beats, Counting.beats[1:], strict=False))
    looks = 60 / EVERY_S
    most_mb = looks * layout.PIECE_BYTES / 1e6 + 1.5 * logged
    return [
        Figure(f"{rate} records/s: requests a minute", Counting.requests / minutes, at_most=looks * REQUESTS_A_LOOK),
        Figure("  sent a minute", Counting.written / minutes / 1e6, "MB", at_most=most_mb),
        Figure("  logged a minute", logged, "MB"),
        Figure("  the longest look", longest, "s", at_most=LOOK_S),
        Figure("  the longest time between two signs of life", silent, "s", at_most=SILENT_S),
        Figure("  records lost or doubled in the store", _wrong(where, run, training.step), at_most=0),
    ]


def _wrong(where: str, run: RunDirectory, count: int) -> int:
    """How many steps aren't once in a copy of the store."""
    mirror.copy(where, Path(f"copy-{run.path.name}"))
    (path,) = Path(f"copy-{run.path.name}").glob("*/*/streams/rank-0.1.jsonl")
    steps = [record["step"] for line in path.read_text().splitlines() if "step" in (record := json.loads(line))]
    return len(steps) - len(set(steps)) + len(set(range(count)) ^ set(steps))


def measure(quick: bool) -> Sequence[Figure]:
    """Each rate for a minute."""
    return [figure for rate in RATES for figure in one(rate, 6.0 if quick else 60.0)]


if __name__ == "__main__":
    main(measure, __doc__ or "")
