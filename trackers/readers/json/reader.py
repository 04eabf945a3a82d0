"""JSON files: training JSON logs, from this package or another writer, benchmark results, and JSON lines
(:mod:`trackers.readers.json.lines`).

Our own logs are read list by list, line by line, merged by time, so that a long one needs no more memory than a
short one; their ``names`` give back what each value was logged as. A log without times gets them from its start and
the iterations' durations. -100 as ``mfu`` means that there was none.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import re
from collections.abc import Generator, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from trackers.errors import NotFound
from trackers.formats import text_file
from trackers.formats.ending import given_back
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, bounded
from trackers.readers.helpers import gone_error
from trackers.readers.json import lines as json_lines
from trackers.readers.reader import Reader, SourceRun
from trackers.records import (
    MAX_STEP,
    SYSTEM_PREFIX,
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    unnamed_float,
)
from trackers.support import confined

_LIST = re.compile(rb'  "(training_iterations|eval_steps|checkpoints|samples|text|media|artifacts|alerts)": \[\r?\n')
_END = b"  ]"
_LOCAL_TIMES = ("start_time", "end_time", "timestamp")
_KEYS = re.compile(rb'"(training_iterations|run_name|performance_metrics|training_config)"\s*:')


class Log:
    """A parsed file. head: its members; of lists that were left on disk, an empty one stands there."""

    def __init__(self, path: Path, head: dict[str, Any], spans: dict[str, tuple[int, int]]) -> None:
        self.path, self._spans, self._zone = path, spans, _zone(head)
        self.head = self._with_zone(head)

    def _with_zone(self, item: dict[str, Any]) -> dict[str, Any]:
        if not self._zone:
            return item
        return {**item, **{name: item[name] + self._zone for name in _LOCAL_TIMES if isinstance(item.get(name), str)}}

    def items(self, name: str) -> Iterator[dict[str, Any]]:
        """The items of a list; none if there is no such list.

        Raises:
            NotFound: the file isn't any more as it was.
        """
        if name not in self._spans:
            yield from (self._with_zone(item) for item in self.head.get(name) or [] if isinstance(item, dict))
            return
        begin, end = self._spans[name]
        try:
            with self.path.open("rb") as lines:
                lines.seek(begin)
                for line in lines:
                    begin += len(line)
                    yield self._with_zone(json_lines.decode(line))
                    if begin >= end:
                        return
        except (OSError, ValueError) as error:
            raise NotFound(f"json: {self.path} was replaced while it was read: {error}") from None


def read_log(path: Path) -> Log:
    """Parse a file, its long lists left on disk where each item has a line of its own.

    Raises:
        NotFound: it has gone, or isn't a whole JSON object.
    """
    try:
        try:
            head, spans = _split(path) if text_file.is_plain(path) else (b"", {})
            value = json.loads(head)
            for begin, _ in spans.values():
                with path.open("rb") as file:
                    file.seek(begin)
                    json_lines.decode(file.readline())
        except ValueError:  # written by others, laid out in another way
            value, spans = json.loads(text_file.read_text(path)), {}
    except FileNotFoundError:
        raise gone_error("json", path) from None
    except (ValueError, OSError) as error:
        raise NotFound(f"json: {path} isn't whole JSON: {error}") from None
    if not isinstance(value, dict):
        raise NotFound(f"json: {path} holds no JSON object")
    return Log(path, value, spans)


def _zone(head: Mapping[str, Any]) -> str:
    """What a log's local times lack: their offset from UTC, as "+02:00", where this machine's isn't the same."""
    began, offset = str(head.get("start_time")), str(head.get("utc_offset"))
    with contextlib.suppress(ValueError, OverflowError, OSError):
        there, here = datetime.fromisoformat(began + offset).utcoffset(), datetime.fromisoformat(began).astimezone()
        return "" if there in (None, here.utcoffset()) else offset
    return ""


def _split(path: Path) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The file without the items of its lists, and where those lie."""
    head: list[bytes] = []
    spans: dict[str, tuple[int, int]] = {}
    name, begin, at = "", 0, 0
    with path.open("rb") as lines:
        for line in lines:
            if name:
                if line.startswith(_END):
                    spans[name] = (begin, at)
                    head.append(line)
                    name = ""
            else:
                head.append(line)
                match = _LIST.fullmatch(line)
                if match is not None:
                    name, begin = match[1].decode(), at + len(line)
            at += len(line)
    return b"".join(head), spans


TOTALS = frozenset({"total_iterations", "final_iter", "final_train_loss", "avg_time_ms", "avg_mfu",
                    "total_eval_steps", "total_checkpoints", "status", "exit_code", "reason"})  # fmt: skip
"""Fields of this package's summary that aren't results of the run, where ``results`` doesn't name them;
``best_val_loss`` may be either."""

NO_MFU = -100.0
_MEDIA_FIELDS = ("format", "file", "data", "caption", "width", "height", "sample_rate", "fps", "meta")


@bounded
class JsonReader(Reader):
    """Reads training logs and benchmark results."""

    scheme = "json"

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for the logs and results in it."""
        paths = helpers.find_paths(
            self.scheme, where, lambda directory: [path for path in sorted(directory.iterdir()) if _is_result(path)]
        )
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return helpers.version([helpers.path(run)])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        if run.native.get("lines"):
            return json_lines.read(helpers.path(run), run)
        log = read_log(helpers.path(run))
        return _benchmark(log) if "performance_metrics" in log.head else _training(log, run)


def _training(log: Log, run: SourceRun) -> Iterator[Record]:
    head = log.head
    began = run.created
    names: Mapping[str, str] = head.get("names") or {}
    ours = "run_id" in head
    if head.get("config"):
        yield Config(time=began, values=head["config"])
    starts = yield from _about(dict(head.get("metadata") or {}), began, ours)
    tolerant = TolerantReader(run)
    lists = [
        ((0, start) for start in starts),
        _iterations(log, began, names, ours),
        *(_samples(log, began, names, machine) for machine in (True, False)),
        _evals(log, began, names, ours),
    ]
    for kind in ("text", "media", "artifacts", "checkpoints", "alerts"):
        lists.append((0, record) for record in _notes(log, kind, began, run, tolerant))
    for _, record in heapq.merge(*lists, key=_place):
        yield record
    tolerant.add_note()
    yield from _ending(head, began, ours)


def _about(metadata: dict[str, Any], began: float, ours: bool) -> Generator[Record, None, list[Record]]:
    """What the log says of the machine and the ranks. Returns the starts that it knows of."""
    if metadata:
        yield Environment(time=began, values=metadata.get("environment", {}) if ours else metadata)
    ranks = metadata.get("world_size")
    times = metadata.get("starts") if ours else None
    if type(ranks) is int and ranks > 0 and not times:
        yield Start(time=began, rank=0, world_size=ranks)
    worlds = metadata.get("start_world_sizes") or [ranks] * (len(times) if isinstance(times, list) else 0)
    return list(helpers.starts(times, worlds, metadata.get("first_attempt")))


def _ending(head: Mapping[str, Any], began: float, ours: bool) -> Iterator[Record]:
    """The results, and how the run ended, where the log says it."""
    summary = {name: unnamed_float(value) for name, value in (head.get("summary") or {}).items()}
    ended = helpers.unix_or(head.get("end_time"), began)
    if ours:
        reckoned = TOTALS.difference(map(str, stated) if isinstance(stated := head.get("results"), list) else ())
        own = {name: value for name, value in summary.items() if name not in reckoned and value is not None}
        results = {given_back(name): value for name, value in own.items()}
    else:
        results = summary
    if results:
        yield Summary(time=ended, values=results)
    status = summary.get("status") if ours else "finished" if head.get("end_time") else ""
    if isinstance(status, str) and status not in ("", "running"):
        reason, code = summary.get("reason", ""), summary.get("exit_code")
        yield Finish(time=ended, status=status, exit_code=code if ours else None, reason=str(reason) if ours else "")


def _iterations(log: Log, began: float, names: Mapping[str, str], ours: bool) -> Iterator[tuple[int, Record]]:
    clock, dropped = began, _dropped(log, names)
    for row in log.items("training_iterations"):
        duration = unnamed_float(row.get("time_ms"))
        if isinstance(duration, (int, float)) and duration > 0:
            clock += duration / 1000
        time = helpers.unix(row.get("time"))
        # Our log has 0 where there was no MFU in this row; another key of the row may still stand for one.
        none = type(row.get("mfu")) is int and row["mfu"] == 0 if ours else row.get("mfu") == NO_MFU
        values = _values(row, dropped | {"mfu"} if none else dropped, _logged_names(row, names))
        if values:
            at = clock if time is None else time
            yield _order(row, "time"), Metrics(step=row.get("iter"), time=at, values=values)


def _samples(log: Log, began: float, names: Mapping[str, str], machine: bool) -> Iterator[tuple[int, Record]]:
    """The machine's samples, or training's rows without a loss, which come into the list later: each by time."""
    dropped = _dropped(log, names)
    for row in log.items("samples"):
        time = helpers.unix(row.get("time"))
        values = _values(row, dropped, _logged_names(row, names))
        if any(name.startswith((SYSTEM_PREFIX, "gpu/")) for name in values) == machine:
            at = began if time is None else time
            yield _order(row, "time"), Metrics(step=row.get("iter"), time=at, values=values)


def _order(row: Mapping[str, Any], key: str) -> int:
    """The place of a row among those of its step and time, where the log says it; "" was before all others."""
    logged = row.get("logged")
    order = logged.get(key, "0") if isinstance(logged, dict) else "0"
    return int(order) if isinstance(order, str) and order.isdecimal() else -1


def _logged_names(row: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, str]:
    """What a row's keys were logged as: another name than usual, or "" for a time that the log reckoned."""
    own = row.get("logged")
    return {**names, **{key: str(name) for key, name in own.items()}} if isinstance(own, dict) else names


def _dropped(log: Log, names: Mapping[str, str]) -> set[str]:
    """What of a row is no value: its step and time, and a duration that the log itself reckoned."""
    reckoned = "names" in log.head and "time_ms" not in names
    return {"iter", "time", *(("time_ms",) if reckoned else ())}


def _evals(log: Log, began: float, names: Mapping[str, str], ours: bool) -> Iterator[tuple[int, Record]]:
    # In our logs training's loss and learning rate stand in an evaluation for the reader's sake: iterations have them.
    dropped = {"iter", "timestamp", *(("train_loss", "lr") if ours else ())}
    for row in log.items("eval_steps"):
        logged = row.get("logged")  # but those that an evaluation's own record had, and its iteration hasn't
        own = {key: str(name) for key, name in logged.items()} if ours and isinstance(logged, dict) else {}
        values = _values(row, dropped | own.keys(), names)
        values.update(_values({key: row.get(key) for key in own}, set(), own))
        if values:
            time = helpers.unix_or(row.get("timestamp"), began)
            yield _order(row, "timestamp"), Metrics(step=row.get("iter"), time=time, values=values)


def _values(row: Mapping[str, Any], dropped: set[str], names: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, value in row.items():
        value = unnamed_float(value)
        logged = names.get(name, name)
        if name not in dropped and logged and helpers.is_number(value):
            values[logged] = value
    return values


def _notes(log: Log, kind: str, began: float, run: SourceRun, tolerant: TolerantReader) -> Iterator[Record]:
    for item in log.items(kind):
        yield from tolerant.read(_note(item, kind, began, run))


def _is_runs(run: SourceRun, file: str) -> bool:
    """Whether a log names a file of its run: they lie in ``media/`` beside it, whatever else is there."""
    path = Path(run.directory, file)
    return confined.is_inside(file) and file.startswith("media/") and confined.is_file(path, root=Path(run.directory))


def _note(item: Mapping[str, Any], kind: str, began: float, run: SourceRun) -> Iterator[Record]:
    at: dict[str, Any] = {"step": item.get("iter"), "time": helpers.unix_or(item.get("timestamp"), began)}
    if kind == "text":
        yield Text(values={item["name"]: item["text"]}, **at)
    elif kind == "alerts":
        yield Alert(title=item["title"], text=item.get("text", ""), level=item.get("level", "INFO"), **at)
    elif kind == "media":
        file = item.get("file", "")
        if not file or _is_runs(run, file):
            fields = {name: item[name] for name in _MEDIA_FIELDS if name in item}
            yield Media(name=item["name"], type=item["type"], items=[MediaFile(**fields)], **at)
    elif kind == "artifacts":
        files = [ArtifactFile(**file) for file in item.get("files", [])]
        files = [file for file in files if not file.file or _is_runs(run, file.file)]
        metadata = item.get("metadata", {})
        yield ArtifactRecord(name=item["name"], type=item["type"], files=files, metadata=metadata, **at)
    else:
        path = str(item.get("path", ""))
        known = {"val_loss": item["val_loss"]} if item.get("val_loss") is not None else {}
        name = item.get("name") or f"checkpoint-{item.get('iter')}"
        file = [ArtifactFile(path=Path(path).name or "checkpoint", uri=path)] if path else []
        yield ArtifactRecord(name=name, type="model", files=file, metadata=known, **at)


def _benchmark(log: Log) -> Iterator[Record]:
    """A benchmark result: its series at their ``steps``, or 1, 2, … without; all else as configuration and results."""
    head = log.head
    end = helpers.unix(head.get("timestamp")) or log.path.stat().st_mtime
    settings: dict[str, Any] = {
        name: head[name] for name in ("platform", "source", "gpu_info", "training_config") if name in head
    }
    yield Config(time=end, values=settings)
    series = {name: value for name, value in head.items() if isinstance(value, list) and value and _numeric(value)}
    names = {name: name.removeprefix("raw_") for name in series} | {"raw_step_times": "step_time_seconds"}
    times = series.get("raw_step_times", [])
    durations = [time if isinstance(time, (int, float)) and 0 < time < math.inf else 0.0 for time in times]
    began = end - sum(durations)
    steps = _steps(series)
    for index in range(max(map(len, series.values()), default=0)):
        began += durations[index] if index < len(durations) else 0.0
        row = {names[name]: unnamed_float(value[index]) for name, value in series.items() if index < len(value)}
        values = {name: value for name, value in row.items() if value is not None}
        if values:
            yield Metrics(step=steps[index] if steps else index + 1, time=began, values=values)
    results: dict[str, Any] = {}
    for name, value in head.items():
        if name.endswith("_metrics") and isinstance(value, dict):
            results.update(
                {key: unnamed_float(entry) for key, entry in value.items() if not isinstance(entry, (dict, list))}
            )
    yield Summary(time=end, values=results)
    yield Finish(time=end, status="finished")


def _steps(series: dict[str, list[Any]]) -> list[int]:
    """The steps of the other series, taken out of them where they are steps and one for each index; else none."""
    steps = series.get("steps", [])
    whole = all(type(step) is int and 0 <= step <= MAX_STEP for step in steps)
    if not whole or len(steps) != max((len(value) for name, value in series.items() if name != "steps"), default=0):
        return []
    return series.pop("steps", [])


def _numeric(values: list[Any]) -> bool:
    """Numbers, under their names where JSON has none for them, and null where a step has no value."""
    numbers = [unnamed_float(value) for value in values if value is not None]
    return bool(numbers) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers)


def _place(placed: tuple[int, Record]) -> tuple[float, int, int]:
    """By time, as precisely as evaluations have it; of one time by steps, as they are counted."""
    order, record = placed
    return round(record.time, 6), record.step if isinstance(record.step, int) else -1, order


def _is_result(path: Path) -> bool:
    """Whether a file is a training log or a benchmark result, by its beginning."""
    name = text_file.bare_name(path.name)
    if not path.is_file() or not (name.endswith(".json") or name in json_lines.NAMES):
        return False
    with contextlib.suppress(text_file.PackedError):
        if name in json_lines.NAMES and json_lines.is_lines(path):
            return True
    with text_file.open_bytes(path) as file, contextlib.suppress(text_file.PackedError):
        return _KEYS.search(file.read(1 << 16)) is not None
    return False


def _source_run(path: Path) -> SourceRun:
    if json_lines.is_lines(path):
        return json_lines.source_run(path)
    head = read_log(path).head
    if not ("training_iterations" in head or "performance_metrics" in head):
        raise NotFound(
            f"json: {path} is neither a training log (training_iterations) nor a benchmark result "
            "(performance_metrics), and has no JSON object on each line"
        )
    created = helpers.unix(head.get("start_time") or head.get("timestamp"))
    return SourceRun(
        source=f"json:{path}",
        id=str(head.get("run_id") or helpers.identity(path)),
        name=str(head.get("run_name") or path.stem),
        project=str(head.get("project") or ""),
        group=head.get("group"),
        tags=[str(tag) for tag in head.get("tags") or []],
        notes=head.get("notes"),
        created=path.stat().st_mtime if created is None else created,
        status=str((head.get("summary") or {}).get("status", "")),
        directory=str(path.parent),
    )
