"""Requests to a run that trains: to stop, to save a checkpoint.

``requests.jsonl`` in a run's directory has them, a line each, whoever asks: a command, the page, a rule of alerts, a
tracker's server. Training looks for that file once a second while it logs, and reads it when it has changed. What it
looks at and what it has taken it says in ``control.<attempt>.json``. Ranks beside the main one read the same file in
the launch's folder, where the main rank says at which of their looks all of them stop.

No file is mapped into training's memory: a disk that is full or gone would kill training with SIGBUS.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE
from trackers.support import confined, script
from trackers.support.redaction import mask_source
from trackers.support.terminal import one_line

FILE = "requests.jsonl"
AGREED = "control.json"
"""File in a launch's folder for what its ranks agree on."""
REASON_CHARACTERS = 500
WHO_CHARACTERS = 100
BY_CHARACTERS = 300
ID_CHARACTERS = 100
_LATEST = 253402300800.0
"""Unix seconds of the year 10000."""
MOST_BYTES = 1 << 20


class Request(msgspec.Struct, omit_defaults=True, frozen=True):
    """What somebody asks of a run.

    stop, checkpoint: what is asked. reason: one line, or "". who: a user's name. by: by what it was asked: "trackers
    stop", "the page", "W&B", "alert RULE". attempt: whose it is. time: Unix seconds. id: the same in every copy.
    """

    id: str
    time: float
    stop: bool = False
    checkpoint: bool = False
    reason: str = ""
    who: str = ""
    by: str = ""
    attempt: int = 0

    def __str__(self) -> str:
        """``by alice (trackers stop): loss diverges``."""
        by = f"by {self.who or self.by}" + (f" ({self.by})" if self.who and self.by else "")
        return by + (f": {self.reason}" if self.reason else "")


class ControlState(msgspec.Struct, omit_defaults=True):
    """What training says about requests.

    stop, checkpoint: it looks for requests to stop, to save. heard: ids of requests that it has read. stopping: the id
    of the one for which it stops. saved: ids of those for which it was told to save. agreed: at which look all ranks
    stop, and at which they save; 0: not known.
    """

    stop: bool = False
    checkpoint: bool = False
    heard: list[str] = []
    stopping: str = ""
    saved: list[str] = []
    agreed: tuple[int, int] = (0, 0)


def new_request(
    attempt: int, *, stop: bool, checkpoint: bool, reason: str = "", by: str = "", who: str | None = None
) -> Request:
    """A request of now to an attempt of a run. who: default the user of this process."""
    name = script.user() if who is None else who
    return Request(
        id=os.urandom(8).hex(), time=time.time(), stop=stop, checkpoint=checkpoint, who=one_line(name, WHO_CHARACTERS),
        reason=one_line(mask_source(reason), REASON_CHARACTERS), by=one_line(mask_source(by), BY_CHARACTERS),
        attempt=attempt,
    )  # fmt: skip


def ask(directory: Path, asked: Request) -> None:
    """Leave a request in a run's directory; one that is there already isn't left twice.

    Raises:
        OSError: it can't be written.
    """
    path = directory / FILE
    content = b""
    with contextlib.suppress(FileNotFoundError):
        content = confined.read(path, most=MOST_BYTES)
    if any(known.id == asked.id for known in parse(content)):
        return
    whole = b"\n" if content and not content.endswith(b"\n") else b""
    fd = confined.open_fd(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, whole + msgspec.json.encode(asked) + b"\n")
    finally:
        os.close(fd)


def parse(content: bytes) -> list[Request]:
    """The requests in a file's content, the oldest first; lines that can't be read are none.

    Whoever can write to the run's directory has written them: their texts are one line each, without a terminal's
    escapes, and a time that no calendar knows is no request's.
    """
    requests = []
    for line in content.split(b"\n"):
        with contextlib.suppress(*UNDECODABLE):
            asked = msgspec.json.decode(line, type=Request) if line else None
            if asked is not None and 0 <= asked.time < _LATEST and len(asked.id) <= ID_CHARACTERS:
                requests.append(msgspec.structs.replace(
                    asked, reason=one_line(asked.reason, REASON_CHARACTERS), who=one_line(asked.who, WHO_CHARACTERS),
                    by=one_line(asked.by, BY_CHARACTERS), id=one_line(asked.id, ID_CHARACTERS),
                ))  # fmt: skip
    return requests


def read(directory: Path, attempt: int | None = None) -> list[Request]:
    """The requests to a run, the oldest first; of one attempt where it is given.

    Raises:
        OSError: the file can't be read; FileNotFoundError where nobody has asked for anything.
    """
    requests = parse(confined.read(directory / FILE, most=MOST_BYTES))
    return [asked for asked in requests if attempt is None or asked.attempt == attempt]


def control_path(directory: Path, attempt: int) -> Path:
    """The file in which an attempt's training says what it looks at."""
    return directory / f"control.{attempt}.json"


def read_control(path: Path) -> ControlState:
    """What a control file says; nothing where there is none, or it can't be read."""
    with contextlib.suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(confined.read(path, most=MOST_BYTES), type=ControlState)
    return ControlState()


def write_control(path: Path, state: ControlState) -> None:
    """Replace a control file.

    Raises:
        OSError: it can't be written.
    """
    confined.write_whole(path, msgspec.json.encode(state), root=path.parent)
