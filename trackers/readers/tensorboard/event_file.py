"""Event files record by record: framing, damage, and which steps a later session took back."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.formats.tensorboard_event import unframe

CHUNK_BYTES = 4 << 20
FRAME_BYTES = 16
"""Around each record: its length, and two checksums (tensorflow/core/lib/io/record_writer.h)."""

FRAME_MOST = 256 << 20
"""No record that claims more is read: it would be in memory at once."""

_SESSION_LOG = 0x3A
"""The byte before an Event's ``session_log``: field 7, of bytes (tensorflow/core/util/event.proto)."""
_SESSION_BYTES = 200


def frames(path: Path, note: Callable[[str], None] | None) -> Iterator[bytes]:
    """The records of a file, up to its torn tail or its first damage.

    Args:
        note: called with one line where there is damage; None: checksums aren't looked at.
    """
    waiting, at, wanted = b"", 0, CHUNK_BYTES
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while chunk := file.read(wanted):
            waiting += chunk
            used = 0
            try:
                for frame in unframe(waiting) if note is not None else _unchecked(waiting):
                    used += len(frame) + FRAME_BYTES
                    yield frame
            except ValueError:
                if note is not None:
                    note(f"{path.name} is damaged at byte {at + used:,}; what lies before is read")
                return
            waiting = waiting[used:]
            at += used
            claimed = int.from_bytes(waiting[:8], "little") + FRAME_BYTES if len(waiting) >= 8 else 0
            if claimed > FRAME_MOST:
                if note is not None:
                    note(f"{path.name} is damaged at byte {at:,}: a record claims {claimed:,} bytes")
                return
            if at + claimed > size:  # of a file that is still written, so much is there now
                return
            wanted = max(CHUNK_BYTES, claimed - len(waiting))


def _unchecked(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + FRAME_BYTES <= len(data):
        end = at + FRAME_BYTES + int.from_bytes(data[at : at + 8], "little")
        if end > len(data):
            return
        yield data[at + 12 : end - 4]
        at = end


def events(paths: Sequence[Path], note: Callable[[str], None]) -> Iterator[Any]:
    """The events of a run's files, one after the other.

    Args:
        note: called with one line where a file is damaged.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    for path in paths:
        for frame in frames(path, note):
            try:
                yield Event.FromString(frame)
            except DecodeError:
                note(f"{path.name} is damaged: a record is no event; what lies before is read")
                break


def session_starts(paths: Sequence[Path]) -> tuple[list[int], list[int]]:
    """Where in the order of all events sessions start, and from which step on each takes back what came before."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    numbers: list[int] = []
    steps: list[int] = []
    number = 0
    for path in paths:
        for frame in frames(path, None):
            if len(frame) < _SESSION_BYTES and _SESSION_LOG in frame:
                try:
                    event = Event.FromString(frame)
                except DecodeError:
                    continue
                if event.HasField("session_log") and event.session_log.status == event.session_log.START:
                    numbers.append(number)
                    steps.append(event.step)
            number += 1
    for place in range(len(steps) - 2, -1, -1):  # the lowest step of all later sessions counts
        steps[place] = min(steps[place], steps[place + 1])
    return numbers, steps


def purged(starts: tuple[list[int], list[int]], number: int, step: int) -> bool:
    """Whether a later session took back this step of an event."""
    numbers, steps = starts
    place = bisect.bisect_right(numbers, number)
    return place < len(steps) and step >= steps[place]
