"""What tests of trackers share: a run on paper, records as a delivery hands them over, a driver for one tracker."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import selectors
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import observe
from trackers.journal.stream import StreamWriter
from trackers.records import Config, Console, Finish, Media, MediaFile, Metrics, Record, Start, encode
from trackers.support import sightings
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker

if TYPE_CHECKING:
    import pytest

T0 = 1_763_688_000.123


class Lazy:
    """A module that is imported when something of it is used: every worker collects all tests, and runs a part."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for its marks
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


class Time:
    """The module ``time``, of a clock that a test moves.

    Attributes:
        now: seconds.
    """

    def __init__(self, now: float) -> None:
        self.now = now

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


def run_info(directory: Path, **fields: Any) -> RunInfo:
    """A run in ``directory``, with the fields that tests rarely care about filled in."""
    directory.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "id": "abcd1234",
        "name": "baseline",
        "project": "digits",
        "tags": ["first"],
        "config": {"lr": 1e-3, "model": {"depth": 4}},
        "created": T0,
        "directory": str(directory),
    }
    return RunInfo(**{**values, **fields})


def made_run(directory: Path, **fields: Any) -> RunDirectory:
    """A run's directory that holds its identity alone; fields as for :func:`run_info`."""
    run = RunDirectory(directory)
    run.make()
    run.write_info(run_info(directory, **fields))
    return run


def begun_run(directory: Path, **fields: Any) -> tuple[RunDirectory, StreamWriter]:
    """The same, and its main rank's stream, which holds the start alone."""
    run = made_run(directory, **fields)
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    writer.write(encode(Start(time=T0)))
    return run, writer


def keep_silent(run: RunDirectory, seconds: float) -> None:
    """Let this machine have watched a run for so long, and seen no sign of life."""
    observe(run)
    for what in (run.path, run.path / "relay.lease"):
        path = sightings.directory() / sightings.file_name(what, sightings.now())
        if path.exists():
            seen = json.loads(path.read_text())
            for moment in (seen["since"], seen["looked"]):
                moment["monotonic"] -= seconds
            path.write_text(json.dumps(seen))


def wait_for(what: Callable[[], Any], seconds: float = 150.0, why: str = "") -> Any:
    """Poll until ``what`` is true, and return it; a failure after so long without."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {why}"
        time.sleep(0.02)
    return found


class Terminal(io.StringIO):
    """Standard error, as a person has it."""

    def isatty(self) -> bool:
        return True


def stream(records: Iterable[Record], *, name: str = "rank-0.1", first_seq: int = 1) -> list[Record]:
    """Records with the ``id`` and ``seq`` that a reader of the journal gives them."""
    return [
        msgspec.structs.replace(record, id=f"{name}:{number * 100}", seq=number)
        for number, record in enumerate(records, first_seq)
    ]


def printed() -> list[Record]:
    """Records of four lines that training printed, one of them on another rank, between rows."""
    found: list[Record] = []
    for number in range(4):
        found.append(Metrics(step=number, time=T0 + number, values={"a": 1.0}))
        found.append(Console(time=T0 + number + 0.5, lines=[f"line {number}"], rank=1 if number == 2 else None))
    return stream(found)


PRINTED = "line 0\nline 1\n[rank 1] line 2\nline 3\n"
"""The same as trackers keep it in a file."""


def check_console_file(driver: Callable[..., Driver], tmp_path: Path) -> None:
    """What training printed is a file beside a tracker's log: each line once, though a delivery was killed between, and
    no file where nothing was printed. driver: makes one, of a state and a cursor."""
    records = stream([Start(time=T0, rank=0), *(Console(time=T0 + n, lines=[f"line {n}"]) for n in range(4))])
    killed = driver()
    killed.open()
    assert not list(tmp_path.rglob("*console.log"))
    killed.write(records[:2])
    killed.write(records[:4], commit=False)
    driver(killed.state, killed.cursor).deliver(records)
    (path,) = tmp_path.rglob("*console.log")
    assert path.read_text() == "line 0\nline 1\nline 2\nline 3\n"
    assert path.name.removesuffix("console.log")[:-1] in {one.stem for one in path.parent.glob("*.json")} | {
        path.parent.name
    }


class Killed(BaseException):
    """As a SIGKILL: nothing is done any more."""


def kill_at(monkeypatch: pytest.MonkeyPatch, module: Any, where: str, number: int, stored: str) -> Callable[[], None]:
    """Have a module's code raise ``Killed`` as it passes a failpoint for the given time.

    Args:
        stored: the name of the place where it replaces a file of its state, which is one of these, too.

    Returns:
        what ends that.
    """
    left = number

    def passing(name: str) -> None:
        nonlocal left
        if name == where:
            left -= 1
            if not left:
                raise Killed

    replace = module.replace_file

    def replaced(path: Path, content: bytes) -> None:
        passing(stored)
        replace(path, content)

    def end() -> None:
        nonlocal left
        left = 0

    monkeypatch.setattr(module, "failpoint", passing)
    monkeypatch.setattr(module, "replace_file", replaced)
    return end


def training(steps: int = 100, values: int = 10, finish: bool = True) -> list[Record]:
    """The records of an ordinary run: start, config, ``steps`` rows of ``values`` metrics 0.1 s apart, finish."""
    records: list[Record] = [
        Start(time=T0, pid=1),
        Config(time=T0, values={"lr": 1e-3, "model": {"depth": 4}}),
    ]
    for step in range(steps):
        row = {f"metric_{k}": step + k / 10 for k in range(values)}
        records.append(Metrics(step=step, time=T0 + step / 10, values=row))
    if finish:
        records.append(Finish(time=T0 + steps / 10, status="finished", exit_code=0))
    return stream(records)


@dataclasses.dataclass
class Driver:
    """Delivers records to one tracker as the relay does: batches, cursor and state committed after each write."""

    tracker_class: type[Tracker]
    info: RunInfo
    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    cursor: int = 0
    tracker: Tracker | None = None

    def open(self) -> None:
        """A new object of the tracker, as a new process would have it, opened with the committed state."""
        self.tracker = self.tracker_class()
        live = State(self.state)
        live._save = lambda: self.state.update(live)
        self._live = live
        answer = self.tracker.open(self.info, live)
        self.state = dict(live)
        if answer is not None:
            self.cursor = min(self.cursor, answer.seq)

    def write(self, records: Sequence[Record], batch: int = 100, commit: bool = True) -> None:
        """Write what lies behind the cursor. ``commit=False``: as if killed before the cursor was stored."""
        assert self.tracker is not None
        waiting = [record for record in records if record.seq > self.cursor]
        for start in range(0, len(waiting), batch):
            part = waiting[start : start + batch]
            taken = [record for record in part if type(record) in self.tracker.accepts]
            self.tracker.write(taken, Cursor(part[-1].seq))
            if commit:
                self.state = dict(self._live)
                msgspec.json.encode(self.state)  # as it is stored
                self.cursor = part[-1].seq

    def close(self, status: Status | None = None) -> None:
        assert self.tracker is not None
        self.tracker.close(status or Status("finished", 0, T0 + 1000))
        self.state = dict(self._live)

    def deliver(self, records: Sequence[Record], batch: int = 100, status: Status | None = None) -> None:
        """Open, write everything, close."""
        self.open()
        self.write(records, batch)
        self.close(status)


def arrays(directory: Path) -> list[Record]:
    """An image, a sound and a video as arrays, and a page, named by their types, at step 3; files below a directory."""
    import numpy

    shapes = {"image": (4, 6, 3), "audio": (800,), "video": (2, 4, 6, 3)}
    for kind, shape in shapes.items():
        numpy.save(directory / f"{kind}.npy", numpy.zeros(shape))
    (directory / "html.html").write_text("<p>x</p>")
    files = {**dict.fromkeys(shapes, "npy"), "html": "html"}
    return [
        Media(step=3, time=T0, name=kind, type=kind, items=[MediaFile(format=form, file=f"{kind}.{form}")])
        for kind, form in files.items()
    ]


def deliver_over_a_lost_rewind(driver: Callable[[], Driver]) -> None:
    """A rewind to step 1 and more than there was are written and not committed, then all of it by a new process.

    The metric "a" is its step up to the rewind, and minus its step from 2 to 39 after it.
    """
    records = stream([
        *(Metrics(step=step, time=T0, values={"a": step}) for step in range(3)),
        Start(time=T0, attempt=2, from_step=1),
        *(Metrics(step=step, time=T0, values={"a": -step}) for step in range(2, 40)),
    ])  # fmt: skip
    run = driver()
    run.open()
    run.write(records[:3])
    committed, cursor = dict(run.state), run.cursor
    run.write(records)
    again = driver()
    again.state.update(committed)
    again.cursor = cursor
    again.deliver(records)


def readable(files: Iterable[Any], timeout_s: float) -> list[Any]:
    """The files, of those that have a descriptor, that can be read within a time; ``select`` takes none above 1,023."""
    with selectors.DefaultSelector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(timeout_s)]
