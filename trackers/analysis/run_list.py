"""All runs below a directory, a line each, as ``trackers ls`` shows them: status, steps, last values, trackers.

Lines are kept, so that only what changed is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from trackers import records
from trackers.analysis.alert_list import RunAlert, with_outcomes
from trackers.analysis.run_files import logged_items, summed
from trackers.errors import TrackersError
from trackers.journal.attempts import AttemptHistory
from trackers.journal.fingerprint_cache import FingerprintCache, fingerprint_of
from trackers.journal.integrity import damage_note
from trackers.journal.run_directory import RunDirectory, is_run, run_paths
from trackers.journal.status import is_doubtful, observe
from trackers.journal.stream import tail
from trackers.readers.boundary import boundary
from trackers.records import EDITS, Metrics, Summary, Text, final_name
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.support import confined
from trackers.tracker import RunInfo, Status


class _Rejected(msgspec.Struct):
    record: str
    id: str = ""
    reason: str = ""


class Overview(msgspec.Struct, kw_only=True):
    """status: as observed now. step: the highest. last: last values by name, as far as the end of the streams tells
    (``complete``: all streams were read); steps: of each, None where it has none. results: by ``final/`` name.
    trackers: see ``delivery_report``.
    media, artifacts: see :func:`trackers.analysis.run_files.summed`; empty, as ``alerts``, unless all streams were
    read. note: what a reader of the run must know, "" unless all of it was read.
    """

    info: RunInfo
    status: Status
    step: int | None = None
    time: float = 0.0
    records: int = 0
    last: dict[str, Any] = {}
    steps: dict[str, int | None] = {}
    results: dict[str, Any] = {}
    trackers: dict[str, dict[str, Any]] = {}
    media: list[dict[str, Any]] = []
    artifacts: list[dict[str, Any]] = []
    alerts: list[RunAlert] = []
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON values, NaN and infinities as the journal writes them."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        value["info"]["directory"] = self.info.directory
        return dict(records.name_floats(value))


def glance(run: RunDirectory) -> Overview:
    """Quick: reads the ends of the streams only. Results and values logged long ago may be missing."""
    view = Overview(info=run.read_info(), status=observe(run))
    history = AttemptHistory(run)
    ends = []
    for name in run.stream_names():
        if name.writer in ("rank", "reducer", EDITS):
            ends += history.valid(name, tail(run.stream(name)))
    for record in history.in_order(ends):
        _fold(view, record)
    view.trackers = delivery_report(run, view.info.trackers)
    return view


def overview(run: RunDirectory) -> Overview:
    """Complete: reads every record once. What a newer attempt superseded doesn't count."""
    view = Overview(info=run.read_info(), status=observe(run))
    others: list[records.Record] = []
    raised: list[records.Alert] = []
    edits: list[records.Record] = []
    history = AttemptHistory(run)
    for record in history.records():
        view.records += 1
        if isinstance(record, (records.Info, Summary)):
            edits.append(record)
        else:
            _fold(view, record)
        if isinstance(record, (records.Media, records.ArtifactRecord, Text)):
            others.append(record)
        elif isinstance(record, records.Alert):
            raised.append(record)
    for record in history.in_order(edits):
        _fold(view, record)
    files = summed(logged_items(others, run.path))
    view.media, view.artifacts = files["media"], files["artifacts"]
    view.alerts = with_outcomes(run, view.info.id, raised)
    view.trackers = delivery_report(run, view.info.trackers)
    view.note = damage_note(history.damaged, view.info.directory)
    return view


def rejected(run: RunDirectory, tracker: str) -> list[dict[str, Any]]:
    """The records that a tracker refused: ``id``, ``reason``, ``record``."""
    entries = []
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
        entries.append({"id": entry.id, "reason": entry.reason, "record": record})
    return entries


def _fold(view: Overview, record: records.Record) -> None:
    view.time = max(view.time, record.time)
    match record:
        case Metrics() | Text():
            if record.step is not None and not records.is_sample(record):  # a sample may be at an earlier step
                view.step = record.step if view.step is None else max(view.step, record.step)
            view.last.update(record.values)
            view.steps.update(dict.fromkeys(record.values, record.step))
        case Summary():
            records.take_results(view.results, record, final_name)
        case records.Info():
            for name, value in record.changes().items():
                setattr(view.info, name, value)
        case records.Config():
            records.merge(view.info.config, record.values, record.whole)


LONGEST = 300
"""Maximum length of a name or a text in a listing, in characters."""
KEPT = 24
"""Maximum number of last values, and of results, kept of a run for the next listing."""
_VERSION = "lines 6"


class Standing(NamedTuple):
    """State of one tracker: as in ``delivery_report``. why: the reason why it isn't delivered, or ""."""

    state: str
    waiting_bytes: int = 0
    rejected: int = 0
    why: str = ""


class RunLine(msgspec.Struct, array_like=True, gc=False):
    """One run. path: its directory or source. last, results: some last values and results; more: others are there.
    doubtful: nothing says yet whether it lives, see :func:`trackers.journal.status.is_doubtful`.
    forked_from: ``project/id@step``, or ""."""

    path: str
    project: str
    id: str
    name: str
    created: float
    status: str
    step: int | None
    last: dict[str, Any]
    results: dict[str, Any]
    more: bool
    trackers: dict[str, Standing]
    doubtful: bool = False
    forked_from: str = ""


class Listing(NamedTuple):
    """lines: the oldest run first. problems: why other runs are left out."""

    lines: list[RunLine]
    problems: list[str]


def listing(root: Path, project: str = "", chosen: Iterable[RunDirectory] | None = None) -> Listing:
    """The runs below a directory.

    Args:
        project: only this project's; "": all. chosen: only these; None: all.
    """
    cache = FingerprintCache(f"listing of {root.resolve()}", _VERSION)
    lines, problems = [], []
    fingerprints: dict[str, str] = {}

    def is_one(path: str) -> bool:
        known = cache.fingerprint(path)
        fingerprints[path] = fingerprint_of(path, deliveries=True, known=known) if known else ""
        return bool(fingerprints[path]) or is_run(path)

    paths = run_paths(root, is_one) if chosen is None else list(dict.fromkeys(str(run.path) for run in chosen))
    for path in paths:
        fingerprint = fingerprints.get(path) or fingerprint_of(path, deliveries=True)
        line = cache.get(path, fingerprint, RunLine)
        if not isinstance(line, RunLine):
            try:
                with boundary(path):
                    view = glance(RunDirectory(path))
                    line = run_line(path, view)
            except TrackersError as error:
                if str(error) not in problems:  # a package that is missing concerns many
                    problems.append(str(error))
                continue
            # Only a change of files can change the line: nobody trains and nobody delivers.
            if view.status.name != "running" and not any(entry["held_by"] for entry in view.trackers.values()):
                cache.put(path, fingerprint, line)
        if project in ("", line.project):
            lines.append(line)
    if chosen is None:
        cache.keep_only(set(paths))
    cache.save()
    return Listing(sorted(lines, key=lambda line: line.created), problems)


def run_line(path: str, view: Overview) -> RunLine:
    """The line of a run.

    Args:
        path: its directory, or the source that it was read from.
    """
    return RunLine(
        path=path,
        project=view.info.project,
        id=view.info.id,
        name=view.info.name,
        created=view.info.created,
        status=view.status.name,
        step=view.step,
        last=_truncated(view.last),
        results=_truncated(view.results),
        more=len(view.last) > KEPT or len(view.results) > KEPT,
        trackers={
            name: Standing(entry["state"], entry["waiting_bytes"], entry["rejected"], entry["error"])
            for name, entry in view.trackers.items()
        },
        doubtful=is_doubtful(view.status),
        forked_from=view.info.forked_from[:LONGEST],
    )


def as_tree(lines: Iterable[RunLine]) -> list[RunLine]:
    """Lines with each fork below its parent, as far as that is among them, and names that show it: ``└ lower-lr``."""
    known = {f"{line.project}/{line.id}": line for line in lines}
    below: dict[str, list[RunLine]] = {}
    for line in known.values():
        parent = line.forked_from.rpartition("@")[0]
        below.setdefault(parent if parent in known else "", []).append(line)
    drawn: list[RunLine] = []

    def draw(parent: str, depth: int) -> None:
        for line in below.pop(parent, []):
            step = f" @{line.forked_from.rpartition('@')[2]}" if depth else ""
            sign = f"{'  ' * (depth - 1)}└ " if depth else ""
            drawn.append(msgspec.structs.replace(line, name=f"{sign}{line.name}{step}"))
            draw(f"{line.project}/{line.id}", depth + 1)

    draw("", 0)
    for parent in list(below):  # of each other's, which only files that were changed by hand can say
        draw(parent, 1)
    return drawn


def forks_of(runs: Sequence[RunDirectory]) -> list[str]:
    """A line for each fork of runs that go; the runs may be gone already."""
    going = {f"{unquote(run.path.parent.name)}/{run.path.name}" for run in runs}
    lines = []
    for root in dict.fromkeys(run.path.parent.parent for run in runs):
        for line in listing(root).lines:
            own = f"{line.project}/{line.id}"
            if line.forked_from.rpartition("@")[0] in going and own not in going:
                lines.append(f"{own} was forked from {line.forked_from}: it keeps the values that it has of it")
    return lines


def _truncated(values: dict[str, Any]) -> dict[str, Any]:
    """The first of a run's values: names and texts that are long are cut."""
    first = list(values.items())[:KEPT]
    return {name[:LONGEST]: value[:LONGEST] if isinstance(value, str) else value for name, value in first}
