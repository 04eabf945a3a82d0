"""The files between the watch, which finds alerts, and the sender: what is to be sent, and what became of it."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import RunDirectory, read_small
from trackers.records import Alert


class OutboxEntry(msgspec.Struct, omit_defaults=True):
    """One alert to send. id: of the alert, in this run and for ever."""

    id: str
    time: float
    title: str
    text: str = ""
    level: str = "INFO"
    step: int | None = None
    rule: str = ""


def outbox(run: RunDirectory) -> Path:
    """The file that alerts wait in."""
    return run.path / "alerts.jsonl"


def read_outbox(run: RunDirectory) -> tuple[list[OutboxEntry], bool]:
    """Each alert once, and whether the file's last line has ended."""
    content = b""
    with contextlib.suppress(OSError, ValueError):
        content = read_small(outbox(run))
    found: dict[str, OutboxEntry] = {}
    for line in content.split(b"\n"):
        with contextlib.suppress(*UNDECODABLE):
            if line:
                entry = msgspec.json.decode(line, type=OutboxEntry)
                found.setdefault(entry.id, entry)
    return list(found.values()), content.endswith(b"\n") or not content


class Outcome(msgspec.Struct, omit_defaults=True):
    """What became of one alert at one place.

    state: "waiting", "sent", "refused" or "late". began: a try began whose answer isn't known. message: the id of what
    it was last sent in. time: of the last try.
    """

    state: str = "waiting"
    tries: int = 0
    time: float = 0.0
    reason: str = ""
    began: bool = False
    message: str = ""


class Sent(msgspec.Struct, omit_defaults=True):
    """What became of a run's alerts, by place and alert. shown: what the places are called."""

    places: dict[str, dict[str, Outcome]] = {}
    shown: dict[str, str] = {}


def read_sent(run: RunDirectory) -> Sent:
    """As it is stored; nothing where there is none, or it is damaged."""
    with contextlib.suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(read_small(sent_path(run)), type=Sent)
    return Sent()


def sent_path(run: RunDirectory) -> Path:
    """The file that says it."""
    return run.path / "alerts.sent.json"


def digest(*parts: str) -> str:
    """A short name for what these texts say, the same everywhere."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:20]


def alert_id(run_id: str, record: Alert) -> str:
    """The id of an alert that was read from the journal: its key, or what its place there makes."""
    return record.key or digest(run_id, "", record.id)
