"""A run's alerts, and what became of each at each destination."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory
from trackers.records import Alert, Record
from trackers.relay.alerting.files import alert_id, read_sent


class RunAlert(msgspec.Struct, kw_only=True):
    """One alert. rule: "" where a script raised it. sent: by destination as it is shown, what became of it in words."""

    time: float
    step: int | None
    level: str
    title: str
    text: str
    rule: str = ""
    sent: dict[str, str] = {}

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


def alerts_of(run: RunDirectory) -> list[RunAlert]:
    """The alerts of a run that count, by time.

    Raises:
        NotFound: there is no run.
    """
    run_id = run.read_info().id
    return with_outcomes(run, run_id, [record for record in AttemptHistory(run).records() if isinstance(record, Alert)])


def of_records(records: Iterable[Record]) -> list[RunAlert]:
    """The alerts among records, by time; what became of them isn't known."""
    alerts = sorted((record for record in records if isinstance(record, Alert)), key=lambda record: record.time)
    return [
        RunAlert(
            time=alert.time, step=alert.step, level=alert.level, title=alert.title, text=alert.text, rule=alert.rule
        )
        for alert in alerts
    ]


def with_outcomes(run: RunDirectory, run_id: str, alerts: list[Alert]) -> list[RunAlert]:
    """The same alerts, by time, each with what became of it."""
    sent = read_sent(run)
    listed = []
    for record in sorted(alerts, key=lambda record: record.time):
        key = alert_id(run_id, record)
        outcomes = {
            sent.shown.get(destination, destination): by_id[key]
            for destination, by_id in sent.places.items()
            if key in by_id
        }
        words = {
            destination: outcome.state + (f": {outcome.reason}" if outcome.reason and outcome.state != "sent" else "")
            for destination, outcome in outcomes.items()
        }
        listed.append(RunAlert(
            time=record.time, step=record.step, level=record.level, title=record.title, text=record.text,
            rule=record.rule, sent=words,
        ))  # fmt: skip
    return listed
