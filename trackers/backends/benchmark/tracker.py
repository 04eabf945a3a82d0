"""Benchmark result of a run: ``benchmark_{platform}_{timestamp}.json`` in ``BENCHMARK_DIR``, however the run ends.

What a result needs of each record is kept in an append-only file in the run's directory (``benchmark/``); the result is
made of it when the run ends, by the code that ``trackers bench-export`` uses. A run has one file: a later attempt, or
delivering the run again, replaces it.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.backends.benchmark.precheck import BenchmarkPrecheck
from trackers.backends.shared.append_file import (
    DIGESTS,
    FileShrunk,
    OwnedFile,
    digests,
    path_key,
    unavailable,
    unseen,
    verified,
)
from trackers.backends.shared.directory import option_directory
from trackers.benchmark import result as file
from trackers.benchmark.result import result
from trackers.benchmark.steps import StepCollector, needed
from trackers.records import ALL_KINDS, Record, decode_block, encode, escaped
from trackers.support import confined
from trackers.support.confined import local
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

RESULTS = "benchmark_results"
"""Default of BENCHMARK_DIR, relative to where training was started."""
BLOCK_BYTES = 4 << 20


class BenchmarkTracker(BenchmarkPrecheck):
    """Writes the run's result when it ends: finished, failed, killed or preempted. A run without a step has none."""

    accepts = ALL_KINDS

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Cut what was kept back to what was committed; what isn't there any more comes anew from the journal."""
        self._info, self._state = info, state
        self._directory = directory(info)
        self._digests = digests(state)
        self._kept = OwnedFile(info.path("benchmark", "records.jsonl"), Path(info.directory), self._digests)
        answer = None
        try:
            self._kept.open(int(state.get("length", 0)))
        except FileShrunk:
            self._kept.open()
            self._state["seq"], answer = 0, Cursor(0)
        state["length"] = self._kept.length
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Keep what the result needs, of all of the batch or of nothing."""
        fresh = unseen(records, int(self._state.get("seq", 0)))
        lines = [encode(part) for record in fresh if (part := needed(record)) is not None]
        if lines:
            self._kept.append(b"".join(lines))
        if fresh:
            self._state["seq"] = max(record.seq for record in fresh)
            self._state["length"] = self._kept.length
            self._state[DIGESTS] = dict(self._digests)

    def verify(self) -> Verified:
        """Read the result, and what it was made of, back; see :class:`trackers.tracker.Tracker`."""
        files = [(self._kept.path, Path(self._info.directory))]
        url = Path(str(self._state.get("url") or ""))
        if url.parent == self._directory and file.is_of(url, {"run_id": self._info.id, "project": self._info.project}):
            files.append((url, self._directory))
        return verified(files, self._digests)

    def close(self, status: Status) -> None:
        """Write the result, if the run has ended."""
        if status.name != "running":
            steps = StepCollector().gather(self._records())
            if steps.steps:
                info = self._info
                source = {"file": escaped(str(Path(info.directory).resolve())), "format": "run", "run_id": info.id,
                          "run_name": info.name, "project": info.project, "status": status.name}  # fmt: skip
                self._save(result(steps, source=source, word="run"))
        self._kept.close()

    def _save(self, document: dict[str, Any]) -> None:
        known = self._state.get("url")
        try:
            self._state["url"] = str(file.save(document, self._directory, Path(str(known)) if known else None))
        except OSError as error:
            raise unavailable("write", self._directory, error) from error
        written = Path(str(self._state["url"]))
        content = confined.read(written, root=written.parent)
        self._digests[path_key(written)] = (len(content), zlib.crc32(content))
        self._state[DIGESTS] = dict(self._digests)

    def _records(self) -> Iterator[Record]:
        with (
            contextlib.suppress(FileNotFoundError),
            confined.open_file(self._kept.path, root=Path(self._info.directory)) as kept,
        ):
            while lines := kept.readlines(BLOCK_BYTES):
                yield from decode_block(b"".join(lines))


def directory(info: RunInfo) -> Path:
    """Where the run's result goes: on a machine that lacks the training's directory, into the run's own."""
    chosen = option_directory(info, "BENCHMARK_DIR")
    home = local(info.cwd)
    chosen = Path(home or ".", RESULTS).absolute() if chosen is None else chosen
    away = bool(home) and chosen.is_relative_to(home) and not Path(home).is_dir()
    return info.path(RESULTS) if away else chosen
