"""The guarantees that a tracker must keep, one small function each. :func:`all_checks` lists them in order.

Each gets a :class:`Bench`, delivers records in its own way, and lets ``Bench.verify`` compare what the destination
holds with what a faultless tracker would have left there.
"""

from __future__ import annotations

import dataclasses
import math
import string
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.backends import registry
from trackers.records import (
    ALL_KINDS,
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Console,
    Define,
    Environment,
    Finish,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Span,
    Start,
    Summary,
    Text,
    on_axis,
)
from trackers.testing.driver import Driver, DriverJob, Process, import_path, number, python_path, resolve
from trackers.testing.stored import Limits, Stored, differences, expected
from trackers.tracker import Cursor, RunInfo, Status

T0 = 1_763_688_000.125
"""When the runs of the checks began: long ago, so that a tracker's own clock is seen in its times."""

LONG_CONFIG: dict[str, Any] = {
    "short": 1,
    "layers": "x" * 20_000,
    "k" * 300: "a long name",
    "model": {"block": {"attention": {"heads": 8, "window": [1, 2, 3]}}, "note": None},
    "flag": True,
    "seed": 2**62 + 1,
    "limit": math.inf,
    "dropout.p": 0.1,
    "text": 'two\nlines, "quotes", größer, 損失',
    "many": {f"option_{number}": number for number in range(150)},
}
"""Configuration that some vendor refuses or shortens somewhere."""

AWKWARD_NAMES = (
    "timing(s)/gen", "mean@1", "AR@100", "a//b", "/leading", "trailing/", "../up", "a/./b", "a/../b", ".", "..",
    " spaces  around ", "per cent %41", "Loss", "loss", "LOSS", "a_b", "größe/損失/🙂", "step", "_step", "global_step",
    "time", "timestamp", "_timestamp", "_runtime", "run", "project", "metrics", "epoch", "NaN", "n" * 400,
    "n" * 399 + "m", "deep/" * 30 + "leaf",
)  # fmt: skip
"""Names that some vendor refuses, reserves or runs together."""


def metric_names() -> list[str]:
    """Metric names: one for each printable ASCII character, and those that vendors are known to trip over."""
    printable = [f"x{character}y" for character in string.printable if character >= " " and character != "\x7f"]
    return list(dict.fromkeys([*printable, *AWKWARD_NAMES]))


def rows(count: int, first: int = 0) -> list[Record]:
    """Metrics of ``count`` steps, a quarter of a second apart, with three values each."""
    return [
        Metrics(
            step=step,
            time=T0 + step / 4,
            values={"loss": 2.5 - step / 1024, "perf/tokens_per_sec": 1000.0 + step, "count": step},
        )
        for step in range(first, first + count)
    ]


def training(steps: int, status: Status | None = None) -> list[Record]:
    """An ordinary run, numbered: start, configuration, rows, and at the end results and finish.

    A run that still goes on has neither: a destination may keep results for the end.
    """
    status = status or Status("finished", 0)
    end = T0 + steps / 4
    records: list[Record] = [
        Start(time=T0, pid=1),
        Config(time=T0, values={"lr": 0.001, "model": {"depth": 4}}),
        *rows(steps),
    ]
    if status.name != "running":
        records.append(Summary(time=end, values={"best_loss": 1.5}))
        records.append(Finish(time=end, status=status.name, exit_code=status.exit_code))
    return number(records)


def one_of_each(directory: Path) -> list[Record]:
    """A record of every kind, with small real files below ``directory`` where a kind needs them."""
    media = directory / "media"
    media.mkdir(exist_ok=True)
    (media / "weights.bin").write_bytes(bytes(range(256)))
    (media / "dot.png").write_bytes(_PNG)
    histogram = MediaFile(format="json", data={"counts": [1, 2, 1], "edges": [0.0, 0.5, 1.0, 1.5]})
    table = MediaFile(format="json", data={"columns": ["prompt", "text"], "rows": [["a", "b"], ["c", "d"]]})
    image = MediaFile(format="png", file="media/dot.png", width=1, height=1, caption="a dot")
    file = ArtifactFile(path="weights.bin", file="media/weights.bin", size=256, digest="")
    at: dict[str, Any] = {"step": 9, "time": T0 + 9 / 4}
    return [
        Start(time=T0, pid=1),
        Config(time=T0, values={"lr": 0.001}),
        Text(values={"note": "größer\nas two lines"}, **at),
        Media(name="weights", type="histogram", items=[histogram], **at),
        Media(name="samples", type="table", items=[table], **at),
        Media(name="images", type="image", items=[image, image], **at),
        ArtifactRecord(name="checkpoint", type="model", files=[file], aliases=["latest"], metadata={"loss": 0.5}, **at),
        Summary(time=T0 + 3, values={"best_loss": 0.5}),
        Define(time=T0 + 3, name="val_*", summary=["min"]),
        Alert(time=T0 + 3, title="slow", text="half the usual rate", level="WARN"),
        Info(time=T0 + 3, tags=["first", "third"]),
        Environment(time=T0 + 3, values={"packages": {"trackers-relay": "0.1.0"}, "gpu": None}),
    ]


_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)


FINISHED = Status("finished", 0, T0 + 10_000)


class Skipped(Exception):
    """This check says nothing about this tracker; the message says why."""


@dataclasses.dataclass
class Trial:
    """One run of the tracker under test, in a directory of its own."""

    bench: Bench
    info: RunInfo
    file: Path

    def driver(self) -> Driver:
        """A driver in this process, on this run's committed cursor."""
        return Driver(self.bench.cls, self.info, self.file)

    def deliver(self, records: Sequence[Record], batch: int = 100, status: Status = FINISHED) -> None:
        """Open, write, close, in this process."""
        driver = self.driver()
        driver.open()
        driver.write(records, batch)
        driver.close(status)

    def process(
        self,
        records: Sequence[Record],
        batch: int = 100,
        *,
        die_after: int | None = None,
        hold_after: int | None = None,
        status: Status | None = FINISHED,
    ) -> Process:
        """The same in a process of its own; see :class:`DriverJob`."""
        job = DriverJob(
            tracker=import_path(self.bench.tracker),
            info=self.info,
            records=str(self.info.path("records.jsonl")),
            file=str(self.file),
            batch=batch,
            die_after=die_after,
            hold_after=hold_after,
            status=status,
        )
        return Process(job, Path(self.info.directory), records)

    def verify(self, records: Sequence[Record], status: Status = FINISHED) -> None:
        """The destination holds these records, each once, and nothing else.

        Raises:
            AssertionError: it doesn't; each difference is one line.
        """
        limits = self.bench.limits
        stored = self.bench.read(self.info, dict(self.driver().state))
        assert isinstance(stored, Stored), f"the reader must answer with a Stored, not {type(stored).__name__}"
        accepted = [record for record in records if type(record) in self.bench.cls.accepts]
        if self.bench.cls.single_axis:
            accepted = [part for record in accepted for part in on_axis(record)]
        want = expected(self.info, accepted, limits, status)
        lines = list(differences(want, stored, limits, self.bench.cls.accepts))
        shown = "\n".join(lines[:10]) + (f"\nand {len(lines) - 10} more" if len(lines) > 10 else "")
        assert not lines, shown


class Bench:
    """The tracker under test, its reader and its limits."""

    def __init__(
        self,
        tracker: Any,
        read: Callable[[RunInfo, Mapping[str, Any]], Stored],
        directory: Path,
        options: Mapping[str, Any],
        limits: Limits,
        mode: str,
    ) -> None:
        self.tracker, self.read, self.directory = tracker, read, directory
        self.options, self.limits, self.mode = options, limits, mode
        self.cls = resolve(tracker) if isinstance(tracker, str) else registry.as_tracker(tracker.name, tracker)

    def trial(self, **fields: Any) -> Trial:
        """A run that no other check uses."""
        run_id = uuid.uuid4().hex[:8]
        directory = self.directory / run_id
        directory.mkdir(parents=True)
        values: dict[str, Any] = {
            "id": run_id,
            "name": f"run-{run_id}",
            "project": "conformance",
            "tags": ["first", "second"],
            "created": T0,
            "mode": self.mode,
            "options": dict(self.options),
            "directory": str(directory),
        }
        return Trial(self, RunInfo(**{**values, **fields}), directory / "delivery" / f"{self.cls.name}.json")

    def needs_own_process(self) -> None:
        """Skip what means nothing for a tracker that lives and dies with the training process."""
        if self.cls.inside:
            raise Skipped("it runs inside the training process")
        path = import_path(self.tracker)
        assert _importable(path), f"{path} can't be imported elsewhere: put the class at the top level of a module"


def check_import(bench: Bench) -> None:
    """Importing the module and constructing the class loads no vendor package and writes no file."""
    path = import_path(bench.tracker)
    if not _importable(path):
        raise Skipped(f"{path} can't be imported by another process")
    directory = bench.trial().info.directory
    code = (
        "import sys; from trackers.testing.driver import resolve\n"
        "before = set(sys.modules); cls = resolve(sys.argv[1]); cls()\n"
        "print(*(m for m in cls.needs if m in sys.modules and m not in before))"
    )
    command = [sys.executable, "-c", code, path]
    process = subprocess.run(command, cwd=directory, env=python_path(), capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"it can't be imported and constructed without arguments:\n{process.stderr[-2000:]}"
    loaded = process.stdout.split()
    assert not loaded, f"expected no vendor package before open(), found {', '.join(loaded)} imported"
    left = [file.name for file in Path(directory).iterdir()]
    assert not left, f"expected no file before open(), found {', '.join(left)}"


def check_declaration(bench: Bench) -> None:
    """``name`` and ``accepts`` are well formed, and each accepted kind is taken beside metrics, which stay."""
    cls = bench.cls
    assert isinstance(cls.name, str), f"expected a name, found {cls.name!r}"
    assert cls.name, "expected a name, found none"
    assert isinstance(cls.accepts, frozenset), f"expected accepts to be a frozenset, found {type(cls.accepts).__name__}"
    strange = cls.accepts - ALL_KINDS - {Console, Span}
    assert not strange, f"expected kinds of trackers.records in accepts, found {strange}"
    assert cls.accepts, "expected at least one kind in accepts, found none"
    trial = bench.trial()
    records = number([*rows(10), *one_of_each(trial.info.path()), *rows(10, first=10)])
    trial.deliver(records)
    trial.verify(records)


def check_batches(bench: Bench) -> None:
    """The size of the batches makes no difference."""
    for batch, rows in ((1, 30), (7, 100), (1000, 400)):
        trial = bench.trial()
        records = training(rows)
        trial.deliver(records, batch)
        trial.verify(records)


def check_empty_batches(bench: Bench) -> None:
    """A batch without a record (all were of other kinds) stores nothing and hurts nothing."""
    trial = bench.trial()
    records = training(20)
    driver = trial.driver()
    driver.open()
    assert driver.tracker is not None
    driver.tracker.write([], Cursor(0))
    driver.write(records)
    driver.tracker.write([], Cursor(records[-1].seq + 5))
    driver.close(FINISHED)
    trial.verify(records)
    nothing = bench.trial()
    nothing.deliver([])


def check_redelivery(bench: Bench) -> None:
    """A batch that comes again in one process, whole or in halves, changes nothing."""
    trial = bench.trial()
    records = training(60)
    driver = trial.driver()
    driver.open()
    assert driver.tracker is not None
    for start in range(0, len(records), 20):
        part = records[start : start + 20]
        for low, high in ((0, 10), (0, 20), (0, 20), (0, 10), (10, 20)):
            piece = part[low:high]
            if piece:
                driver.tracker.write(driver.accepted(piece), Cursor(piece[-1].seq))
        driver.cursor = part[-1].seq
    driver.close(FINISHED)
    trial.verify(records)


def check_lost_cursor(bench: Bench) -> None:
    """A run delivered once more from its beginning, cursor and state lost, is there once."""
    trial = bench.trial()
    records = training(60)
    trial.deliver(records, 25)
    trial.file.unlink()
    trial.deliver(records, 40)
    trial.verify(records)


def check_older_state(bench: Bench) -> None:
    """A run whose cursor and state are put back to an earlier moment, before an end and a resume, is there once."""
    trial = bench.trial()
    records = training(90)
    states = []
    for stop, status in ((30, Status("running", None, T0)), (60, Status("crashed", None, T0))):
        trial.deliver(records[:stop], 20, status)
        states.append(trial.file.read_bytes())
    trial.deliver(records, 20)
    for earlier in states:
        trial.file.write_bytes(earlier)
        trial.deliver(records, 20)
        trial.verify(records)


def check_resume(bench: Bench) -> None:
    """A run that pauses, is preempted, ends and is synced once more, each time in another process, is one whole run."""
    bench.needs_own_process()
    trial = bench.trial()
    records = training(90)
    trial.process(records[:30], 20, status=Status("running", None, T0)).wait()
    trial.process(records[:60], 20, status=Status("preempted", None, T0)).wait()
    trial.process(records, 20).wait()
    trial.deliver(records, 20)
    trial.verify(records)


def check_killed_before_commit(bench: Bench) -> None:
    """A process killed between ``write`` and the commit of its cursor doubles nothing and loses nothing."""
    bench.needs_own_process()
    trial = bench.trial()
    records = training(90)
    trial.process(records, 20, die_after=1, status=None).wait_until_dead()
    trial.process(records, 15, die_after=0, status=None).wait_until_dead()
    trial.deliver(records, 20)
    trial.verify(records)


def check_killed_while_writing(bench: Bench) -> None:
    """A process killed in the midst of a batch, again and again, doubles nothing and loses nothing."""
    bench.needs_own_process()
    trial = bench.trial()
    records = training(600)
    for batch, part in ((1, 0.25), (2, 0.5), (1, 0.9)):
        trial.process(records, 100, hold_after=batch, status=None).kill_in(batch, part)
    trial.deliver(records, 100)
    trial.verify(records)


def check_nan_and_infinity(bench: Bench) -> None:
    """NaN and both infinities come back, among ordinary values and alone in a row."""
    values = [1.0, math.nan, math.inf, -math.inf, 2.0, math.nan]
    _check_rows(bench, [{"loss": value, "other": 1.0} for value in values] + [{"loss": value} for value in values])


def check_numbers(bench: Bench) -> None:
    """Numbers come back bit for bit, but for what ``Limits`` says: single precision, integers as doubles."""
    numbers = [0, 1, -1, 0.1, 1 / 3, math.pi, 1e-300, 5e-324, 1.7976931348623157e308, 1e-40, 3.5e38, 16_777_217]
    wide = [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
    _check_rows(bench, [{"loss": value, "flag": True, "other": False} for value in [*numbers, *wide]])


def check_big_integers(bench: Bench) -> None:
    """Integers beyond 64 bits do what ``Limits.big_integers`` says, and leave their neighbours alone."""
    values = [2**64, -(2**63) - 1, 2**70, 10**40]
    _check_rows(bench, [{"count": value, "loss": float(index)} for index, value in enumerate([1, *values, 2])])


def check_names(bench: Bench) -> None:
    """Names with every printable character, reserved words and great length are stored, each with its own values."""
    names = metric_names()
    stored = [bench.limits.name(name) for name in names]
    assert len(set(stored)) == len(names), "Limits.rename maps two names to one"
    _check_rows(bench, [{name: index + row / 2 for index, name in enumerate(names)} for row in range(2)])


def check_steps(bench: Bench) -> None:
    """Steps that go back, repeat, jump or are absent from no row lose nothing."""
    trial = bench.trial()
    steps = [0, 1, 2, 2, 2, 5, 3, 4, 4, 0, 1_000_000, 7, 7, 2**40, 8]
    records = number(
        Metrics(step=step, time=T0 + index / 4, values={"loss": index / 8, "other": float(index % 2)})
        for index, step in enumerate(steps)
    )
    trial.deliver(records, 4)
    trial.verify(records)


def check_step_metrics(bench: Bench) -> None:
    """Metrics with a step metric lie at its value where the step is the only axis, else at their own step; once, also
    where the run is delivered in another process or again."""
    trial = bench.trial()
    at = T0 + 20
    unnumbered: list[Record] = [Start(time=T0, pid=1), *rows(5)]
    for index in range(40):
        epoch = index // 4
        here: dict[str, Any] = {"step": 5 + index, "time": at + index}
        unnumbered.append(Metrics(values={"loss": index / 8, "epoch": epoch}, axis=epoch, **here))
        unnumbered.append(Metrics(values={"perf/tokens_per_sec": float(index)}, **here))
    records = number(unnumbered)
    trial.deliver(records[:30], 7, Status("running", None, T0))
    trial.deliver(records, 11)
    trial.verify(records)
    trial.file.unlink()
    trial.deliver(records, 40)
    trial.verify(records)


def check_long_params(bench: Bench) -> None:
    """A configuration with long values, long names, deep nesting and odd types is stored whole."""
    _accepts(bench, Config)
    trial = bench.trial(config=LONG_CONFIG)
    records = number([Config(time=T0, values=LONG_CONFIG), *rows(5)])
    trial.deliver(records)
    trial.verify(records)


def check_config_changes(bench: Bench) -> None:
    """A later configuration record changes its keys and leaves the others, in this process and the next; a whole one
    replaces mappings."""
    _accepts(bench, Config)
    first = {"lr": 1e-3, "model": {"depth": 4, "width": 64}, "data": {"name": "a", "parts": {"train": 1}}}
    trial = bench.trial(config=first)
    records = number(
        [
            Config(time=T0, values=first),
            *rows(5),
            Config(time=T0 + 5, values={"model": {"depth": 5}, "seed": 1}),
            *rows(5, first=5),
            Config(time=T0 + 9, values={"lr": 2e-3, "data": {"parts": {"test": 2}}}, whole=True),
        ]
    )
    trial.deliver(records[:8], 3, Status("running", None, T0))
    trial.deliver(records, 3)
    trial.verify(records)


def check_results(bench: Bench) -> None:
    """Results lie in the summary, the last value of each, and in no time series."""
    _accepts(bench, Summary)
    trial = bench.trial()
    records = number(
        [
            *rows(5),
            Summary(time=T0 + 5, values={"best_val_loss": 0.5, "final/steps": 5}),
            *rows(5, first=5),
            Summary(time=T0 + 10, values={"best_val_loss": 0.25, "final/perplexity": 8.125}),
        ]
    )
    trial.deliver(records, 4)
    trial.verify(records)


def check_statuses(bench: Bench) -> None:
    """Each way in which a run can end is what the destination says afterwards."""
    if bench.limits.statuses is None:
        raise Skipped("the destination keeps no status")
    for name, exit_code in (("finished", 0), ("failed", 1), ("crashed", None), ("preempted", None), ("stopped", 0),
                            ("running", None)):  # fmt: skip
        trial = bench.trial()
        records = training(5, Status(name, exit_code, T0 + 6))  # type: ignore[arg-type]
        status = Status(name, exit_code, T0 + 6)  # type: ignore[arg-type]
        trial.deliver(records, status=status)
        trial.verify(records, status)


def all_checks() -> dict[str, Callable[[Bench], None]]:
    """Every check by its name, in the order in which they are made."""
    prefix = "check_"
    return {name.removeprefix(prefix): check for name, check in globals().items() if name.startswith(prefix)}


def _importable(path: str) -> bool:
    return "<locals>" not in path and not path.startswith("__main__:")


def _accepts(bench: Bench, kind: type[Record]) -> None:
    if kind not in bench.cls.accepts:
        raise Skipped(f"it takes no {kind.__name__} records")


def _check_rows(bench: Bench, rows: Sequence[Mapping[str, Any]]) -> None:
    trial = bench.trial()
    records = number(Metrics(step=step, time=T0 + step / 4, values=dict(values)) for step, values in enumerate(rows))
    trial.deliver(records)
    trial.verify(records)
