"""Copying runs, one after the other: staged, delivered, read back, compared, reported."""

from __future__ import annotations

import contextlib
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.copying import verify as counting
from trackers.copying.destinations import CopyDestination, parse
from trackers.copying.staging import stage
from trackers.copying.verify import ContentDigest
from trackers.errors import TrackersError, Unavailable, UsageError
from trackers.journal.helper_process import seldom_collected
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory
from trackers.readers import registry
from trackers.readers.journal import JournalReader
from trackers.readers.reader import REPEATED, Reader, SourceRun
from trackers.relay.delivery.delivery import Delivery, Stop
from trackers.support import confined


class CopyReport(msgspec.Struct, kw_only=True):
    """One run's copy.

    source, destination: sources that name the run on both sides; name: the run's. expected: what the source holds,
    as the destination keeps such things; stored: what was read back. differences: each as one line. rejected: records
    that the destination refused. messages: its tracker's, and the source's note. error: why the copy failed, or "".
    """

    source: str
    destination: str = ""
    name: str = ""
    expected: ContentDigest = msgspec.field(default_factory=ContentDigest)
    stored: ContentDigest = msgspec.field(default_factory=ContentDigest)
    differences: list[str] = []
    rejected: int = 0
    messages: list[str] = []
    error: str = ""
    running: bool = False

    @property
    def agrees(self) -> bool:
        """Both sides hold the same."""
        return not (self.error or self.differences or self.rejected)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.source} → {self.destination or 'nowhere'}"]
        if self.error:
            return f"{lines[0]}\n  failed: {self.error}"
        for label, tally in (("source", self.expected), ("there", self.stored)):
            parts = [f"{tally.values:,} values of {len(tally.metrics):,} metrics, checksum {tally.checksum}"]
            counts = {"text": tally.texts, "image, table or histogram": tally.media, "artifact file": tally.files}
            parts += [f"{word}s: {sum(counted.values()):,}" for word, counted in counts.items() if counted]
            parts += [f"results: {len(tally.results):,}"] if tally.results else []
            lines.append(f"  {label:<7} {', '.join(parts)}, {tally.status or 'running'}")
        if self.rejected:
            lines.append(f"  {self.rejected:,} records were refused")
        lines += [f"  differs: {line}" for line in self.differences[:20]]
        if len(self.differences) > 20:
            lines.append(f"  and {len(self.differences) - 20} more differences")
        lines += [f"  {text}" for text in self.messages]
        return "\n".join([*lines, f"  {'agrees' if self.agrees else 'DIFFERS'}"])

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        sides = {
            side: {
                "metrics": len(tally.metrics),
                "values": tally.values,
                "checksum": tally.checksum,
                "texts": sum(tally.texts.values()),
                "media": tally.media,
                "artifact_files": sum(tally.files.values()),
                "results": len(tally.results),
                "status": tally.status or "running",
            }
            for side, tally in (("source", self.expected), ("destination", self.stored))
        }
        return {
            "source": self.source,
            "destination": self.destination,
            "name": self.name,
            "agrees": self.agrees,
            "sides": sides,
            "differences": self.differences,
            "rejected": self.rejected,
            "said": self.messages,
            "error": self.error,
        }


PATIENCE_S = 120.0
"""Time without progress after which a destination is given up, in seconds; a repeated copy continues there."""
TURN_S = 0.5
SAY_S = 0.2

Say = Callable[[str, int, int], None]
"""Told of progress: what is done ("reading", "writing", "comparing"), records done, records in all (0: not known)."""


def copy(
    source: str,
    destination: str,
    *,
    directory: Path | None = None,
    patience_s: float = PATIENCE_S,
    begin: Callable[[SourceRun, int, int], None] = lambda run, number, count: None,
    say: Say = lambda what, done, all: None,
) -> Iterator[CopyReport]:
    """Copy the runs that a source names, the oldest first; each report comes as soon as its run is there.

    Made again, a copy goes on where it was interrupted, and what is there already isn't written twice.

    Args:
        directory: where our own runs lie, for sources that are such; default TRACKER_DIR.
        patience_s: see :data:`PATIENCE_S`; 0: never give up.
        begin: told of each run, its number and how many there are. say: told of progress.

    Raises:
        UsageError: source or destination can't be understood, or what they need is missing. NotFound: no such run.
    """
    target = parse(destination)
    reader, runs = registry.open_source(source, directory)
    for number, run in enumerate(reversed(runs), 1):
        begin(run, number, len(runs))
        yield _copy_run(reader, run, target, patience_s, say)


def follow(
    sources: Callable[[], Sequence[str]],
    destination: str,
    stopping: Callable[[], bool],
    *,
    directory: Path | None = None,
    patience_s: float = PATIENCE_S,
    every_s: float = 5.0,
    again_s: float = 60.0,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[CopyReport]:
    """Copy what is new of the runs that sources name, and new runs, again and again; a report for each that changed.

    A run that hasn't changed, as far as that is known without reading it, isn't read again; what doesn't agree, or
    fails, is tried again later.

    Args:
        sources: asked each time.
        stopping: asked between runs, and some times a second while there is nothing new, whether to end.
        every_s: between two looks for what is new. again_s: until a run that doesn't agree is tried again.
        say: told, once, why a source can't be read, after it could be.

    Raises:
        see :func:`copy`, before the first report.
    """
    target = parse(destination)
    states: dict[str, tuple[Any, float]] = {}
    reported: dict[str, str] = {}
    complaint, is_first = "", True
    while not stopping():
        try:
            opened = [registry.open_source(source, directory) for source in sources()]
            complaint = ""
        except (TrackersError, OSError) as error:
            if is_first:  # a wrong address isn't waited for
                raise
            opened, before, complaint = [], complaint, str(error)
            if complaint != before:
                say(complaint)
        is_first = False
        for reader, run in [(reader, run) for reader, runs in opened for run in reversed(runs)]:
            if stopping():
                return
            state = _state(reader, run)
            before, again = states.get(run.source, (None, 0.0))
            if state is not None and state == before and time.monotonic() < again:
                continue
            report = _copy_run(reader, run, target, patience_s, lambda what, done, all: None)
            states[run.source] = state, math.inf if report.agrees else time.monotonic() + again_s
            if reported.get(run.source) != str(report):
                reported[run.source] = str(report)
                yield report
        until = time.monotonic() + every_s
        while not stopping() and time.monotonic() < until:
            time.sleep(TURN_S / 5)


def _state(reader: Reader, run: SourceRun) -> Any:
    """What differs once a run has changed; None where that isn't known without reading it."""
    with contextlib.suppress(TrackersError, OSError):
        if run.directory and isinstance(reader, JournalReader):
            own = RunDirectory(run.directory)
            return run.status, own.sizes(), own.identity.stat().st_mtime_ns
        if version := reader.version(run):
            return version
    return None if run.status in ("", "running") else run.status


def _copy_run(reader: Reader, run: SourceRun, target: CopyDestination, patience_s: float, say: Say) -> CopyReport:
    report = CopyReport(source=run.source, name=run.name)
    try:
        staged = stage(reader, run, target, lambda count: say("reading", count, 0))
        if target.tracker:
            report.rejected = _deliver(staged, target, report, patience_s, say)
        if run.note:
            report.messages.append(run.note)
        info = staged.read_info()
        report.destination = target.source(staged, info)
        say("comparing", 0, 0)
        (own,) = JournalReader().runs(str(staged.path))
        once = target.capabilities.once
        report.expected = counting.tally(JournalReader().read(own), target.capabilities)
        report.expected.tags = report.expected.tags or list(run.tags)
        report.stored = _read_back(report.destination, target)
        if report.expected.merged:
            equal = "a metric's equal values of one step" + (" and millisecond" if once == "moment" else "")
            report.messages.append(f"{report.expected.merged:,} values are one with others there: {equal}")
        report.differences = list(counting.differences(report.expected, report.stored, target.capabilities))
    except (TrackersError, OSError) as error:
        report.error = str(error)
    return report


def _read_back(source: str, target: CopyDestination) -> counting.ContentDigest:
    reader, runs = registry.open_source(source)
    (run,) = runs
    with tempfile.TemporaryDirectory(prefix="trackers-copy-") as folder:
        digest = counting.tally(reader.read(run, files=Path(folder)), once=target.capabilities.once)
    digest.repeated = run.native.get(REPEATED, {})
    digest.tags = digest.tags or list(run.tags)
    return digest


def _deliver(run: RunDirectory, target: CopyDestination, report: CopyReport, patience_s: float, say: Say) -> int:
    """Deliver a journal to its tracker; how many records that refused.

    Raises:
        Unavailable: it can't go on, or accepted nothing for too long. UsageError: another process delivers this run.
    """
    lease = Lease(run.delivery / f"{target.tracker}.lease")
    if not lease.acquire():
        raise UsageError(f"{lease.holder()} is copying this run already")
    handler = _Messages(report.messages)

    def beat(allow_s: float) -> None:
        lease.beat(allow_s)

    logging.getLogger("trackers").addHandler(handler)
    work = Delivery(run, target.tracker, say=handler.say, beat=beat, alone=False)
    try:
        with seldom_collected():
            _pump(work, patience_s, say, run)
        return work.account.rejected
    except Stop as reason:
        raise Unavailable(f"{target.tracker}: {reason}") from None
    finally:
        logging.getLogger("trackers").removeHandler(handler)
        lease.release()


def _pump(work: Delivery, patience_s: float, say: Say, run: RunDirectory) -> None:
    """Deliver until everything that was staged is there; a run that goes on is left so."""
    from trackers.journal.status import last_status

    goes_on = last_status(run).name == "running"
    moved, seen, said_at = time.monotonic(), -1, 0.0
    sizes = run.sizes()
    total = 0
    while True:
        pause = work.step()
        now = time.monotonic()
        if work.account.seq != seen:
            moved, seen = now, work.account.seq
        if pause is None:
            return
        if now - said_at > SAY_S:
            said_at = now
            total = total or _records(run)
            say("writing", work.account.seq, total)
        if goes_on and pause > 0 and all(work.account.offsets.get(name, 0) >= size for name, size in sizes.items()):
            work.close()
            return
        if patience_s and now - moved > patience_s:
            raise Unavailable(
                f"{work.name} accepted nothing for {patience_s:.0f} s: {work.account.error or 'no answer'}"
            )
        if pause > 0:  # what isn't there yet won't come: nothing is gathered
            time.sleep(min(pause, TURN_S if work.account.failures or goes_on else 0.001))


def _records(run: RunDirectory) -> int:
    """How many records are to be delivered: those of earlier copies, which the source's have replaced since, too."""
    lines = 0
    for name in run.stream_names():
        with confined.open_file(run.stream(name), root=run.path) as file:
            lines += sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    return lines


class _Messages(logging.Handler):
    """Collects a tracker's messages, each line once."""

    def __init__(self, said_at: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = said_at

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())

    def say(self, text: str) -> None:
        """Keep a line."""
        line = " ".join(text.split())
        if line not in self._messages and len(self._messages) < 50:
            self._messages.append(line)
