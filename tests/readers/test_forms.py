"""What was cached of a source is void once its reader reads it otherwise: each reader's output is tied to its form."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.wandb.support import server
from tests.backends.wandb.test_datastore import framed
from tests.fakes.wandb_server import WandbServer
from tests.readers.test_vendors import TRAINING_LOG
from tests.readers.test_wandb_reader import held
from trackers.formats.tensorboard_event import TFRecordFramer
from trackers.readers import registry
from trackers.readers.csv import CsvReader
from trackers.readers.run_data import load
from trackers.records import Config, Finish, Metrics, Record, Start, Summary, Text

__all__ = ["server"]
NOW = 1_767_225_600
FORMS = {
    "csv": (7, "5d9aa986c8d4307f"),
    "hf": (1, "c5287e37c1bac70e"),
    "json": (1, "da91135193311320"),
    "mlflow": (1, "d18bd214dff18595"),
    "tb": (1, "09b9430da1d98c64"),
    "trackio": (1, "f5296a3e46c62802"),
    "wandb": (1, "45e67d260c3f3d57"),
    "wandb-file": (1, "9d5d5ec2179cb4c4"),
}
"""Each reader's form, and what it makes of the sources here. Where that changes, give the reader's class another form,
and note both; else what users have cached keeps its old values."""


pytestmark = pytest.mark.usefixtures("utc")


def write(place: Path, files: dict[str, str | bytes]) -> None:
    """Files with a time that is always the same."""
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(path, (NOW, NOW))


TABLES = {
    "lightning/metrics.csv": "epoch,step,train_loss,val_loss\n0,9,0.5,\n0,9,,0.25\n1,19,0.125,\n",
    "lightning/hparams.yaml": "lr: 0.1\n",
    "scalars.csv": "Wall time,Step,Value\n1700000000.5,0,1.5\n1700000001.5,5,nan\n",
    "german.csv": "step;loss;lr;note\n1;2,5;1.234;a\n2;1.300,5;0,001;\n",
    "monitor.csv": '#{"t_start": 1760000000.5, "env_id": "Toy-v0"}\nr,l,t\n33.0,30,1.25\n25.0,20,2.25\n',
    "results.csv": "                  epoch,      time, train/box_loss\n1,9.5,1.5\n2,18.5,1.25\n",
    "long.csv": "run_id,key,value,step,timestamp\na,loss,0.5,1,1700000000000\na,acc,0.25,1,1700000000000\n",
    "dates.csv": "Date;Epoch;Loss\n05.01.2026 10:00;1;0,5\n05.01.2026 10:01;2;0,4\n",
    "bad.csv": "step,loss\n1,2.5\nabc,2.4\n3,2.3\n",
    "ours.csv": "step,time,loss,step_\n0,1700000000.5,1.5,7\n1,1700000001.5,nan,8\n",
}
LINES = (
    '{"step": 1, "loss": NaN, "time": 1700000000.5}\n{"step": 2, "loss": "1e-3", "note": "x", "eval": {"acc": 0.5}}\n'
    '{"loss": 1.5}\n{"step": 3, "lo'
)
TRAINER_LOG = '{"current_steps": 5, "total_steps": 10, "loss": 1.5, "epoch": 0.5, "elapsed_time": "0:01:05"}\n'
RESULT = {
    "platform": "rocm", "gpu_info": {"device_count": 8}, "timestamp": "2026-01-05T11:29:06",
    "training_config": {"global_batch_size": 128}, "performance_metrics": {"tokens_per_second": 107501},
    "memory_metrics": {"peak_memory_allocated_gb": 117.99}, "raw_step_times": [9.836, 9.702, 9.699],
}  # fmt: skip
STATE = {
    "best_metric": 0.5, "global_step": 20, "max_steps": 20, "is_world_process_zero": True,
    "log_history": [{"epoch": 0.5, "step": 10, "loss": 0.1, "note": "a"}, {"epoch": 1.0, "step": 20, "eval_loss": 0.5},
                    {"epoch": 1.0, "step": 20, "train_runtime": 7.5}],
}  # fmt: skip


def csv(place: Path, _server: WandbServer) -> Iterable[str]:
    write(place, dict(TABLES))
    return [f"csv:{place / name}" for name in TABLES if name.endswith(".csv")]


def json_(place: Path, _server: WandbServer) -> Iterable[str]:
    files = {"log.json": json.dumps(TRAINING_LOG), "result.json": json.dumps(RESULT, indent=2), "lines.jsonl": LINES,
             "trainer_log.jsonl": TRAINER_LOG}  # fmt: skip
    write(place, dict(files))
    return [f"json:{place / name}" for name in files]


def hf(place: Path, _server: WandbServer) -> Iterable[str]:
    write(place, {"trainer_state.json": json.dumps(STATE)})
    return [f"hf:{place}"]


def tb(place: Path, _server: WandbServer) -> Iterable[str]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary as Values

    framer = TFRecordFramer()
    events = [Event(wall_time=NOW, file_version="brain.Event:2")]
    for step in range(3):
        values = [Values.Value(tag="Loss/train", simple_value=step / 3), Values.Value(tag="lr", simple_value=0.5)]
        events.append(Event(wall_time=NOW + step, step=2 * step, summary=Values(value=values)))
    content = b"".join(framer.frame(event.SerializeToString()) for event in events)
    write(place, {f"one/events.out.tfevents.{NOW}.host": content})
    return [f"tb:{place}/one"]


def mlflow(place: Path, _server: WandbServer) -> Iterable[str]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place}/ml.db")
    experiment = client.create_experiment("e", artifact_location=str(place / "artifacts"))
    run_id = client.create_run(experiment, run_name="r", tags={"k": "v"}, start_time=NOW * 1000).info.run_id
    for step in range(3):
        client.log_metric(run_id, "loss", step / 3, NOW * 1000 + step, step)
        client.log_metric(run_id, "val acc", 0.5, NOW * 1000 + step, 2 * step)
    client.log_param(run_id, "lr", 0.5)
    client.set_terminated(run_id, "FAILED", NOW * 1000 + 9)
    return [f"mlflow:{place}/ml.db#e"]


def trackio(place: Path, _server: WandbServer) -> Iterable[str]:
    from trackio.sqlite_storage import SQLiteStorage

    rows = [{"loss": 0.5, "note": "a"}, {"loss": float("nan"), "step": 7}]
    stamps = [f"2026-01-01T00:00:0{second}+00:00" for second in range(2)]
    SQLiteStorage.bulk_log("forms", "one", rows, [0, 5], stamps, {"lr": 0.1, "_Created": stamps[0]})
    return ["trackio:forms/one"]


def wandb(_place: Path, server: WandbServer) -> Iterable[str]:
    held(server, rows=12, events=2)
    return ["wandb:someone/digits/v2h4vzbc"]


def wandb_file(place: Path, _server: WandbServer) -> Iterable[str]:
    from wandb.proto import wandb_internal_pb2 as pb

    run = pb.Record(num=1, run=pb.RunRecord(run_id="a", display_name="n", project="p"))
    run.run.start_time.FromSeconds(NOW)
    run.run.config.update.add(key="lr", value_json="0.5")
    records = [run]
    for step in range(3):
        row = pb.Record(num=2 + step)
        for key, value in (("_step", 2 * step), ("_timestamp", NOW + step), ("loss", step / 3), ("note", "a")):
            row.history.item.add(key=key, value_json=json.dumps(value))
        records.append(row)
    ended = pb.Record(num=5, summary=pb.SummaryRecord())
    ended.summary.update.add(key="loss", value_json="0.25")
    records += [ended, pb.Record(num=6, exit=pb.RunExitRecord(exit_code=1))]
    write(place, {"run-a.wandb": framed([record.SerializeToString() for record in records])})
    return [f"wandb-file:{place}/run-a.wandb"]


SOURCES: dict[str, Callable[[Path, WandbServer], Iterable[str]]] = {
    "csv": csv, "hf": hf, "json": json_, "mlflow": mlflow, "tb": tb, "trackio": trackio,
    "wandb": wandb, "wandb-file": wandb_file,
}  # fmt: skip


def shown(record: Record) -> tuple[Any, ...]:
    """What a record says that is the same each time such a source is made."""
    if isinstance(record, (Metrics, Text)):
        return type(record).__name__, record.step, round(record.time, 3), sorted(record.values.items())
    if isinstance(record, (Config, Summary)):
        return type(record).__name__, sorted(record.values.items())
    if isinstance(record, Start):
        return "Start", record.attempt, record.from_step
    return ("Finish", record.status, record.step) if isinstance(record, Finish) else (type(record).__name__,)


@pytest.mark.parametrize("scheme", SOURCES)
def test_output_has_its_form(scheme: str, tmp_path: Path, server: WandbServer) -> None:
    """Where a reader's output is another than it was, so is its form."""
    digest = hashlib.sha256()
    for source in SOURCES[scheme](tmp_path, server):
        reader, runs = registry.open_source(source)
        for run in runs:
            # W&B's rows and samples are fetched side by side.
            records = [str(shown(record)) for record in reader.read(run)]
            digest.update(f"{sorted(records) if scheme == 'wandb' else records}{run.note}".encode())
    assert FORMS[scheme] == (type(reader).form, digest.hexdigest()[:16])


def test_each_reader_with_a_cache_is_looked_at() -> None:
    """Journals have a cache of their own."""
    assert {*registry.BUILT_IN} - {registry.OWN} == {*FORMS} == {*SOURCES}


def test_what_was_cached_in_another_form_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed form makes it void, and nothing else does."""
    write(tmp_path, {"a.csv": "step,train_loss\n1,0.5\n"})
    assert "train_loss" in load(f"csv:{tmp_path}/a.csv").series()
    other = Metrics(step=1, time=NOW, values={"x": 1})
    monkeypatch.setattr(CsvReader, "read", lambda self, run, files=None: iter([other]))
    assert "x" not in load(f"csv:{tmp_path}/a.csv").series()
    monkeypatch.setattr(CsvReader, "form", CsvReader.form + 1)
    assert list(load(f"csv:{tmp_path}/a.csv").series()) == ["x"]
