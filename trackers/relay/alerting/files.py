"""Files shared by the watch, which finds alerts, and the sender: the outbox, and the outcome of each alert."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import RunDirectory, read_small
from trackers.records import Alert


class OutboxEntry(msgspec.Struct, omit_defaults=True):
    """One alert to send. id: of the alert, the same in every process."""

    id: str
    time: float
    title: str
    text: str = ""
    level: str = "INFO"
    step: int | None = None
    rule: str = ""


def outbox(run: RunDirectory) -> Path:
    """The file of alerts to send."""
    return run.path / "alerts.jsonl"


def read_outbox(run: RunDirectory) -> tuple[list[OutboxEntry], bool]:
    """Each alert once, and whether the file's last line has ended."""
    content = b""
    with contextlib.suppress(OSError, ValueError):
        content = read_small(outbox(run))
    entries: dict[str, OutboxEntry] = {}
    for line in content.split(b"\n"):
        with contextlib.suppress(*UNDECODABLE):
            if line:
                entry = msgspec.json.decode(line, type=OutboxEntry)
                entries.setdefault(entry.id, entry)
    return list(entries.values()), content.endswith(b"\n") or not content


class AlertOutcome(msgspec.Struct, omit_defaults=True):
    """Outcome of one alert at one destination.

    state: "waiting", "sent", "refused" or "late". began: a try began whose answer isn't known. message: id of the last
    message with the alert. time: of the last try.
    """

    state: str = "waiting"
    tries: int = 0
    time: float = 0.0
    reason: str = ""
    began: bool = False
    message: str = ""


class SentAlerts(msgspec.Struct, omit_defaults=True):
    """Outcomes of a run's alerts, by destination and alert. shown: display names of the destinations."""

    places: dict[str, dict[str, AlertOutcome]] = {}
    shown: dict[str, str] = {}


def read_sent(run: RunDirectory) -> SentAlerts:
    """The stored outcomes; none if the file is missing or damaged."""
    with contextlib.suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(read_small(sent_path(run)), type=SentAlerts)
    return SentAlerts()


def sent_path(run: RunDirectory) -> Path:
    """The file of outcomes."""
    return run.path / "alerts.sent.json"


def digest(*parts: str) -> str:
    """A short hash of texts, the same on every machine."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:20]


def alert_id(run_id: str, record: Alert) -> str:
    """Id of an alert read from the journal: its key, or a hash of its record's id."""
    return record.key or digest(run_id, "", record.id)
