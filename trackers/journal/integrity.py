"""The checksums of all streams of a run: written while it runs, compared when somebody asks."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

import msgspec

from trackers import records
from trackers.journal.checksums import POLL_S, SUFFIX, TURN_BYTES, ChecksumReader, ChecksumWriter, skipped
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import HOLE_BYTES, StreamReader
from trackers.records import EDITS
from trackers.support.interruption import suppress

FINAL_S = 2.0
"""Maximum time for what is covered when training ends, in seconds."""


class JournalChecksums:
    """Writes the checksums of a run's streams, but those of edits, which are written when nobody looks.

    One process at a time should do so: what a second one writes is ignored.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._writers: dict[str, ChecksumWriter] = {}
        self._poll_at = 0.0

    def poll(self) -> None:
        """Cover what is older than a second; asks at most once a second."""
        now = time.monotonic()
        if now >= self._poll_at:
            self._poll_at = now + POLL_S
            self._cover(final=False, until=now + POLL_S / 4)

    def end(self, within_s: float = FINAL_S) -> None:
        """Training has ended: cover all that there is, as far as the time suffices."""
        self._cover(final=True, until=time.monotonic() + within_s)

    def _cover(self, *, final: bool, until: float) -> None:
        for name in self._run.stream_names():
            if name.writer != EDITS:
                writer = self._writers.setdefault(str(name), ChecksumWriter(self._run.stream(name)))
                while writer.poll(final=final, most_bytes=TURN_BYTES) and time.monotonic() < until:
                    pass


class StreamCheck(msgspec.Struct):
    """What a stream holds. damaged: where damaged lines begin. unchecked: bytes without checksums. gone: bytes at
    the end that have some and aren't there."""

    name: str
    records: int
    damaged: list[int]
    size: int
    unchecked: int
    gone: int


def check(run: RunDirectory, go_on: Callable[[], bool] = lambda: True) -> list[StreamCheck]:
    """Compare a run's streams with their checksums, and look for lines that are no records.

    Args:
        go_on: asked between blocks; False ends the check.
    """
    checked = []
    streams = {str(name): run.stream(name) for name in run.stream_names()}  # of deleted ones the checksums are left
    sums = {path.stem: path.with_suffix(".jsonl") for path in sorted(run.streams.glob(f"*{SUFFIX}"))}
    for name, path in {**streams, **{name: path for name, path in sums.items() if name not in streams}}.items():
        covered, reader = ChecksumReader(path).covered(), StreamReader(path)
        size = reader.size()  # after them: it may be growing
        found = StreamCheck(name, 0, [], size, max(0, size - covered), max(0, covered - size))
        with suppress(OSError, records.CorruptLine):
            while go_on() and (batch := reader.read(50_000)):
                found.records += len(batch)
        rest = reader.patience.waiting or size - reader.offset >= HOLE_BYTES
        found.damaged = sorted({*reader.damage, *([reader.offset] if rest else [])})
        checked.append(found)
    return checked


def damage_note(lines: int, run: str) -> str:
    """What a reader of a run's directory must know of damaged lines in it; "" if there are none."""
    if not lines:
        return ""
    return f"{skipped(lines)}; `trackers sync {shlex.quote(run)} --verify` names {'it' if lines == 1 else 'them'}"


def named(checked: list[StreamCheck]) -> str:
    """What was found, on one line."""
    lines = sum(stream.records for stream in checked)
    damaged = [(stream.name, offset) for stream in checked for offset in stream.damaged]
    text = f"journal: {lines:,} records"
    if damaged:
        where = ", ".join(f"{name}.jsonl at byte {offset:,}" for name, offset in damaged[:3])
        count = "1 damaged line is" if len(damaged) == 1 else f"{len(damaged):,} damaged lines are"
        text += f", {count} left out ({where}{', …' if len(damaged) > 3 else ''})"
    else:
        text += ", none damaged"
    text += "".join(f"; {one.gone:,} bytes are gone from the end of {one.name}.jsonl" for one in checked if one.gone)
    unchecked, size = (sum(getattr(stream, field) for stream in checked) for field in ("unchecked", "size"))
    if unchecked:
        text += f"; {unchecked:,} of {size:,} bytes have no checksums"
    return text
