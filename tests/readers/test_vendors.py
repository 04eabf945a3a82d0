"""What the vendors' own clients and other programs wrote is read: torch, TensorFlow's format, MLflow, trackio, …"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackers.analysis.collect import gather
from trackers.errors import NotFound, TrackersError, UsageError
from trackers.readers import registry
from trackers.readers.run_data import load, load_all
from trackers.readers.tensorboard.reader import frames
from trackers.records import Alert, Start


def torch_run(place: Path) -> None:
    """A run as people write it with torch's SummaryWriter."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(place)) as writer:
        for step in range(20):
            writer.add_scalar("Loss/train", math.nan if step == 3 else step / 3, step, walltime=1.7e9 + step)
            writer.add_scalar("tensor", step, step, new_style=True, walltime=1.7e9 + step)
        writer.add_text("notes", "half way", 10)
        writer.add_histogram("weights", np.array([0.0, 1.0, 1.0, 2.0]), 5)
        writer.add_image("digits", np.zeros((3, 8, 8), np.float32), 7)
        writer.add_audio("sound", np.zeros((1, 100)), 8)
        writer.add_hparams({"lr": 0.1, "opt": "adam", "amp": True}, {"hparam/accuracy": 0.5}, run_name="hp")


def test_torch_events(tmp_path: Path) -> None:
    """Scalars of both forms, text, histograms, images, sounds and hparams of torch's writer are read."""
    torch_run(tmp_path / "logs/one")
    runs = {data.run.name: data for data in load_all(f"tb:{tmp_path}/logs")}
    assert set(runs) == {"one", "one/hp"}
    data = runs["one"]
    table = data.metrics()
    assert table["time"].to_pylist() == [1.7e9 + step for step in range(20)]
    losses = table["Loss/train"].to_pylist()
    assert math.isnan(losses[3])
    assert losses[19] == float(np.float32(19 / 3))
    assert table["tensor"].to_pylist() == list(range(20))
    assert [(text.step, text.values) for text in data.texts()] == [(10, {"notes/text_summary": "half way"})]
    assert runs["one/hp"].config == {"lr": 0.1, "opt": "adam", "amp": True}
    assert runs["one/hp"].series()["hparam/accuracy"].value == 0.5
    assert [media.type for media in data.media()] == ["histogram"]  # what has files isn't fetched unasked
    media = {record.type: record for record in data.media(tmp_path / "files")}
    assert sum(media["histogram"].items[0].data["counts"]) == 4
    assert Path(data.run.directory, media["image"].items[0].file).read_bytes().startswith(b"\x89PNG")
    assert Path(data.run.directory, media["audio"].items[0].file).read_bytes().startswith(b"RIFF")
    assert {data.run.name for data in load_all(f"tb:{tmp_path}/logs/o*")} == {"one", "one/hp"}


def tensor_event(tag: str, plugin: str, array: Any, step: int) -> Any:
    """An event as TensorFlow 2 writes it: everything is a tensor, and the tag's first event says what it is."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.util import tensor_util

    metadata = summary_pb2.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    value = summary_pb2.Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(array), metadata=metadata)
    return event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=summary_pb2.Summary(value=[value]))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int32, np.int64, np.bool_])
def test_tensor_summaries(kind: Any, tmp_path: Path) -> None:
    """Scalars of TensorFlow's format come in every type that it has, also when later events don't repeat the plugin."""
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path / "run"))
    for step in range(3):
        event = tensor_event("epoch_loss", "scalars", np.array(step, kind), step)
        if step:
            event.summary.value[0].ClearField("metadata")
        writer.add_event(event)
    writer.add_event(tensor_event("words", "text", np.array(["a", "b"], object), 2))
    writer.close()
    data = load(f"tb:{tmp_path}/run")
    assert data.metrics()["epoch_loss"].to_pylist() == [float(kind(step)) for step in range(3)]
    assert [text.values["words"] for text in data.texts()] == ["a", "b"]


def test_restarted_session_purges_later_steps(tmp_path: Path) -> None:
    """A SessionLog START takes back what came before it at and above its step, as TensorBoard does."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(10):
            writer.add_scalar("loss", 1.0, step)
    with SummaryWriter(str(tmp_path / "run"), purge_step=5, filename_suffix=".later") as writer:
        for step in range(5, 8):
            writer.add_scalar("loss", 2.0, step)
    assert load(f"tb:{tmp_path}/run").metrics()["loss"].to_pylist() == [1.0] * 5 + [2.0] * 3


def test_tenth_writer_of_a_process_comes_after_its_ninth(tmp_path: Path) -> None:
    """TensorBoard's writers are counted in their files' names, and begin in one second: ``….10`` follows ``….9``."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    def write(number: int, value: float, steps: range, start: bool = False) -> None:
        path = tmp_path / "run" / f"events.out.tfevents.1700000000.node.77.{number}"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            writer = RecordWriter(file)
            if start:
                log = SessionLog(status=SessionLog.START)
                writer.write(Event(wall_time=1.7e9, step=steps[0], session_log=log).SerializeToString())
            for step in steps:
                summary = Summary(value=[Summary.Value(tag="loss", simple_value=value)])
                writer.write(Event(wall_time=1.7e9, step=step, summary=summary).SerializeToString())

    write(9, 1.0, range(10))
    write(10, 2.0, range(5, 8), start=True)
    assert load(f"tb:{tmp_path}/run").metrics()["loss"].to_pylist() == [1.0] * 5 + [2.0] * 3


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_damaged_event_file_is_read_up_to_there(damage: str, tmp_path: Path) -> None:
    """A torn tail is left, and a damaged record ends the reading with a note; neither is a traceback."""
    torch_run(tmp_path / "run")
    (path,) = (tmp_path / "run").glob("events*")
    content = bytearray(path.read_bytes())
    if damage == "torn":
        path.write_bytes(content[: len(content) // 30])
    else:
        content[len(content) // 30] ^= 0xFF
        path.write_bytes(content)
    data = load(f"tb:{path}")
    assert 0 < data.series()["Loss/train"].count < 20
    assert ("damaged at byte" in data.run.note) == (damage == "flipped")


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_event_file(content: bytes) -> None:
    """Whatever a file holds, reading its frames ends without an error."""
    path = Path("events.out.tfevents.1")
    path.write_bytes(content)
    notes: list[str] = []
    list(frames(path, notes.append))
    list(frames(path, None))


def test_mlflow_client_and_lightning_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics, params, tables, pictures and files that MLflow's own API logged are read, a page at a time."""
    import mlflow

    from trackers.readers.mlflow import reader

    monkeypatch.setattr(reader, "PAGE", 7)
    monkeypatch.setattr(reader, "PAGE_SMALLEST", 7)
    monkeypatch.setattr(reader, "HELD", 7)
    uri = f"sqlite:///{tmp_path}/ml.db"
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("/Users/me/exp", artifact_location=str(tmp_path / "artifacts"))
    run = client.create_run(experiment, run_name="vendor", tags={"k": "v", "tags": "a,b"})
    run_id = run.info.run_id
    for step in range(50):
        client.log_metric(
            run_id, "train_loss", math.nan if step == 3 else step / 3, 1_700_000_000_000 + step * 1000, step
        )
        if step % 10 == 0:
            client.log_metric(run_id, "val acc", 0.5, 1_700_000_000_000 + step * 1000, step)
    client.log_param(run_id, "model/depth", 4)
    picture = mlflow.Image(np.zeros((4, 4, 3), np.uint8))
    client.log_table(run_id, {"a": [1, 2], "p": [picture, picture]}, "table.json")
    client.log_image(run_id, np.zeros((4, 4, 3), np.uint8), key="dog/small", step=2)
    (tmp_path / "weights.bin").write_bytes(b"weights")
    client.log_artifact(run_id, str(tmp_path / "weights.bin"), "checkpoints")
    client.set_terminated(run_id, "KILLED")
    for source in (f"mlflow:{uri}#/Users/me/exp/vendor", f"mlflow:{tmp_path}/ml.db#/Users/me/exp/{run_id}",
                   f"mlflow:{uri}#{experiment}", f"mlflow:{uri}#/Users/me/exp"):  # fmt: skip
        data = load(source)
        assert (data.run.name, data.status, data.run.tags) == ("vendor", "crashed", ["a", "b"])
    table = data.metrics()
    assert table["step"].to_pylist() == list(range(50))
    assert table["time"].to_pylist() == [1.7e9 + step for step in range(50)]
    assert math.isnan(table["train_loss"].to_pylist()[3])
    assert table["val acc"].to_pylist().count(0.5) == 5
    assert data.config == {"model/depth": "4"}
    assert {(media.name, media.type, media.step) for media in data.media()} == {
        ("dog/small", "image", 2),
        ("table", "table", None),
    }
    assert data.table("table")["a"].to_pylist() == [1, 2]
    cell = data.table("table")["p"].to_pylist()[0]
    assert cell["type"] == "image"
    assert Path(data.run.directory, cell["file"]).is_file()
    (artifact,) = data.artifacts()
    assert Path(data.run.directory, artifact.files[0].file).read_bytes() == b"weights"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert load("mlflow:/Users/me/exp/vendor").run.name == "vendor"


@pytest.mark.slow
def test_trackio_client(tmp_path: Path) -> None:
    """What ``trackio.log`` wrote is read: numbers, text, NaN, a table, alerts, system metrics."""
    code = """
import numpy
import pandas
import trackio
run = trackio.init(project="vendor", name="one", config={"lr": 0.1}, group="g", embed=False)
for step in range(5):
    trackio.log({"loss": float("nan") if step == 3 else step / 3, "step": 7, "note": "half"}, step=step * 2)
trackio.log({"table": trackio.Table(columns=["a"], data=[[1], [2]])}, step=20)
picture = trackio.Image(numpy.zeros((4, 4, 3), numpy.uint8), caption="four")
trackio.log({"seen": trackio.Table(dataframe=pandas.DataFrame({"p": [picture]}))}, step=21)
trackio.alert("slow", text="half the rate")
trackio.finish()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    data = load("trackio:vendor/one")
    assert data.metrics(["loss", "step"])["step"].to_pylist() == [0, 2, 4, 6, 8]
    assert math.isnan(data.metrics(["loss"])["loss"].to_pylist()[3])
    assert data.metrics(["step"])["step_"].to_pylist() == [7] * 5
    assert data.config["lr"] == 0.1
    assert data.run.group == "g"
    assert [text.values for text in data.texts()] == [{"note": "half"}] * 5
    table, _ = data.media()
    assert table.items[0].data == {"columns": ["a"], "rows": [[1], [2]]}
    (cell,) = data.table("seen")["p"].to_pylist()
    assert (cell["type"], cell["format"], cell["caption"]) == ("image", "png", "four")
    assert Path(data.run.directory, cell["file"]).is_file()
    assert [record.title for record in data.records() if isinstance(record, Alert)] == ["slow"]


@pytest.mark.slow
def test_damaged_index_of_trackio_has_an_end(tmp_path: Path) -> None:
    """An index that lies leads trackio's search for runs back to where it was, for ever, with ever more memory."""
    code = """
import sqlite3, trackio
for name in ("a", "b"):
    trackio.init(project="vendor", name=name, embed=False)
    trackio.log({"loss": 0.5})
    trackio.finish()
from trackio.sqlite_storage import SQLiteStorage
path = SQLiteStorage.get_project_db_path("vendor")
def change(*statements):
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA writable_schema=ON")
        for statement in statements:
            database.execute(*statement)
    database.close()
with sqlite3.connect(path) as database:
    index = database.execute("SELECT * FROM sqlite_master WHERE name = 'idx_metrics_run_record'").fetchall()
change(("DELETE FROM sqlite_master WHERE name = 'idx_metrics_run_record'",))
change(("UPDATE metrics SET (run_id, run_name) = (SELECT run_id, run_name FROM metrics ORDER BY run_id LIMIT 1)",),
       *(("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row) for row in index))
print(len(index))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.stdout.split()[-1:] == ["0"]:  # versions before 0.42 search without one
        return
    assert done.returncode == 0, done.stderr
    code = """
import resource, sqlite3, trackers
from trackio.sqlite_storage import SQLiteStorage
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
try:
    trackers.load("trackio:vendor")
except trackers.TrackersError as error:
    print(error)
endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT max(i) FROM n"
with SQLiteStorage._get_connection(SQLiteStorage.get_project_db_path("vendor")) as connection:
    print(*connection.execute(endless).fetchone())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said, counted = found.stdout.splitlines()
    assert said.endswith("vendor.db is damaged: its index leads round in circles")
    assert counted == "3000000", "connections of others have no limit"


TRAINING_LOG = {
    "run_name": "run_20231031_162345",
    "start_time": "2023-10-31T16:23:45.123456",
    "end_time": "2023-10-31T16:45:12.789012",
    "config": {"learning_rate": 0.0006, "n_layer": 12},
    "training_iterations": [
        {"iter": 0, "loss": 11.0049, "time_ms": 19130.8, "mfu": -100.0},
        {"iter": 1, "loss": float("nan"), "time_ms": 3978.64, "mfu": 31.5},
    ],
    "eval_steps": [
        {"iter": 0, "train_loss": 11.0, "val_loss": 10.9, "lr": 0.0006, "timestamp": "2023-10-31T16:24:45.123456"}
    ],
    "checkpoints": [{"iter": 50, "val_loss": 8.2, "path": "out/ckpt.pt", "timestamp": "2023-10-31T16:30:00"}],
    "metadata": {"world_size": 1, "device": "cuda"},
    "summary": {"total_iterations": 101, "best_val_loss": 7.1},
}


@pytest.mark.parametrize("indent", [None, 2])
def test_training_log_of_another_writer(indent: int | None, tmp_path: Path) -> None:
    """The original logger's file is read: NaN as it wrote it, -100 as no value, times from the durations."""
    (tmp_path / "log.json").write_text(json.dumps(TRAINING_LOG, indent=indent))
    data = load(f"json:{tmp_path}/log.json")
    table = data.metrics(["loss", "mfu", "val_loss", "train_loss", "lr", "time_ms"])
    assert table["mfu"].to_pylist() == [None, 31.5]
    assert math.isnan(table["loss"].to_pylist()[1])
    assert table["val_loss"].to_pylist() == [10.9, None]
    assert table["time"][1].as_py() - data.run.created == pytest.approx(23.10944)
    assert data.summary == {"total_iterations": 101, "best_val_loss": 7.1}
    assert (data.run.name, data.status, data.config) == ("run_20231031_162345", "finished", TRAINING_LOG["config"])
    assert data.artifacts()[0].files[0].uri == "out/ckpt.pt"


def test_training_log_of_another_writer_says_its_ranks(tmp_path: Path) -> None:
    """Its metadata's world_size is the training's, from which its GPUs and their efficiency follow."""
    log = {**TRAINING_LOG, "metadata": {"world_size": 8, "device": "cuda"}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    starts = [record for record in load(f"json:{tmp_path}/log.json").records() if isinstance(record, Start)]
    assert [start.world_size for start in starts] == [8]


def test_benchmark_result_is_read(tmp_path: Path) -> None:
    """A benchmark's result is read: each step's duration as a series, the rest as configuration and results."""
    result = {
        "platform": "rocm",
        "gpu_info": {"device_count": 8},
        "timestamp": "2026-01-05T11:29:06",
        "training_config": {"global_batch_size": 128},
        "performance_metrics": {"tokens_per_second": 107501},
        "memory_metrics": {"peak_memory_allocated_gb": 117.99},
        "raw_step_times": [9.836, 9.702, 9.699],
    }
    (tmp_path / "benchmark_rocm_1.json").write_text(json.dumps(result, indent=2))
    data = load(f"json:{tmp_path}")
    assert data.metrics()["step_time_seconds"].to_pylist() == [9.836, 9.702, 9.699]
    assert data.metrics()["step"].to_pylist() == [1, 2, 3]
    assert data.summary == {"tokens_per_second": 107501, "peak_memory_allocated_gb": 117.99}
    assert data.config["training_config"] == {"global_batch_size": 128}


@pytest.mark.parametrize("newest", [900, 1000, None])
def test_checkpoint_of_most_steps_is_read(newest: int | None, tmp_path: Path) -> None:
    """It has all rows; the times of files are those of their copying, and names are no texts."""
    for step in (900, 1000):
        folder = tmp_path / f"out/checkpoint-{step}"
        folder.mkdir(parents=True)
        state = {"global_step": step, "log_history": [{"step": n, "loss": 1.5} for n in range(100, step + 1, 100)]}
        (folder / "trainer_state.json").write_text(json.dumps(state))
        os.utime(folder / "trainer_state.json", (1.7e9 + (step == newest),) * 2)
    (tmp_path / "out/checkpoint-best").mkdir()
    (tmp_path / "out/checkpoint-best/trainer_state.json").write_text(json.dumps({**state, "log_history": []}))
    data = load(f"hf:{tmp_path}/out")
    assert (data.metrics()["step"].to_pylist()[-1], data.summary["global_step"]) == (1000, 1000)


def test_trainer_state(tmp_path: Path) -> None:
    """The state of a Trainer is read by its file, its checkpoint's directory, or an output directory."""
    for step in (10, 20):
        folder = tmp_path / f"out/checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [{"epoch": n / 10, "step": n, "loss": 1 / n, "learning_rate": 1e-4} for n in range(10, step + 1, 10)]
        history.append({"epoch": 2.0, "step": step, "eval_loss": 0.5, "train_runtime": 7.5})
        state = {
            "best_metric": 0.5,
            "global_step": step,
            "max_steps": 20,
            "log_history": history,
            "is_world_process_zero": True,
        }
        (folder / "trainer_state.json").write_text(json.dumps(state))
        os.utime(folder / "trainer_state.json", (1.7e9 + step, 1.7e9 + step))
    data = load(f"hf:{tmp_path}/out")
    assert (data.run.name, data.status) == ("out", "finished")
    table = data.metrics(["loss", "eval_loss"])
    assert table["step"].to_pylist() == [10, 20]
    assert table["loss"].to_pylist() == [0.1, 0.05]
    assert table["eval_loss"].to_pylist() == [None, 0.5]
    assert data.summary["best_metric"] == 0.5
    assert data.config["max_steps"] == 20
    assert load(f"hf:{tmp_path}/out/checkpoint-10/trainer_state.json").series()["loss"].count == 1


@pytest.mark.parametrize(
    ("table", "steps", "values"),
    [
        (
            "epoch,step,train_loss,val_loss\n0,9,0.5,\n0,9,,0.25\n1,19,0.125,\n",
            [9, 19],
            {"train_loss": [0.5, 0.125], "val_loss": [0.25, None]},
        ),
        ("Wall time,Step,Value\n1700000000.5,0,1.5\n1700000001.5,5,nan\n", [0, 5], {"table": [1.5, math.nan]}),
        ('"loss","note"\n1e-3,first\n-Infinity,"a, b"\n', [0, 1], {"loss": [1e-3, -math.inf]}),
        ("iteration,loss,ok\n3.0,1,true\n", [3], {"loss": [1], "ok": [True]}),
        ("step;loss;note\n0;0,5;1,2,3\n1;2;\n", [0, 1], {"loss": [0.5, 2.0]}),
        ("step\tloss\n4\t0.5\n", [4], {"loss": [0.5]}),
        ("step,loss,loss\n4,0.5,0.25\n", [4], {"loss": [0.5], "loss.1": [0.25]}),
    ],
)  # fmt: skip
def test_tables_of_others(table: str, steps: list[int], values: dict[str, list[Any]], tmp_path: Path) -> None:
    """Lightning's, TensorBoard's and anybody's CSV is read, whatever its column of steps is called."""
    (tmp_path / "table.csv").write_text(table)
    data = load(f"csv:{tmp_path}/table.csv")
    found = data.metrics(list(values))
    assert found["step"].to_pylist() == steps
    assert {name: repr(found[name].to_pylist()) for name in values} == {
        name: repr(wanted) for name, wanted in values.items()
    }


@pytest.mark.parametrize(
    ("name", "pattern", "content"),
    [
        ("one.json", "json:*.json", '{"run_id": "a", "training_iterations": [{"step": 1, "loss": 0.5}]}'),
    ],
)
def test_other_files_that_a_pattern_takes_in_are_left_out(
    name: str, pattern: str, content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Among several files one of another kind doesn't keep the others from being read or compared; it is named."""
    Path(name).write_text(content)
    Path(f"foreign_{name}").write_text('{"a": 1}')
    assert [data.run.source.endswith(name) for data in load_all(pattern)] == [True]
    assert f"foreign_{name}" in caplog.text
    caplog.clear()
    gathered = gather([pattern])
    assert len(gathered.runs) == 1
    assert f"foreign_{name}" in "".join(gathered.problems) + caplog.text
    with pytest.raises(NotFound, match=f"foreign_{name}"):
        load_all(f"{pattern.partition(':')[0]}:foreign_{name}")


@pytest.mark.parametrize(
    ("source", "content", "error", "says"),
    [
        ("tb:nothing", None, NotFound, "no file or directory"),
        ("tb:", None, UsageError, "needs a path"),
        ("tb:.", None, NotFound, "nothing to read"),
        ("json:file", "{", NotFound, "isn't whole JSON"),
        ("json:file", "[1]", NotFound, "holds no JSON object"),
        ("json:file", "{}", NotFound, "neither a training log"),
        ("hf:file", '{"a": 1}', NotFound, "no log_history"),
        ("hf:file", '{"log_history": ', NotFound, "isn't whole JSON"),
        ("csv:file", "", NotFound, "is empty"),
        ("csv:file", b"a,b\n\xff\xfe,1\n", NotFound, "no table in UTF-8"),
        ("mlflow:nothing.db#exp", None, NotFound, "no database"),
        ("trackio:nothing", None, NotFound, "no project 'nothing'"),
        ("trackio:", None, UsageError, "needs a project"),
        ("run:", None, NotFound, "no runs in"),
    ],
)
def test_bad_source_is_one_line(
    source: str, content: str | bytes | None, error: type[TrackersError], says: str, tmp_path: Path
) -> None:
    """What is missing, empty, cut or of another kind is one clear line, never a traceback."""
    if content is not None:
        Path("file").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=says) as found:
        load(source)
    assert "\n" not in str(found.value)


def test_plugin_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that another package registers is found by its scheme, and listed among the known."""
    monkeypatch.setattr(registry, "_plugins", lambda: {"sheet": "trackers.readers.csv:CsvReader"})
    Path("table.csv").write_text("step,loss\n1,2\n")
    assert registry.load("sheet").scheme == "csv"
    assert "sheet" in registry.schemes()
    monkeypatch.setattr(registry, "_plugins", lambda: {"sheet": "nowhere:Nothing"})
    with pytest.raises(UsageError, match="can't be loaded"):
        registry.load("sheet")


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source whose package isn't installed says what to install."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mlflow" else found(name))
    with pytest.raises(UsageError, match=r"needs the mlflow package: pip install 'trackers-relay\[mlflow\]'"):
        registry.load("mlflow")
