"""A run at a glance, from its files: status, steps, last values, what each tracker has."""

from __future__ import annotations

from typing import Any

import msgspec

from trackers import records
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.journal.stream import tail
from trackers.records import Metrics, Summary, Text, final_name
from trackers.relay.report import report
from trackers.support import confined
from trackers.tracker import RunInfo, Status


class _Rejected(msgspec.Struct):
    record: str
    id: str = ""
    reason: str = ""


class Overview(msgspec.Struct, kw_only=True):
    """status: as observed now. step: of the last metrics. last: last values by name, as far as the end of the
    streams tells (``complete``: all streams were read). results: by ``final/`` name. trackers: see ``report``.
    """

    info: RunInfo
    status: Status
    step: int | None = None
    time: float = 0.0
    records: int = 0
    last: dict[str, Any] = {}
    results: dict[str, Any] = {}
    trackers: dict[str, dict[str, Any]] = {}

    def to_dict(self) -> dict[str, Any]:
        """JSON values, NaN and infinities as the journal writes them."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        value["info"]["directory"] = self.info.directory
        return dict(records.name_floats(value))


def glance(run: RunDirectory) -> Overview:
    """Quick: reads the ends of the streams only. Results and values logged long ago may be missing."""
    view = Overview(info=run.read_info(), status=observe(run))
    claims = AttemptHistory(run)
    for name in run.stream_names():
        if name.writer in ("rank", "reducer"):
            for record in claims.kept(name, tail(run.stream(name))):
                _take(view, record)
    view.trackers = report(run, view.info.trackers)
    return view


def overview(run: RunDirectory) -> Overview:
    """Complete: reads every record once. What a newer attempt superseded doesn't count."""
    view = Overview(info=run.read_info(), status=observe(run))
    for record in AttemptHistory(run).records():
        view.records += 1
        _take(view, record)
    view.trackers = report(run, view.info.trackers)
    return view


def rejected(run: RunDirectory, tracker: str) -> list[dict[str, Any]]:
    """The records that a tracker refused: ``id``, ``reason``, ``record``."""
    found = []
    try:
        lines = confined.read(run.delivery / f"{tracker}.rejected.jsonl").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=_Rejected)
            record = msgspec.json.decode(entry.record)
            records.check_depth(record)
        except (ValueError, RecursionError):
            continue
        found.append({"id": entry.id, "reason": entry.reason, "record": record})
    return found


def _take(view: Overview, record: records.Record) -> None:
    view.time = max(view.time, record.time)
    if isinstance(record, (Metrics, Text)):
        if record.step is not None and not records.is_sample(record):  # a sample may be at an earlier step
            view.step = record.step
        view.last.update(record.values)
    elif isinstance(record, Summary):
        view.results.update({final_name(name): value for name, value in record.values.items()})
    elif isinstance(record, records.Info):
        view.info.name = record.name or view.info.name
        view.info.tags = record.tags if record.tags is not None else view.info.tags
        view.info.notes = record.notes or view.info.notes
    elif isinstance(record, records.Config):
        records.merge(view.info.config, record.values)
