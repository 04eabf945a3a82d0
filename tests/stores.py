"""What each destination holds, read without our writers: SQL, the vendors' own loaders, plain parsing.

Each reader takes the run and answers with a ``Stored`` (see ``trackers.testing``), its names as they are stored
there, its numbers as numbers.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from trackers.testing import Point, Stored
from trackers.tracker import RunInfo

NAMED_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def named_float(value: Any) -> Any:
    """A number that was stored under its name, as a number again; anything else as it is."""
    return NAMED_FLOATS.get(value, value) if isinstance(value, str) else value


def read_trackio(info: RunInfo, state: Mapping[str, Any] | None = None, *, by_time: bool = False) -> Stored:
    """The project's SQLite file below ``TRACKIO_DIR``: rows by their order of insertion, results among the config.

    Args:
        by_time: rows in the order in which trackio itself reads and shows them.
    """
    database = sqlite3.connect(Path(os.environ["TRACKIO_DIR"], f"{info.project}.db"))
    try:
        stored = Stored(texts={})
        assert stored.texts is not None
        order = "timestamp, id" if by_time else "id"
        query = f"SELECT run_name, step, timestamp, metrics FROM metrics WHERE run_id = ? ORDER BY {order}"
        for name, step, timestamp, metrics in database.execute(query, [info.id]):
            stored.name = name
            time = datetime.fromisoformat(timestamp).timestamp()
            values = json.loads(metrics)
            later = values.pop("trackers/times", {})
            for key, value in values.items():
                value = named_float(value)
                if isinstance(value, dict) and value.get("_type") == "trackio.markdown":
                    value = value["_value"]
                if isinstance(value, str) and key != "trackers/results":
                    stored.texts.setdefault(key, []).append((step, value))
                elif isinstance(value, (int, float)):
                    stored.metrics.setdefault(key, []).append(Point(step, value, time + later.get(key, 0.0)))
        rows = database.execute("SELECT config FROM configs WHERE run_id = ?", [info.id]).fetchall()
    finally:
        database.close()
    config = json.loads(rows[0][0]) if rows else {}
    stored.status = config.pop("trackers/status", None)
    stored.tags = config.pop("trackers/tags", [])
    stored.group = config.get("_Group")
    stored.summary = {key: named_float(value) for key, value in config.items() if key.startswith("final/")}
    stored.config = {key: value for key, value in config.items() if not key.startswith(("_", "final/", "trackers/"))}
    return stored


JSON_TOTALS = (
    "total_iterations",
    "final_iter",
    "final_train_loss",
    "avg_time_ms",
    "avg_mfu",
    "total_eval_steps",
    "total_checkpoints",
)


def read_json(info: RunInfo, state: Mapping[str, Any] | None = None, *, path: Path | None = None) -> Stored:
    """The run's JSON log, strictly parsed. ``time_ms``, which the log derives from the times, is left out."""
    if path is None:
        found = [file for file in Path(info.directory).glob("*.json") if '"training_iterations"' in file.read_text()]
        assert len(found) == 1, f"{len(found)} logs in {info.directory}"
        path = found[0]
    log = json.loads(path.read_text(), parse_constant=not_json)
    known = {name: value for name, value in log["summary"].items() if value is not None}
    stored = Stored(summary=known, config=log["config"], texts={}, tags=log["tags"])
    assert stored.summary is not None
    assert stored.texts is not None
    rows = log["training_iterations"]
    if log.get("samples"):
        rows = sorted([*rows, *log["samples"]], key=lambda row: row["time"])
    for row in rows:
        for name, value in row.items():
            value = named_float(value)
            if name == "mfu" and type(value) is int and value == 0:  # as the log says that there was none
                continue
            if name not in ("iter", "time", "time_ms") and isinstance(value, (int, float)):
                stored.metrics.setdefault(name, []).append(Point(row["iter"], value, row["time"]))
    for row in log["eval_steps"]:
        time = datetime.fromisoformat(row["timestamp"]).timestamp()
        for name, value in row.items():
            value = named_float(value)
            if name not in ("iter", "train_loss", "lr") and isinstance(value, (int, float)):
                stored.metrics.setdefault(name, []).append(Point(row["iter"], value, time))
    for item in log.get("text", []):
        stored.texts.setdefault(item["name"], []).append((item["iter"], item["text"]))
    stored.name, stored.group = log["run_name"], log["group"]
    stored.status = stored.summary.pop("status")
    for name in JSON_TOTALS:
        stored.summary.pop(name, None)
    return stored


BENCHMARK_KEEPS = ("loss", "perf/tokens_per_sec")
"""Of the metrics that the conformance kit logs, those that a benchmark's result is made of."""


def read_benchmark(info: RunInfo, state: Mapping[str, Any] | None = None) -> Stored:
    """What the result is made of, line by line, and how the run ended, of its one file; running where there is none."""
    stored = Stored(status="running")
    for line in Path(info.directory, "benchmark/records.jsonl").read_text().splitlines():
        record = json.loads(line, parse_constant=not_json)
        if record["kind"] == "metrics":
            for name, value in record["values"].items():
                point = Point(record.get("step"), named_float(value), record["time"])
                stored.metrics.setdefault(name, []).append(point)
    documents = [json.loads(path.read_text(), parse_constant=not_json)
                 for path in Path(info.options["BENCHMARK_DIR"]).glob("benchmark_*.json")]  # fmt: skip
    mine = [document for document in documents if document["source"]["run_id"] == info.id]
    assert len(mine) <= 1, f"{len(mine)} results of one run"
    for document in mine:
        stored.status, stored.name = document["source"]["status"], document["source"]["run_name"]
    return stored


def read_csv(info: RunInfo, state: Mapping[str, Any] | None = None, *, directory: Path | None = None) -> Stored:
    """``metrics.csv`` and ``summary.csv``, by the standard library; a cell that is no number is text."""
    directory = directory or Path(info.directory)
    stored = Stored(summary={}, texts={}, status="running")
    assert stored.summary is not None
    assert stored.texts is not None
    with (directory / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        names = next(rows)[2:]
        for step, time, *cells in rows:
            at = int(step) if step else None
            for name, cell in zip(names, cells, strict=True):
                value = _cell(cell)
                if isinstance(value, str) and value:
                    stored.texts.setdefault(name, []).append((at, value))
                elif value != "":
                    stored.metrics.setdefault(name, []).append(Point(at, value, float(time)))
    if (directory / "summary.csv").exists():
        with (directory / "summary.csv").open(encoding="utf-8", newline="") as file:
            stored.summary = {name: _cell(cell) for name, cell in list(csv.reader(file))[1:]}
        stored.status = stored.summary.pop("status")
    return stored


def _cell(text: str) -> Any:
    try:
        return named_float(text) if text in NAMED_FLOATS else json.loads(text, parse_constant=not_json)
    except ValueError:
        return text


def read_console(text: str) -> Stored:
    """Lines ``step 3 | loss 0.5 | …`` as metrics, and the line of results."""
    stored = Stored(summary={})
    assert stored.summary is not None
    for line in text.splitlines():
        first, *parts = line.split(" | ")
        step = int(first.removeprefix("step ")) if first.startswith("step ") else None
        for part in parts if step is not None else [first, *parts]:
            name, _, shown = part.rpartition(" ")
            try:
                value = {"True": 1.0, "False": 0.0}.get(shown) if shown in ("True", "False") else float(shown)
            except ValueError:
                continue
            if step is not None:
                stored.metrics.setdefault(name, []).append(Point(step, value))
            elif name.startswith("final/"):
                stored.summary[name] = value
    return stored


def not_json(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def read_mlflow(
    info: RunInfo, state: Mapping[str, Any] | None = None, *, uri: str | None = None, endings: int = 1
) -> Stored:
    """The run with our id in its tags, through ``MlflowClient``; names by the run's own ``metric_names.json``.

    Status is MLflow's word. A result is a metric ``final/…`` with one value, or one for each time that the run ended,
    of which MLflow shows the last; with more it counts as a series.

    Args:
        endings: how many times the run may have ended.
    """
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri or str(info.option("MLFLOW_TRACKING_URI")))
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`trackers.run_id` = '{info.id}'")
    assert len(runs) == 1, f"{len(runs)} runs in MLflow have the id {info.id}"
    run = runs[0]
    names = _mlflow_json(client, run, "metric_names.json")
    stored = Stored(summary={}, config=_mlflow_json(client, run, "config.json"), texts={})
    assert stored.summary is not None
    for key in run.data.metrics:
        history = sorted(client.get_metric_history(run.info.run_id, key), key=lambda metric: metric.timestamp)
        name = names.get(key, key)
        if name.startswith("final/") and len(history) <= endings:
            stored.summary[name] = run.data.metrics[key]
        else:
            stored.metrics[name] = [Point(metric.step, metric.value, metric.timestamp / 1000) for metric in history]
    stored.texts = _mlflow_texts(client, run)
    stored.name, stored.status = run.info.run_name, run.info.status
    tags = run.data.tags
    stored.tags = json.loads(tags.get("trackers.tags", "[]"))
    stored.group = tags.get("group")
    return stored


def _mlflow_json(client: Any, run: Any, file: str) -> dict[str, Any]:
    if file not in {entry.path for entry in client.list_artifacts(run.info.run_id)}:
        return {}
    content: dict[str, Any] = json.loads(Path(client.download_artifacts(run.info.run_id, file)).read_text())
    return content


def _mlflow_texts(client: Any, run: Any) -> dict[str, list[tuple[int | None, str]]]:
    texts: dict[str, list[tuple[int | None, str]]] = {}
    for entry in client.list_artifacts(run.info.run_id, "text"):
        for line in Path(client.download_artifacts(run.info.run_id, entry.path)).read_text().splitlines():
            row = json.loads(line)
            texts.setdefault(Path(entry.path).stem, []).append((row.get("step"), row["text"]))
    return texts


def read_tensorboard(info: RunInfo, state: Mapping[str, Any] | None = None, *, directory: Path | None = None) -> Stored:
    """The event files, through TensorBoard's own ``EventAccumulator``; what is known of a run is one card of texts."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    everything = {"scalars": 0, "tensors": 0, "images": 0, "audio": 0, "histograms": 0}
    events = EventAccumulator(str(directory or event_directory(info)), size_guidance=everything)
    events.Reload()
    stored = Stored(summary={}, config={}, texts={})
    assert stored.summary is not None
    assert stored.texts is not None
    tags = events.Tags()
    for tag in tags["scalars"]:
        points = [Point(event.step, event.value, event.wall_time) for event in events.Scalars(tag)]
        stored.metrics[tag] = points
    about: dict[str, str] = {}
    for tag in tags["tensors"]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "text":
            found = [(event.step, [text.decode() for text in event.tensor_proto.string_val])
                     for event in events.Tensors(tag)]  # fmt: skip
            stored.texts[tag] = [(step, text) for step, texts in found for text in texts]
    for _, text in stored.texts.get("trackers/run", []):
        heading, _, content = text.partition("\n\n")
        about[heading.removeprefix("#### ")] = content
    if "configuration" in about:
        stored.config = json.loads(_code_block(about["configuration"]))
    if "results" in about:
        stored.summary = {
            name: float(value) if value in ("NaN", "Infinity", "-Infinity") else value
            for name, value in json.loads(_code_block(about["results"])).items()
        }
    stored.status = about["status"].split()[0].rstrip(":") if "status" in about else "running"
    return stored


def event_directory(info: RunInfo) -> Path:
    """The one folder below the run's ``tensorboard`` that has event files."""
    (found,) = {path.parent for path in info.path("tensorboard").rglob("events*")}
    return found


def _code_block(text: str) -> str:
    """What stands indented or fenced in Markdown."""
    lines = [line for line in text.split("\n") if not line.startswith("```")]
    return "\n".join(line.removeprefix("    ") for line in lines)


def read_wandb_file(info: RunInfo, state: Mapping[str, Any] | None = None) -> Stored:
    """All offline files of the run, one after the other as ``wandb sync`` sends them."""
    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    stored = Stored(status="running")
    for path in wandb_files(info):
        stored.status, preempting = "running", False
        for record in wandb_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "history":
                rows.append(_wandb_items(record.history.item))
            elif kind == "summary":
                summary.update(_wandb_items(record.summary.update))
                for item in record.summary.remove:
                    summary.pop(item.key, None)
            elif kind == "config":
                config.update(_wandb_items(record.config.update))
            elif kind == "run":
                config.update(_wandb_items(record.run.config.update))
                stored.name, stored.tags = record.run.display_name, list(record.run.tags)
                stored.group = record.run.run_group or None
            elif kind == "preempting":
                preempting = True
            elif kind == "exit" and not record.exit.not_complete:
                stored.status = "failed" if record.exit.exit_code else "finished"
                if preempting:
                    stored.status = "preempted"
    stored.summary = summary
    stored.config = {key: value for key, value in config.items() if key != "_wandb"}
    stored.metrics, stored.texts = wandb_rows(rows)
    return stored


def read_wandb_server(runs: Mapping[str, Any]) -> Callable[[RunInfo, Mapping[str, Any]], Stored]:
    """A reader of what the stand-in for W&B's server holds (``WandbServer().runs``)."""

    def read(info: RunInfo, state: Mapping[str, Any] | None = None) -> Stored:
        run = runs[info.id]
        stored = Stored(status=run.state, tags=list(run.tags), name=run.display_name, group=run.group)
        stored.config = dict(run.values)
        stored.summary = {name: named_float(value) for name, value in run.summary.items()}
        stored.metrics, stored.texts = wandb_rows(run.history)
        return stored

    return read


def wandb_files(info: RunInfo) -> list[Path]:
    """The run's ``.wandb`` files below its directory and ``WANDB_DIR``, the oldest first."""
    roots = {Path(info.directory).resolve(), Path(os.environ.get("WANDB_DIR", info.directory)).resolve()}
    found = {path.resolve() for root in roots for path in root.rglob(f"run-{info.id}.wandb")}
    return sorted(found, key=lambda path: (path.stat().st_ctime_ns, path.parent.name))


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of one ``.wandb`` file."""
    from wandb.proto import wandb_internal_pb2

    return map(wandb_internal_pb2.Record.FromString, leveldb_records(path))


def leveldb_records(path: Path) -> Iterator[bytes]:
    """The contents of a LevelDB log's records: blocks of 32 KiB with chunks that have 7 bytes of head."""
    data = path.read_bytes()
    place, parts = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        chunk = data[place + 7 : place + 7 + length]
        if kind == 0 or len(chunk) < length:
            return
        parts += chunk
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield parts
            parts = b""


def wandb_rows(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, list[Point]], dict[str, list[tuple[int | None, str]]]]:
    """Rows of W&B's history as metrics and texts, at their training step and their own time.

    The training step is ``trackers/step`` in a row that has one, where ``global_step`` is the script's own, else
    ``global_step``.
    """
    metrics: dict[str, list[Point]] = {}
    texts: dict[str, list[tuple[int | None, str]]] = {}
    for row in rows:
        column = "trackers/step" if "trackers/step" in row else "global_step"
        step = row.get(column)
        for name, value in row.items():
            if name in ("_step", "_runtime", "_timestamp", "_wandb", column):
                continue
            value = named_float(value)
            if isinstance(value, (int, float)):
                metrics.setdefault(name, []).append(Point(step, value, row.get("_timestamp")))
            elif isinstance(value, str):
                texts.setdefault(name, []).append((step, value))
    return metrics, texts


def _wandb_items(items: Iterable[Any]) -> dict[str, Any]:
    """By name; what is inside a medium or a table (a nested key) is left out."""
    return {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items if len(item.nested_key) < 2}


@pytest.fixture(scope="module")
def mlflow_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once: its migrations take seconds."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file
