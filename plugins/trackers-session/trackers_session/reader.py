"""Session logs' ``*_summary.json``: a multi-GPU session's metrics, GPU snapshots and timed communication.

The loss and learning rate of the main process are ``train_loss`` and ``learning_rate`` (or what ``session.names`` says
that they were logged as), beside them what its ``metrics`` hold; other processes' come below ``rank_N/``. Snapshots
have W&B's names, without a step (``system.gpu.0.gpu``); communication is ``communication/<operation>/{calls,mb,ms}``,
megabytes and milliseconds of one call. Files whose fields are missing, as other programs wrote them, give what they
have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trackers.errors import NotFound
from trackers.formats import text_file
from trackers.readers import helpers
from trackers.readers.boundary import bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.records import Config, Finish, Metrics, Number, Record, Summary, unnamed_float

END = "_summary.json"
COMMUNICATION = "communication/"
_SETTINGS = ("mode", "gpu_count", "model_name", "dataset_name", "total_batch_size")
_PARTS = ("session", "training_metrics", "gpu_snapshots", "communication_logs")
_GPU = {"utilization": ("gpu", 1.0), "memory_percent": ("memoryAllocated", 1.0), "temperature": ("temp", 1.0),
        "memory_used_mb": ("memoryAllocatedBytes", 1e6), "utilization_peak": ("gpu.max", 1.0),
        "power_w": ("powerWatts", 1.0)}  # fmt: skip
_HOST = {"cpu_percent": "system.cpu", "memory_percent": "system.memory_percent"}
_COMMUNICATION = {"data_size_mb": "mb", "duration_ms": "ms"}


@bounded
class SessionReader(Reader):
    """Reads the summaries of sessions."""

    scheme = "session"

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for all sessions below it."""
        paths = helpers.find_paths(self.scheme, where, lambda directory: sorted(directory.rglob(f"*{END}")))
        return helpers.newest_first(paths, _source_run)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return helpers.version([helpers.path(run)])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        content = read_summary(helpers.path(run))
        session = content["session"]
        settings = {name: session[name] for name in _SETTINGS if session.get(name) is not None}
        if session.get("log_format"):
            settings["log"] = {"format": session["log_format"]}
        if settings:
            yield Config(time=run.created, values=settings)
        rows = [
            *helpers.starts(session.get("starts"), session.get("start_world_sizes"), session.get("first_attempt")),
            *_training(content, run.created),
        ]
        rows += [*_snapshots(content), *_communication(content, run.created)]
        yield from sorted(rows, key=lambda record: record.time)
        ended = helpers.unix(session.get("end_time"))
        parts = (session.get("results"), session.get("measured"))
        results = {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
        if results:
            time = max((record.time for record in rows), default=run.created) if ended is None else ended
            yield Summary(time=time, values={name: unnamed_float(value) for name, value in results.items()})
        if ended is not None:
            code, reason = session.get("exit_code"), session.get("reason")
            yield Finish(time=ended, status=_status(session), exit_code=code if isinstance(code, int) else None,
                         reason=str(reason or ""))  # fmt: skip

    def section(self, runs: Sequence[SourceRun]) -> tuple[str, list[str]] | None:
        """See :class:`trackers.readers.reader.Reader`: one GPU against several, and what they exchanged."""
        from trackers_session import sessions

        found = []
        for run in runs:
            with suppress(NotFound):  # gone since it was read
                found.append(sessions.read(helpers.path(run)))
        return ("Sessions", sessions.both(found)) if found else None


def read_summary(path: Path) -> dict[str, Any]:
    """A session's summary with all its parts there: ``session`` a mapping, the others lists of mappings.

    Raises:
        NotFound: it has gone, isn't whole JSON, or isn't a session's summary.
    """
    try:
        content = json.loads(text_file.read_text(path))
    except FileNotFoundError:
        raise helpers.gone_error("session", path) from None
    except (ValueError, OSError) as error:
        raise NotFound(f"session: {path} isn't whole JSON: {error}") from None
    if not isinstance(content, dict) or not any(part in content for part in _PARTS):
        raise NotFound(f"session: {path} is no session's summary: it has none of {', '.join(_PARTS)}")
    summary: dict[str, Any] = {"session": content["session"] if isinstance(content.get("session"), dict) else {}}
    for part in _PARTS[1:]:
        entries = content.get(part)
        summary[part] = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return summary


def session_id(path: Path, content: Mapping[str, Any]) -> str:
    """A session's id: its own word, else its file's name."""
    return str(content["session"].get("id") or path.name.removesuffix(END))


def _status(session: Mapping[str, Any]) -> str:
    """How the session ended; the format's original writer recorded an end only for sessions that finished."""
    return str(session.get("status") or ("finished" if session.get("end_time") else ""))


def _training(content: Mapping[str, Any], began: float) -> Iterator[Record]:
    ranks = [rank for entry in content["training_metrics"] if isinstance(rank := entry.get("process_rank"), int)]
    main = min(ranks, default=0)
    names = content["session"].get("names")
    names = names if isinstance(names, dict) else {}
    loss, rate_name = str(names.get("loss", "train_loss")), str(names.get("learning_rate", "learning_rate"))
    for entry in content["training_metrics"]:
        rank = entry.get("process_rank")
        more = entry.get("metrics")
        row = {loss: entry.get("loss"), rate_name: entry.get("learning_rate")}
        values = {**_numbers(more if isinstance(more, dict) else {}), **_numbers(row)}
        if rank not in (None, main):
            values = {f"rank_{rank}/{name}": value for name, value in values.items()}
        step = entry.get("step")
        if values:
            time = helpers.unix(entry.get("timestamp"))
            yield Metrics(step=int(step) if helpers.is_number(step) else None, time=began if time is None else time,
                          values=values)  # fmt: skip


def _snapshots(content: Mapping[str, Any]) -> Iterator[Record]:
    for entry in content["gpu_snapshots"]:
        values: dict[str, Number] = {}
        for index, gpu in enumerate(entry.get("gpus") or []):
            if isinstance(gpu, dict):
                for field, value in _numbers(gpu).items():
                    if field in _GPU:
                        name, factor = _GPU[field]
                        values[f"system.gpu.{gpu.get('id', index)}.{name}"] = value * factor
        host = entry.get("system")
        if isinstance(host, dict):
            values.update({_HOST[field]: value for field, value in _numbers(host).items() if field in _HOST})
        time = helpers.unix(entry.get("timestamp"))
        if values and time is not None:
            yield Metrics(time=time, values=values)


def _communication(content: Mapping[str, Any], began: float) -> Iterator[Record]:
    for entry in content["communication_logs"]:
        name = f"{COMMUNICATION}{entry.get('operation') or 'unknown'}/"
        calls = entry.get("count")
        values: dict[str, Number] = {f"{name}calls": calls if isinstance(calls, int) and calls > 0 else 1}
        values.update({name + _COMMUNICATION[k]: v for k, v in _numbers(entry).items() if k in _COMMUNICATION})
        time = helpers.unix(entry.get("timestamp"))
        yield Metrics(time=began if time is None else time, values=values)


def _numbers(entry: Mapping[str, Any]) -> dict[str, Number]:
    read = {name: unnamed_float(value) for name, value in entry.items()}
    return {name: value for name, value in read.items() if helpers.is_number(value)}


def _source_run(path: Path) -> SourceRun:
    content = read_summary(path)
    session = content["session"]
    began = helpers.unix(session.get("start_time"))
    name = session_id(path, content)
    return SourceRun(
        source=f"session:{path}",
        id=name,
        name=name,
        created=path.stat().st_mtime if began is None else began,
        status=_status(session),
        directory=str(path.parent),
    )
