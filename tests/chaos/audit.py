"""The audit: what a store holds against what training saw ``log`` return from, by the store's own readers.

It knows the calls of a round (:mod:`tests.chaos.script`) and when each began and returned; it reads no journal, no
cursor and no state of ours.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import stores
from tests.chaos.script import CONFIG_EVERY, START_CONFIG, SUMMARY_EVERY, Call, call
from trackers.readers.journal import JournalReader
from trackers.records import ArtifactRecord, Media, flatten, plain_name
from trackers.testing import Stored
from trackers.tracker import RunInfo

TOLERANCE_S = 0.05
"""How far a stored time may lie outside of its call: the wall clock is slewed, the run's clock is monotonic."""

COUNTS = ("lost", "doubled", "reordered", "wrong_value", "wrong_time", "wrong_status")

STATUSES: dict[str, Mapping[str, str]] = {
    "wandb": {"crashed": "failed"},
    "mlflow": {"finished": "FINISHED", "failed": "FAILED", "crashed": "KILLED", "preempted": "KILLED"},
}
"""Our word to the store's, where it has another."""


@dataclasses.dataclass
class Said:
    """What training wrote down about itself.

    begun, returned: number of a call to its time. configs, summaries: numbers of calls whose change returned.
    words: "ready", "finishing", … in order.
    """

    begun: dict[int, float] = dataclasses.field(default_factory=dict)
    returned: dict[int, float] = dataclasses.field(default_factory=dict)
    configs: list[int] = dataclasses.field(default_factory=list)
    summaries: list[int] = dataclasses.field(default_factory=list)
    files: list[int] = dataclasses.field(default_factory=list)
    words: list[str] = dataclasses.field(default_factory=list)


def read_said(path: Path) -> Said:
    """Training's own file; a torn last line doesn't count."""
    said = Said()
    text = path.read_text() if path.exists() else ""
    for line in text.split("\n")[:-1]:
        word, *rest = line.split()
        if word in ("b", "a"):
            (said.begun if word == "b" else said.returned)[int(rest[0])] = float(rest[1])
        elif word in ("config", "summary"):
            (said.configs if word == "config" else said.summaries).append(int(rest[0]))
        elif word == "files":
            said.files.append(int(rest[0]))
        else:
            said.words.append(word)
    return said


def audit_files(run: Path, said: Said) -> list[str]:
    """What is wrong with the pictures and files of a run, read as anybody reads it."""
    pictures: list[int] = []
    files: list[int] = []
    reader = JournalReader()
    (source,) = reader.runs(str(run))
    for record in reader.read(source):
        if isinstance(record, Media) and record.name == "picture":
            pixels = np.load(run / record.items[0].file)
            pictures.append(int(pixels[0, 0, 0]) * 256 + int(pixels[0, 0, 1]))
        elif isinstance(record, ArtifactRecord) and record.name == "file":
            files.append(int((run / record.files[0].file).read_bytes()))
            if record.metadata.get("number") != files[-1]:
                return [f"file {record.metadata.get('number')} has the content of {files[-1]}"]
    wrong = []
    for what, found in (("pictures", pictures), ("files", files)):
        if found != said.files:
            wrong.append(f"{what} {found} instead of {said.files}")
    return wrong


@dataclasses.dataclass
class Findings:
    """What is wrong in one store. The counts are of calls (wrong_value: also of settings), each once.

    held: calls whose record is there. lines: the first differences in words.
    """

    tracker: str
    held: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    wrong_value: int = 0
    wrong_time: int = 0
    wrong_status: int = 0
    lines: list[str] = dataclasses.field(default_factory=list)

    def total(self) -> int:
        """Everything that is wrong."""
        return sum(getattr(self, name) for name in COUNTS)


def audit(tracker: str, stored: Stored, seed: str, said: Said, statuses: Iterable[str]) -> Findings:
    """Compare a store with what training said.

    Args:
        statuses: how the run may have ended, in our words.
    """
    found = Findings(tracker)
    sets: dict[str, set[int]] = {name: set() for name in COUNTS}
    calls = {n: call(seed, n) for n in sorted(said.begun)}
    rows = _rows(calls) if tracker == "wandb" else Rows()
    for name in ("n", "x", "y", "perf/tokens per sec"):
        keys = {
            _key(made.step, _as_stored(tracker, made.metrics[name])): n
            for n, made in calls.items()
            if name in made.metrics
        }
        points = stored.metrics.get(name, [])
        _series(name, keys, [(_key(p.step, p.value), p.time) for p in points], said, sets, found, rows)
        if name == "n":
            found.held = len({_key(p.step, p.value) for p in points} & keys.keys())
    if stored.texts is not None:
        keys = {(made.step, made.text): n for n, made in calls.items() if made.text}
        texts: list[tuple[Any, float | None]] = [(text, None) for text in stored.texts.get("note", [])]
        _series("note", keys, texts, said, sets, found, rows)
    for name, numbers in sets.items():
        setattr(found, name, len(numbers))
    _settings(stored, said, found)
    words = {STATUSES.get(tracker, {}).get(word, word) for word in statuses}
    if stored.status not in words:
        found.wrong_status += 1
        found.lines.append(f"status {stored.status!r} instead of {' or '.join(sorted(words))}")
    return found


@dataclasses.dataclass
class Rows:
    """What a store that keeps a row a step may do with calls of one step.

    late: calls whose step an earlier call had, or that lies behind it: their rows wait for room among the steps, so
    that their place among the others isn't said, but their order is. last: of a call, the last one of its step: the
    row has its time.
    """

    late: frozenset[int] = frozenset()
    last: Mapping[int, int] = dataclasses.field(default_factory=dict)


def _rows(calls: Mapping[int, Call]) -> Rows:
    highest, late, last = -1, set(), {}
    for n, made in calls.items():
        if made.step <= highest:
            late.add(n)
        highest = max(highest, made.step)
        last[made.step] = n
    return Rows(frozenset(late), {n: last[made.step] for n, made in calls.items()})


def _series(
    name: str,
    keys: Mapping[Any, int],
    points: Sequence[tuple[Any, float | None]],
    said: Said,
    sets: dict[str, set[int]],
    found: Findings,
    rows: Rows,
) -> None:
    """One name's points against the calls that logged it."""
    seen: set[int] = set()
    last, last_late, last_time = -1, -1, None
    for key, time in points:
        n = keys.get(key)
        if n is None:
            sets["wrong_value"].add(-1 - len(sets["wrong_value"]))
            found.lines.append(f"{name}: nobody logged {key!r}")
            continue
        if n in seen:
            sets["doubled"].add(n)
            found.lines.append(f"{name}: call {n} is there again")
            continue
        seen.add(n)
        # MLflow keeps milliseconds: what it holds within one has no order.
        late = n in rows.late
        before = last_late if late else last
        if n < before and not (found.tracker == "mlflow" and time == last_time):
            sets["reordered"].add(n)
            found.lines.append(f"{name}: call {n} lies behind call {before}")
        if late:
            last_late = n
        else:
            last, last_time = n, time
        low, high = said.begun[n] - TOLERANCE_S, said.returned.get(rows.last.get(n, n), math.inf) + TOLERANCE_S
        if time is not None and not low <= time <= high:
            sets["wrong_time"].add(n)
            found.lines.append(f"{name}: call {n} of {said.begun[n]:.3f} has time {time:.3f}")
    for n in sorted(set(keys.values()) & said.returned.keys() - seen):
        sets["lost"].add(n)
        found.lines.append(f"{name}: call {n} is lost")


def _settings(stored: Stored, said: Said, found: Findings) -> None:
    """Configuration and results: the last change that returned, or a later one that was begun."""
    if stored.config is not None and said.begun:
        flat = dict(flatten(stored.config))
        wanted: dict[str, set[Any]] = {key: {value} for key, value in flatten(START_CONFIG)}
        wanted["phase/changed"] = _allowed(said, said.configs, CONFIG_EVERY)
        _compare("config", wanted, flat, found)
    if stored.summary is not None:
        summary = {plain_name(name): value for name, value in stored.summary.items()}
        _compare("result", {"reached": _allowed(said, said.summaries, SUMMARY_EVERY)}, summary, found)


def _allowed(said: Said, returned: Sequence[int], every: int) -> set[Any]:
    last = max(returned, default=-1)
    later = {n for n in said.begun if n > last and n % every == every - 1}
    return later | ({last} if returned else {None})


def _compare(what: str, wanted: Mapping[str, set[Any]], flat: Mapping[str, Any], found: Findings) -> None:
    for name, values in wanted.items():
        if flat.get(name) not in values:
            found.wrong_value += 1
            found.lines.append(f"{what} {name!r} is {flat.get(name)!r} instead of {sorted(values, key=str)}")


def _key(step: int | None, value: Any) -> tuple[int | None, str]:
    return step, repr(float(value))


def _as_stored(tracker: str, value: float) -> float:
    if tracker == "mlflow" and math.isinf(value):
        return math.copysign(sys.float_info.max, value)
    return value


def read(
    tracker: str,
    info: RunInfo,
    *,
    mlflow_uri: str = "",
    wandb_runs: Mapping[str, Any] | None = None,
    deleted: bool = False,
    attempts: int = 1,
) -> Stored:
    """What a tracker's store holds of a run.

    Args:
        wandb_runs: what W&B's stand-in holds, by run id, as its ``/_runs`` shows it.
        deleted: some of its rows were deleted and brought back. In trackio's table they lie behind the others then;
            they are read in the order in which trackio reads them, by time.
        attempts: of the run: MLflow keeps a result of each that ended.
    """
    if tracker == "wandb":
        return _read_wandb((wandb_runs or {})[info.id])
    if tracker == "mlflow":
        return stores.read_mlflow(info, uri=mlflow_uri, endings=attempts)
    if tracker == "trackio":
        return stores.read_trackio(info, by_time=deleted)
    readers: dict[str, Callable[[RunInfo], Stored]] = {
        "tensorboard": stores.read_tensorboard,
        "json": stores.read_json,
        "csv": stores.read_csv,
    }
    return readers[tracker](info)


def _read_wandb(run: Mapping[str, Any]) -> Stored:
    stored = Stored(status=run["state"], config=run["values"], summary=run["summary"])
    stored.metrics, stored.texts = stores.wandb_rows(run["history"])
    return stored
