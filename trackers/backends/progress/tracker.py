"""``progress.txt`` in the checkpoints' directory: when jobs began, what they had done at each checkpoint, how quickly.

Other jobs have written to the file before, and will: nothing of theirs is ever cut or changed. What a killed delivery
had written and not committed is found again in the file and not written twice.

Throughputs are true ones. The job's: the operations of this start, by its own count, ÷ its time since ``init`` ÷ its
GPUs. The cumulative one: all operations that the checkpoint stands for ÷ the GPU-seconds of all jobs that led to it,
each with its own number of GPUs, from its start to its last sign of life; what a killed job did after its last
checkpoint is time spent for nothing, and counts as that.

``ProgressFile`` appends each line exactly once. We can be killed between writing and committing, and others may have
written since: so what lies behind the committed length isn't cut off. A line that is there already isn't written again,
a piece of one is completed, and a line of others that lost its end is ended first.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.progress.precheck import ProgressPrecheck
from trackers.backends.shared.append_file import FileShrunk, unavailable
from trackers.backends.shared.directory import option_directory
from trackers.errors import UNDECODABLE
from trackers.formats.progress_txt import NAME, SAVED, STARTING, ProgressLine, entries
from trackers.metrics import checkpoint_keys
from trackers.records import ArtifactRecord, Finish, Metrics, Number, Record, Start, is_sample
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

TAIL_BYTES = 4096
"""No line is longer."""


class ProgressFile:
    """The file, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._behind: list[tuple[str, int, int]] = []

    def size(self) -> int:
        """Its bytes; 0 if it isn't there."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def read(self, length: int) -> str:
        """Its first ``length`` bytes as text; "" if it isn't there."""
        try:
            with confined.open_file(self.path, root=self.path.parent) as file:
                return file.read(length).decode("utf-8", "replace")
        except OSError:
            return ""

    def read_behind(self, length: int) -> None:
        """Read the complete lines behind ``length``: a process of ours that was killed may have written them."""
        self._behind.clear()
        with contextlib.suppress(OSError), confined.open_file(self.path, root=self.path.parent) as file:
            file.seek(length)
            for line in file:
                if line.endswith(b"\n"):
                    end = length + len(line)
                    self._behind.append((line[:-1].decode("utf-8", "replace"), length, end))
                    length = end

    def offset_of(self, line: str) -> int:
        """Offset of this line in the file, or of the end where it will be appended."""
        return next((begin for text, begin, _ in self._behind if text == line), self.size())

    def append(self, lines: Sequence[str], length: int) -> int:
        """Append the lines that aren't there, all or none. Returns how far the file has been read or written.

        Raises:
            Damaged: the file has become shorter than ``length``.
            Unavailable: it can't be written; nothing was.
        """
        behind = list(self._behind)
        missing = []
        for line in lines:
            index = next((number for number, (text, _, _) in enumerate(behind) if text == line), None)
            if index is None:
                missing.append(line)
            else:
                length = behind[index][2]
                del behind[: index + 1]
        if missing:
            length = self._append(missing, length)
        self._behind = behind
        return length

    def _append(self, lines: Sequence[str], length: int) -> int:
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = confined.open_fd(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, root=self.path.parent)
        except OSError as error:
            raise unavailable("open", self.path, error) from error
        try:
            size = os.fstat(fd).st_size
            if size < length:
                raise FileShrunk(f"{self.path} was cut while it was written")
            begin = max(0, size - TAIL_BYTES)
            os.lseek(fd, begin, os.SEEK_SET)
            torn = os.read(fd, size - begin).rpartition(b"\n")[2]
            if torn:
                data = data[len(torn) :] if data.startswith(torn) else b"\n" + data
            failpoint("progress.write.before")
            self._write(fd, data, size)
            failpoint("progress.write.after")
            return size + len(data)
        except OSError as error:
            raise unavailable("write", self.path, error) from error
        finally:
            os.close(fd)

    @staticmethod
    def _write(fd: int, data: bytes, size: int) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):  # so that the next try begins where this one did
                os.ftruncate(fd, size)
            raise


CHECKPOINTS = ("model", "checkpoint")
"""Types of artifacts that are checkpoints."""
TERA = 1e12
ROUNDING = 0.006
"""Maximum relative rounding error of a number in the file, which has three digits."""


class AttemptEntry(msgspec.Struct):
    """One attempt. time, last: its start and its last sign of life, Unix seconds."""

    attempt: int
    time: float
    last: float
    gpus: int = 1
    job_id: str = ""


class ProgressState(msgspec.Struct):
    """The tracker's state.

    length: how far the file was looked through or written. begin: where this run's first line is; None before it.
    seq: highest record taken. base: operations before this run's first job; None while that isn't known.
    marked: the run records its checkpoints by values. waiting: a checkpoint that only an artifact tells of so far,
    step and time.
    """

    length: int = 0
    begin: int | None = None
    seq: int = 0
    jobs: list[AttemptEntry] = []
    base: float | None = None
    marked: bool = False
    waiting: tuple[int, float] | None = None


class ProgressTracker(ProgressPrecheck):
    """Appends to ``progress.txt`` in ``PROGRESS_DIR``, or in the run's directory."""

    accepts = frozenset({Start, Metrics, ArtifactRecord, Finish})

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Find what was committed; a file that has lost lines of ours gets them again."""
        self._info, self._state = info, state
        self._file = ProgressFile((option_directory(info, "PROGRESS_DIR") or Path(info.directory)) / NAME)
        self._book = msgspec.convert(dict(state).get("book", {}), ProgressState)
        self._earlier: tuple[int, float, list[float]] | None = None
        state["url"] = str(self._file.path)
        answer = None
        if self._file.size() < self._book.length:
            self._book, answer = ProgressState(), Cursor(0)
        self._file.read_behind(self._book.length)
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Append the lines of a batch, all of them or none."""
        book = copy.deepcopy(self._book)
        lines: list[str] = []
        for record in records:
            if record.seq and record.seq <= book.seq:
                continue
            book.seq = max(book.seq, record.seq)
            if not is_sample(record):
                self._fold(record, book, lines)
        self._commit(book, lines)

    def verify(self) -> Verified:
        """Nothing is read back; see :class:`trackers.tracker.Tracker`."""
        return Verified("", unchecked=f"others write to {self._file.path}, too")

    def close(self, status: Status) -> None:
        """Write the last checkpoint, where an artifact alone told of it."""
        if status.name != "running":
            book = copy.deepcopy(self._book)
            lines: list[str] = []
            self._write_waiting(book, lines)
            self._commit(book, lines)

    def _commit(self, book: ProgressState, lines: list[str]) -> None:
        if lines:
            book.length = self._file.append(lines, book.length)
        self._book = book
        self._state["book"] = msgspec.to_builtins(book)

    def _fold(self, record: Record, book: ProgressState, lines: list[str]) -> None:
        if isinstance(record, Start):
            newest = book.jobs[-1].attempt if book.jobs else 0
            if record.id.startswith("rank-") and record.attempt > newest:
                self._write_waiting(book, lines)
                job = AttemptEntry(
                    record.attempt, record.time, record.time, record.world_size, self._job_id(record.attempt)
                )
                book.jobs.append(job)
                self._add(ProgressLine(record.time, job.job_id, job.gpus, STARTING), book, lines)
            return
        if book.waiting is not None and (record.step or 0) > book.waiting[0]:
            self._write_waiting(book, lines)
        if isinstance(record, Metrics) and checkpoint_keys.ITERATION in record.values:
            book.marked, book.waiting = True, None
            self._saved(record.time, record.values, book, lines)
        elif isinstance(record, ArtifactRecord) and record.type in CHECKPOINTS and not book.marked:
            self._write_waiting(book, lines)
            step = record.metadata.get("iter", record.step)
            if isinstance(step, int):
                book.waiting = (step, record.time)
        if book.jobs:
            book.jobs[-1].last = max(book.jobs[-1].last, record.time)
        if isinstance(record, Finish):
            self._write_waiting(book, lines)

    def _write_waiting(self, book: ProgressState, lines: list[str]) -> None:
        """Write the checkpoint of an artifact for which no values came."""
        waiting, book.waiting = book.waiting, None
        if waiting is not None:
            self._saved(waiting[1], {checkpoint_keys.ITERATION: waiting[0]}, book, lines)

    def _saved(self, time: float, values: dict[str, Number], book: ProgressState, lines: list[str]) -> None:
        job = book.jobs[-1] if book.jobs else AttemptEntry(0, self._info.created, time)
        flops, job_flops = values.get(checkpoint_keys.FLOPS), values.get(checkpoint_keys.JOB_FLOPS)
        if book.base is None and flops is not None and job_flops is not None:
            book.base = max(0.0, flops - job_flops)
        entry = ProgressLine(
            time,
            job.job_id,
            job.gpus,
            SAVED,
            iteration=int(values[checkpoint_keys.ITERATION]),
            job_tflops=_tflops(job_flops, (time - job.time) * job.gpus),
            cumulative_tflops=self._cumulative(flops, time, book) if flops is not None else None,
            flops=flops,
            tokens=values.get(checkpoint_keys.TOKENS),
        )
        self._add(entry, book, lines)

    def _cumulative(self, flops: float, time: float, book: ProgressState) -> float | None:
        """Operations that count ÷ GPU-seconds of all jobs; those before this run only where the file tells of them."""
        used = sum((job.last - job.time) * job.gpus for job in book.jobs[:-1])
        used += sum((time - job.time) * job.gpus for job in book.jobs[-1:])
        base = book.base or 0.0
        if base and flops >= base:
            earlier_s, saved = self._before(book.begin or 0)
            if any(abs(earlier - base) <= ROUNDING * base for earlier in saved):
                return _tflops(flops, used + earlier_s)
            return _tflops(flops - base, used)
        return _tflops(flops, used)

    def _before(self, begin: int) -> tuple[float, list[float]]:
        """GPU-seconds of the jobs that wrote to the file before this run, and the operations at their checkpoints."""
        if self._earlier is None or self._earlier[0] != begin:
            used_s, saved = 0.0, []
            begun: ProgressLine | None = None
            last = 0.0
            for entry in entries(self._file.read(begin)):
                if entry.event == STARTING:
                    used_s += (last - begun.time) * begun.gpus if begun else 0.0
                    begun = entry
                last = max(entry.time, begun.time) if begun else entry.time
                if entry.event == SAVED and entry.flops is not None:
                    saved.append(entry.flops)
            used_s += (last - begun.time) * begun.gpus if begun else 0.0
            self._earlier = begin, used_s, saved
        return self._earlier[1:]

    def _add(self, entry: ProgressLine, book: ProgressState, lines: list[str]) -> None:
        line = entry.line()
        if book.begin is None:
            book.begin = self._file.offset_of(line)
        lines.append(line)

    def _job_id(self, attempt: int) -> str:
        """The SLURM job of an attempt; a later one than this process was started for is in the file anew."""
        entry = _attempt(self._info.attempts, attempt)
        if entry is None:
            try:
                stored: dict[str, Any] = msgspec.json.decode(confined.read(self._info.path("run.json")))
                entry = _attempt(stored.get("attempts", []), attempt)
            except (OSError, *UNDECODABLE, AttributeError, TypeError):
                pass
        return str((entry or {}).get("job", os.environ.get("SLURM_JOB_ID", "") if entry else ""))


def _attempt(attempts: Sequence[dict[str, Any]], number: int) -> dict[str, Any] | None:
    return next((entry for entry in attempts if entry.get("number") == number), None)


def _tflops(operations: float | None, gpu_seconds: float) -> float | None:
    return operations / gpu_seconds / TERA if operations is not None and gpu_seconds > 0 else None
