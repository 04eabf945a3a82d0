"""MLflow: a run in any tracking store, by default in ``mlflow.db`` where training runs.

What a user finds there: metrics with their steps and times; the configuration as params (``model/depth``) and whole
as ``config.json``; ``tags``, ``group`` and the note; results once, as metrics ``final/<name>`` (text as tags) and in
``summary.json``; files as `mlflow_files` lists them. Params can't change in MLflow: the first value stays, a later
one is the tag ``config_changed.<name>``. Status: finished is FINISHED, failed FAILED, crashed and preempted KILLED;
our own word is the tag ``trackers.status``.

Limits: values are doubles, ±inf becomes ±1.797e308, one time is one millisecond, and two records of one name with
the same step, time and value are one. Records without a step are at step 0, but for samples of the hardware: those
are MLflow's system metrics (``system/gpu_0_utilization_percentage``), at training's newest step.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from trackers.backends.mlflow.artifacts import ArtifactStore
from trackers.backends.mlflow.client import (
    PointComparison,
    Requests,
    StoredPoint,
    find_or_create,
    find_run,
    milliseconds,
    points,
)
from trackers.backends.mlflow.groups import summarize
from trackers.backends.mlflow.lineage import Lineage
from trackers.backends.mlflow.model_registry import ModelRegistry
from trackers.backends.mlflow.precheck import MlflowPrecheck, folder, local_folder, show, tracking_uri, without_password
from trackers.backends.mlflow.store import connect, has_point, identity, preload, translated
from trackers.backends.mlflow.traces import Traces
from trackers.backends.shared.append_file import FileShrunk
from trackers.backends.shared.console_log import NAME, ConsoleLog
from trackers.errors import DeliveryError, Rejected, Unavailable
from trackers.formats import vendor_system_names
from trackers.formats.mlflow_names import map_name, reach, refusal
from trackers.metrics.unasked import is_unasked
from trackers.records import (
    SUMMARY_PREFIX,
    USED,
    Alert,
    ArtifactRecord,
    Config,
    Console,
    Environment,
    Info,
    Media,
    Metrics,
    Record,
    Span,
    Start,
    Summary,
    Text,
    final_name,
    flatten,
    merge,
    name_floats,
)
from trackers.support.failpoints import failpoint
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

PARAM_LENGTH = 6000
TAG_LENGTH = 8000
"""mlflow/utils/validation.py MAX_PARAM_VAL_LENGTH, MAX_TAG_VAL_LENGTH; MLflow cuts longer ones without a word."""

REMOVED = "(removed)"
"""What the tag of a param says that isn't in the configuration any more: MLflow lets nobody remove a param."""

REPLACED = 5000
"""Maximum number of points that somebody changed of which tags say so."""
NEWEST = 50
"""Metrics whose newest point is remembered, to see whether the store still has it."""

OWN_FILES = {"config.json": "config", "environment.json": "environment"}
"""The run's own files that are there as soon as they have content, and where the state keeps that."""

STATUS = {"finished": "FINISHED", "failed": "FAILED", "crashed": "KILLED", "preempted": "KILLED",
          "stopped": "KILLED"}  # fmt: skip

OWN_TAGS = frozenset({"tags", "group", "job_type"})
"""Keys of tags that hold something else than a label."""

ENDING_TAGS = frozenset({"trackers.status", "trackers.exit_code", "trackers.reason"})
"""Tags that say how an attempt ended: not true of the next one."""

_logger = logging.getLogger("trackers.mlflow")


class MlflowTracker(MlflowPrecheck):
    """Delivers a run to MLflow in requests up to its limits; MLflow ignores what it has (key, step, time, value)."""

    machine = "apart"
    accepts = frozenset(
        {Alert, ArtifactRecord, Config, Console, Environment, Info, Media, Metrics, Span, Start, Summary, Text}
    )
    single_axis = True
    compares = True
    comparison: PointComparison | None = None
    deadline_s = 1800.0
    """Long, for checkpoints are uploaded whole; a server that hangs is noticed by the request's own time limit."""

    @staticmethod
    def preload() -> None:
        """Import what deliveries need (:class:`trackers.tracker.Tracker`)."""
        preload()

    @staticmethod
    def remove(info: RunInfo, state: State) -> str:
        """Delete the run in MLflow, which keeps it: see :class:`trackers.tracker.Tracker`."""
        uri = tracking_uri(info)
        known_run = find_run(info, state)
        if known_run is None:
            return f"{without_password(uri)} doesn't have it"
        client, run = known_run
        with translated(uri):
            if run.info.lifecycle_stage == "active":
                client.delete_run(run.info.run_id)
        return "deleted in MLflow, which keeps it until `mlflow gc`"

    @staticmethod
    def restore(info: RunInfo, state: State) -> str:
        """Undo :meth:`remove`."""
        known_run = find_run(info, state)
        if known_run is None:
            return "MLflow doesn't have it any more: `trackers sync` delivers it again"
        client, run = known_run
        with translated(tracking_uri(info)):
            if run.info.lifecycle_stage != "active":
                client.restore_run(run.info.run_id)
        return "restored in MLflow"

    def __init__(self) -> None:
        self._info = RunInfo(id="", name="", project="")
        self._state = State()
        self._uri = ""
        self._client: Any = None
        self._run_id = ""
        self._samples: dict[str, str] = {}
        self._requests: Requests
        self._files: ArtifactStore
        self._traces: Traces
        self._lineage: Lineage
        self._labels: list[str] | None = None
        """Tags of the run that weren't looked at yet."""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        self._info, self._state, self._uri = info, state, tracking_uri(info)
        self._console = ConsoleLog(info.path("mlflow", NAME), info.path(), state)
        self._client = connect(info)
        self._seen = identity(self._uri)
        with translated(self._uri):
            before = state.get("native_id")
            run = find_or_create(self._client, self._uri, info, before)
            self._run_id = run.info.run_id
            lost = before is not None and (before != self._run_id or self._lacks(run))
            if lost:
                # The store has forgotten the run, or an older one was put back: it gets the whole history again.
                for name in list(state):
                    del state[name]
                state["again"] = True
            state["native_id"] = self._run_id
            state["url"] = show(self._uri, run.info.experiment_id, self._run_id)
            if not lost:  # a lost run stays lost until its new history is committed
                state.save()
            for name in ("names", "config", "final", "environment", "over"):
                state.setdefault(name, {})
            state.setdefault("waiting", [])
            if run.info.status != "RUNNING":
                self._client.update_run(self._run_id, status="RUNNING")
                for tag in ENDING_TAGS & run.data.tags.keys():
                    self._client.delete_tag(self._run_id, tag)
            reach(self._client, self._uri, run)
            refused = refusal(self._uri, run.info.artifact_uri, self._run_id, here=folder(info))
            self._files = ArtifactStore(self._client, self._run_id, info, state, refused)
            self._requests = Requests(self._client, self._run_id, self._mapped, run.data.params)
            self._requests.comparison = self.comparison
            self._traces = Traces(self._client, run.info.experiment_id, self._run_id)
            registers = info.option("MLFLOW_REGISTER_MODELS", False)
            registry = ModelRegistry(self._client, self._run_id, info) if registers else None
            self._lineage = Lineage(self._client, run, self._files, info.project, registry)
            self._labels = info.tags
        return Cursor(0) if lost else None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        self._check_store()
        self._requests.clear()  # a batch that failed has left it, and comes again
        self._traces.clear()
        self._lineage.clear()
        if self._labels is not None:
            self._label(self._labels)
        with translated(self._uri):
            for record in records:
                if isinstance(record, Metrics | Text | Media) and record.trained is not None:
                    names = [record.name] if isinstance(record, Media) else record.values
                    self._state["over"].update(dict.fromkeys(names, True))
                match record:
                    case Metrics():
                        self._metrics(record)
                    case Text():
                        for name, text in record.values.items():
                            self._files.text(record, name, text)
                    case Alert():
                        text = f"[{record.level}] {record.title}: {record.text}".rstrip(": ")
                        self._files.text(record, "alerts", text)
                    case Media():
                        self._files.media(record)
                        self._traces.add_samples(self._info, record)
                    case ArtifactRecord():
                        folder = self._files.artifact(record)
                        if record.type == "model":
                            self._lineage.model(record, folder)
                        elif record.type == "dataset":
                            self._lineage.dataset(record, folder)
                    case Start():
                        self._rewind(record)
                    case Console():
                        self._console.add(record)
                    case Span():
                        self._traces.add(record)
                    case _:
                        self._describe(record)
            self._requests.send()
            self._files.send_texts()
            self._traces.send()
            self._lineage.send()
        self._state["newest"] = dict(list(self._requests.newest.items())[-NEWEST:])
        self._send_waiting()
        self._send_console()

    def tick(self) -> None:
        """See that the database is still there; send what was printed when it is due."""
        self._check_store()
        self._send_console()

    def verify(self) -> Verified:
        """As :class:`trackers.tracker.Tracker`; everything is sent again: MLflow ignores what it has."""
        with translated(self._uri):
            comparison = PointComparison(points(self._client, self._run_id))
        for name in [name for name in self._state if name not in ("native_id", "url")]:
            del self._state[name]
        return Verified(f"{len(comparison):,} values", cursor=Cursor(0), comparison=comparison)

    def close(self, status: Status) -> None:
        self._check_store()
        with translated(self._uri):
            if self._labels is not None:
                self._label(self._labels)
            if status.name != "running":
                run = self._client.get_run(self._run_id)
                if self._lacks(run) and not self._state.get("again"):
                    raise FileShrunk(f"{without_password(self._uri)} lacks points of the run: they are delivered again")
                self._results(run)
                self._requests.tag("trackers.status", status.name)
                if status.exit_code is not None:
                    self._requests.tag("trackers.exit_code", str(status.exit_code))
                if status.reason:
                    self._requests.tag("trackers.reason", status.reason[:TAG_LENGTH])
            self._requests.send()
            if self.comparison is not None:
                self.comparison.settle(points(self._client, self._run_id))
                self._replaced(self.comparison.replaced)
            self._files.send_texts()
            self._send_waiting(last=True)
            self._send_console(last=True)
            self._console.close()
            if status.name != "running":
                end = status.time or time.time()
                failpoint("mlflow.end.before")
                self._client.set_terminated(self._run_id, STATUS[status.name], milliseconds(end))
                self._tell_group()

    def _tell_group(self) -> None:
        """Tell the group's run, where there is one, what its runs have come to."""
        try:
            with translated(self._uri):
                summarize(self._client, self._client.get_run(self._run_id))
        except Unavailable:
            raise
        except DeliveryError as error:
            _logger.warning("MLflow's run of the group %r wasn't told of this one: %s", self._info.group, error)

    def _check_store(self) -> None:
        """Check that the database's file is the one that was opened, and that it has what was sent last.

        Raises:
            FileShrunk: it was deleted, replaced or overwritten; the next ``open`` delivers what it lacks.
        """
        newest = self._state.get("newest", {})
        last = next(reversed(newest), None)
        has_last = last is None or has_point(self._uri, self._run_id, last, newest[last])
        if has_last and last is not None:
            self._state.pop("again", None)
        has_last = has_last or "again" in self._state  # it was sent twice: a store that drops it isn't asked for ever
        if identity(self._uri) != self._seen or not has_last:
            raise FileShrunk(f"{without_password(self._uri)} was deleted or replaced: the run is delivered again")

    def _lacks(self, run: Any) -> bool:
        """Whether the store is behind what was sent to it: the newest points, and the run's files on this machine."""
        newest_there = {metric.key: [metric.step, metric.timestamp] for metric in run.data._metric_objs}
        newest = self._state.get("newest", {})
        if any(newest_there.get(key, [-math.inf]) < point for key, point in newest.items()):
            return True
        folder = local_folder(run.info.artifact_uri)
        files = [name for name, content in OWN_FILES.items() if self._state.get(content)]
        waiting = self._state.get("waiting", [])
        return folder is not None and any(name not in waiting and not (folder / name).exists() for name in files)

    def _rewind(self, record: Start) -> None:
        """MLflow forgets no point of a metric. Say which are superseded: those above the step and before the time."""
        if record.from_step is None:
            return
        rewound: dict[str, Any] = {"from_step": record.from_step, "timestamp": milliseconds(record.time)}
        tags, axis = [rewound], record.from_step if record.axis is None else record.axis
        since = None if record.since is None else milliseconds(record.since)
        for name in sorted(self._state["over"], key=lambda name: record.axes.get(name, axis)):
            last = max(record.axes.get(name, axis), record.from_step)  # it may have had no axis at first
            own = {**rewound, "from_step": last, "since": since, "metrics": [self._mapped(name)]}
            joined = {**own, "metrics": [*tags[-1].get("metrics", []), *own["metrics"]]}
            if len(tags) > 1 and tags[-1]["from_step"] == own["from_step"] and len(json.dumps(joined)) <= TAG_LENGTH:
                tags[-1] = joined
            else:
                tags.append(own)
        for number, tag in enumerate(tags):
            self._requests.tag(f"trackers.rewind.{record.attempt}" + (f".{number}" if number else ""), json.dumps(tag))
        said = "MLflow can't forget points: what was logged above step %d stays beside what comes now; "
        said += "tags trackers.rewind.%d… say which were superseded"
        _logger.warning(said, record.from_step, record.attempt)

    def _replaced(self, points: Sequence[StoredPoint]) -> None:
        """Say which points somebody changed: the right ones stand beside them."""
        if not points:
            return
        texts: list[list[Any]] = [[]]
        for point in points[:REPLACED]:
            texts[-1].append([point.key, point.step, point.time, name_floats(point.value)])
            if len(json.dumps(texts[-1])) > TAG_LENGTH // 2:
                texts.append([texts[-1].pop()])
        for text in texts:
            content = json.dumps(text)
            self._requests.tag(f"trackers.replaced.{zlib.crc32(content.encode()):08x}", content)
        self._requests.send()
        _logger.warning(
            "MLflow can't forget points: %s that somebody changed stay beside the right ones, which readers of this "
            "package take by the tags trackers.replaced.…; of two at a step MLflow's latest is the larger one",
            f"{len(points):,}",
        )

    def _metrics(self, record: Metrics) -> None:
        for name, value in record.values.items():
            if vendor_system_names.is_machine(record, name):
                self._sample(name, value, record.time)
            elif name.startswith(SUMMARY_PREFIX):
                self._result(record, name, value)
            else:
                self._requests.metric(name, value, record.time, record.step or 0)
                self._lineage.see(self._mapped(name), value, milliseconds(record.time), record.step or 0)
        if record.step is not None:
            self._state["step"] = record.step

    def _sample(self, name: str, value: float, at: float) -> None:
        """Add a sample of the machine, under MLflow's name for it; ``metric_names.json`` tells ours."""
        new, factor = vendor_system_names.mlflow_name(name)
        self._samples[new] = name
        self._requests.metric(new, value * factor, at, int(self._state.get("step", 0)))

    def _result(self, record: Record, name: str, value: Any) -> None:
        """Keep a result until the end: MLflow would make a series of each time that it is told."""
        self._state["final"][final_name(name)] = [name_floats(value), record.time]
        self._wait("summary.json")

    def _results(self, run: Any) -> None:
        """Add the results as one point each at step 0: its charts show that as a bar for each run, and a point at
        another step as a curve. MLflow takes the point of the highest step for the newest, then the latest: where an
        earlier release put one at another step, the new point is put beside it."""
        steps = {metric.key: metric.step for metric in run.data._metric_objs}
        gone = {name: (None, at) for name, at in self._state.get("gone", {}).items()}
        for name, (value, at, *_) in {**gone, **self._state["final"]}.items():
            key, number = self._mapped(name), _number(value)
            if is_unasked(name):
                continue
            if number is None and key in steps:  # MLflow deletes no metric: what is none any more, or a text, is NaN
                self._requests.metric(name, math.nan, at, steps[key])
            elif number is not None:
                self._requests.metric(name, number, at, steps.get(key, 0))
            if value is not None and number is None:
                self._requests.tag(key, _text(value)[:TAG_LENGTH])
            elif key in run.data.tags:
                self._client.delete_tag(self._run_id, key)

    def _describe(self, record: Record) -> None:
        match record:
            case Config():
                before = {name: self._state["config"].get(name) for name in record.values} if record.whole else {}
                merge(self._state["config"], name_floats(record.values), record.whole)
                self._wait("config.json")
                values = dict(flatten(record.values))
                gone = dict(flatten(before)).keys() - values.keys()
                self._configure({**dict.fromkeys(sorted(gone), REMOVED), **values})
                if isinstance(used := record.values.get(USED), dict):
                    self._lineage.used(used)
            case Summary():
                for name in map(final_name, record.removed):
                    if self._state["final"].pop(name, None) is not None:
                        self._state["gone"] = {**self._state.get("gone", {}), name: record.time}
                        self._wait("summary.json")
                for name, value in record.values.items():
                    self._result(record, name, value)
            case Environment():
                merge(self._state["environment"], name_floats(record.values))
                self._wait("environment.json")
            case Info():
                self._inform(record)

    def _configure(self, values: dict[str, Any]) -> None:
        """Configuration values as params; what MLflow can't hold is in ``config.json`` whole."""
        shortened = []
        for name, value in flatten(values):
            key, text = self._mapped(name), _text(value)
            if len(text) > PARAM_LENGTH:
                shortened.append(name)
                text = text[: PARAM_LENGTH - 1] + "…"
            if not self._requests.param(key, text):
                self._requests.tag(map_name(f"config_changed.{name}"), _text(value)[:TAG_LENGTH])
        if shortened:
            _logger.warning(
                "params longer than MLflow's %d characters were shortened: %s; config.json has them whole",
                PARAM_LENGTH,
                ", ".join(shortened),
            )

    def _inform(self, record: Info) -> None:
        if record.name:
            self._client.update_run(self._run_id, name=record.name)
        if record.notes is not None:
            self._requests.tag("mlflow.note.content", record.notes[:TAG_LENGTH])
        if record.tags is not None:
            self._requests.tag("trackers.tags", json.dumps(record.tags)[:TAG_LENGTH])
            self._label(record.tags)
        if record.group is not None:
            self._requests.tag("group", record.group[:TAG_LENGTH])

    def _label(self, labels: Sequence[str]) -> None:
        """Make each of the run's tags one of MLflow's, by which runs can be filtered: ``tags.baseline = 'true'``."""
        self._labels = None
        wanted = {map_name(label)[:250] for label in labels if label}
        keys = {f"tag.{key}" if key in OWN_TAGS or key.startswith(("mlflow.", "trackers.")) else key for key in wanted}
        before = set(self._state.get("labels", []))
        for key in before - keys:
            self._requests.untag(key)
            with contextlib.suppress(Exception):  # somebody removed it
                self._client.delete_tag(self._run_id, key)
        for key in keys - before:
            self._requests.tag(key, "true")
        self._state["labels"] = sorted(keys)

    def _mapped(self, name: str) -> str:
        key, ours = map_name(name), self._samples.get(name, name)
        if key != ours and self._state["names"].get(key) != ours:
            self._state["names"][key] = ours
            self._wait("metric_names.json")
        return key

    def _wait(self, file: str) -> None:
        if file not in self._state["waiting"]:
            self._state["waiting"].append(file)

    def _send_waiting(self, last: bool = False) -> None:
        """Send the run's own files that changed. Metrics don't wait for a store of artifacts that is down."""
        contents: dict[str, Callable[[], Any]] = {
            "config.json": lambda: self._state["config"],
            "summary.json": lambda: {name: value for name, (value, *_) in self._state["final"].items()},
            "environment.json": lambda: self._state["environment"],
            "metric_names.json": lambda: self._state["names"],
        }
        for file in list(self._state["waiting"]):
            try:
                with translated(self._uri):
                    self._files.put_json(file, contents[file]())
            except (Unavailable, Rejected) as error:
                if last and isinstance(error, Unavailable):
                    raise
                _logger.warning("%s isn't with the run yet: %s", file, error)
                continue
            self._state["waiting"].remove(file)

    def _send_console(self, last: bool = False) -> None:
        """Send what was printed, where it is due. Metrics don't wait for a store of artifacts that is down."""
        try:
            with translated(self._uri):
                self._console.send(lambda path: self._files.put_file(path.name, path), last)
        except (Unavailable, Rejected) as error:
            if last and isinstance(error, Unavailable):
                raise
            _logger.warning("console.log isn't with the run yet: %s", error)


def _text(value: Any) -> str:
    """A value as MLflow's own ``log_param`` writes it, but collections as JSON."""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(name_floats(value), default=str, ensure_ascii=False)
    return str(value)


def _number(value: Any) -> float | None:
    """A result as a number, non-finite ones by name included; None for anything else."""
    if isinstance(value, (bool, int, float)):
        return value
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else None
