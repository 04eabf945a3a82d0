"""The training JSON log: its fields, and that the format's own code samples work on it."""

from __future__ import annotations

import functools
import json
import math
import tempfile
import tracemalloc
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.helpers import T0, Driver, check_console_file, run_info, stream, training
from trackers.backends.json import tracker as json_backend
from trackers.backends.json.tracker import JsonTracker
from trackers.readers.json.reader import JsonReader
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.tracker import Status


def refuse(name: str) -> Any:
    raise AssertionError(f"{name} isn't JSON")


def load(path: Path) -> dict[str, Any]:
    """The log, read as strictly as jq and browsers do."""
    found = json.loads(path.read_bytes(), parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def only(directory: Path) -> Path:
    (path,) = directory.glob("*.json")
    return path


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(JsonTracker, run_info(tmp_path / "run", **fields))


def logged(tmp_path: Path, records: list[Record], status: Status | None = None, **fields: Any) -> dict[str, Any]:
    run = driver(tmp_path, **fields)
    run.deliver(stream(records), status=status)
    return load(only(tmp_path / "run"))


def gpt2(steps: int = 101) -> list[Record]:
    """A run as the format's example shows it: a loss each step, an evaluation and a checkpoint each fifty."""
    records: list[Record] = [
        Start(time=T0, world_size=2),
        Config(time=T0, values={"dtype": "bfloat16", "device": "cuda"}),
    ]
    for step in range(steps):
        values = {"train_loss": 11 - step / 50, "time_ms": 4000.0 + step, "mfu": -100.0 if step < 5 else 30.0}
        records.append(Metrics(step=step, time=T0 + step, values={**values, "learning_rate": 6e-4}))
        if step % 50 == 0:
            records.append(Metrics(step=step, time=T0 + step + 0.5, values={"val_loss": 12 - step / 50}))
            file = ArtifactFile(path="ckpt.pt", file="media/ckpt.pt")
            checkpoint = ArtifactRecord(step=step, time=T0 + step + 0.6, name="ckpt", type="model", files=[file])
            checkpoint.metadata = {"path": "out/ckpt.pt"}
            records.append(checkpoint)
    return [*records, Summary(time=T0 + steps, values={"final/best_val_perplexity": 7.0})]


def test_log_has_the_documents_fields(tmp_path: Path) -> None:
    """Every field of the format's example is there, with the values that the run logged."""
    log = logged(tmp_path, gpt2(), Status("failed", 1, T0 + 200), name="my_experiment")
    stamp = datetime.fromtimestamp(T0)
    assert only(tmp_path / "run").name == f"my_experiment_{stamp:%Y%m%d_%H%M%S}.json"
    assert log["run_name"] == "my_experiment"
    assert log["start_time"] == stamp.isoformat(timespec="microseconds")
    assert log["end_time"] == datetime.fromtimestamp(T0 + 200).isoformat(timespec="microseconds")
    assert log["config"] == {"dtype": "bfloat16", "device": "cuda"}
    assert log["training_iterations"][7] == {
        **{"iter": 7, "loss": 11 - 7 / 50, "time_ms": 4007.0, "mfu": 30.0},
        **{"learning_rate": 6e-4, "time": T0 + 7},
    }
    assert log["eval_steps"][1] == {
        **{"iter": 50, "train_loss": 10.0, "val_loss": 11.0, "lr": 6e-4},
        "timestamp": datetime.fromtimestamp(T0 + 50.5).isoformat(timespec="microseconds"),
    }
    assert {"iter": 50, "val_loss": 11.0, "path": "out/ckpt.pt"}.items() <= log["checkpoints"][1].items()
    assert {"world_size": 2, "device": "cuda", "dtype": "bfloat16"}.items() <= log["metadata"].items()
    assert log["summary"] == {
        **{"total_iterations": 101, "final_iter": 100, "final_train_loss": 9.0, "best_val_loss": 10.0},
        **{"avg_time_ms": pytest.approx(4050.5), "avg_mfu": 30.0, "total_eval_steps": 3, "total_checkpoints": 3},
        **{"best_val_perplexity": 7.0, "status": "failed", "exit_code": 1},
    }


def test_values_of_a_step_are_read_in_their_order_beside_samples(tmp_path: Path) -> None:
    """Rows without a loss may still grow, so the machine's samples come before them in the list: the last value of a
    step was read before an earlier one."""
    records = [
        Start(time=T0),
        Metrics(step=0, time=T0, values={"loss": 1.0}),
        Metrics(step=1, time=T0 + 1, values={"a": 1.0}),
        Metrics(step=1, time=T0 + 2, values={"loss": 1.0, "a": 2.0}),
        Metrics(step=1, time=T0 + 3, values={"a": 3.0}),
        Metrics(time=T0 + 4, values={"system.cpu": 50.0}),
    ]
    driver(tmp_path).deliver(stream(records))
    assert [row["time"] for row in load(only(tmp_path / "run"))["samples"]] == [T0 + 4, T0 + 1, T0 + 3]
    reader = JsonReader()
    (run,) = reader.runs(str(only(tmp_path / "run")))
    values = [record.values["a"] for record in reader.read(run) if isinstance(record, Metrics) and "a" in record.values]
    assert values == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("records", [
    [(0, {"val_loss": 1.0, "acc": 5.0}), (0, {"acc": 6.0})],
    [(0, {"acc": 5.0}), (0, {"val_loss": 1.0, "acc": 6.0})],
    [(0, {"loss": 1.0, "val_loss": 1.0, "acc": 5.0}), (0, {"loss": 2.0, "acc": 6.0})],
    [(0, {"acc": 5.0, "lr": 1.0}), (2, {"loss": 1.0, "val/acc": 1.0}), (2, {"acc": 6.0})],
], ids=["evaluation first", "iteration first", "lent", "without a loss"])  # fmt: skip
def test_values_of_one_time_are_read_in_their_order(records: list[tuple[int, dict[str, Any]]], tmp_path: Path) -> None:
    """As a copy of a source with coarse times has them: the last one counts, whatever list it lies in."""
    driver(tmp_path).deliver(stream([Metrics(step=at, time=T0, values=dict(values)) for at, values in records]))
    reader = JsonReader()
    read = [one for one in reader.read(reader.runs(str(only(tmp_path / "run")))[0]) if isinstance(one, Metrics)]
    assert [one.values["acc"] for one in read if "acc" in one.values] == [5.0, 6.0]


def test_time_zero_is_a_time(tmp_path: Path) -> None:
    """1970-01-01 at midnight was taken for none: an evaluation was read at the run's start."""
    driver(tmp_path).deliver(stream([Metrics(step=0, time=0.0, values={"val_loss": 1.0}),
                                     Text(step=0, time=0.0, values={"said": "x"})]))  # fmt: skip
    reader = JsonReader()
    read = list(reader.read(reader.runs(str(only(tmp_path / "run")))[0]))
    assert {record.time for record in read if isinstance(record, (Metrics, Text))} == {0.0}


def test_documents_samples_work(tmp_path: Path) -> None:
    """The format's snippets (plots' lists, the DataFrame, the table of summaries) run on the log as they are."""
    run = driver(tmp_path)
    run.deliver(stream(gpt2()))
    with only(tmp_path / "run").open() as f:
        log = json.load(f)
    losses = [x["loss"] for x in log["training_iterations"]]
    times = [x["time_ms"] for x in log["training_iterations"][5:]]
    mfus = [x["mfu"] for x in log["training_iterations"] if x["mfu"] > 0]
    train_losses = [x["train_loss"] for x in log["eval_steps"]]
    val_losses = [x["val_loss"] for x in log["eval_steps"]]
    assert (len(losses), len(times), len(mfus)) == (101, 96, 96)
    assert (train_losses, val_losses) == ([11.0, 10.0, 9.0], [12.0, 11.0, 10.0])
    df = pandas.DataFrame(log["training_iterations"])
    assert df["loss"].mean() == pytest.approx(10.0)
    assert df[df["mfu"] > 0]["mfu"].mean() == 30.0
    df.to_csv(tmp_path / "training_metrics.csv", index=False)
    keys = ("final_train_loss", "best_val_loss", "avg_time_ms", "avg_mfu", "total_iterations")
    assert all(isinstance(log["summary"][key], (int, float)) for key in keys)


def test_plain_run_keeps_every_value(tmp_path: Path) -> None:
    """A thousand steps of ten values without a loss are iterations, every value under its own name."""
    run = driver(tmp_path)
    run.deliver(training(1000))
    rows = load(only(tmp_path / "run"))["training_iterations"]
    assert [row["iter"] for row in rows] == list(range(1000))
    for step, row in enumerate(rows):
        assert {name: row[name] for name in row if name.startswith("metric")} == {
            f"metric_{k}": step + k / 10 for k in range(10)
        }
        assert row["time"] == T0 + step / 10


def test_values_of_one_step_become_one_iteration(tmp_path: Path) -> None:
    """Records of one step with different names are one entry, also when some come late; repeated names are two."""
    records = [
        Metrics(step=1, time=T0, values={"loss": 1.0}),
        Metrics(step=2, time=T0 + 1, values={"loss": 2.0}),
        Metrics(step=1, time=T0 + 1, values={"gpu/max": 9}),
        Metrics(step=2, time=T0 + 2, values={"loss": 2.5}),
    ]
    rows = logged(tmp_path, records)["training_iterations"]
    assert [(row["iter"], row["loss"], row.get("gpu/max")) for row in rows] == [
        (1, 1.0, 9),
        (2, 2.0, None),
        (2, 2.5, None),
    ]


def test_iterations_of_a_run_with_losses_all_have_one(tmp_path: Path) -> None:
    """Samples, and values that come too late or at other steps, lie in a list of their own, so none is lost."""
    records: list[Record] = [Metrics(step=s, time=T0 + s, values={"loss": 1.0}) for s in range(100)]
    records += [Metrics(step=3, time=T0, values={"late": 1}), Metrics(time=T0, values={"gpu": 5})]
    log = logged(tmp_path, records)
    assert all("loss" in row for row in log["training_iterations"])
    found = {name: value for row in log["samples"] for name, value in row.items()}
    assert (found["late"], found["gpu"]) == (1, 5)


def test_mean_loss_at_the_end_is_no_iteration(tmp_path: Path) -> None:
    """As Hugging Face's Trainer logs it: ``loss`` each few steps, ``train_loss``, the mean of all, at the last."""
    records = [Metrics(step=s, time=T0 + s, values={"loss": 1 / s, "epoch": s / 4}) for s in (2, 4, 8)]
    records += [
        Metrics(step=8, time=T0 + 9, values={"eval_loss": 0.7, "epoch": 2.0}),
        Metrics(step=8, time=T0 + 10, values={"train_loss": 0.33, "train_runtime": 5.0, "epoch": 2.0}),
        Metrics(step=9, time=T0 + 11, values={"train_loss": 0.34}),
    ]
    log = logged(tmp_path, records)
    assert [(row["iter"], row["loss"]) for row in log["training_iterations"]] == [(2, 0.5), (4, 0.25), (8, 0.125)]
    assert [row["train_loss"] for row in log["samples"]] == [0.33, 0.34]
    assert [row["train_loss"] for row in log["eval_steps"]] == [0.125]
    assert (log["summary"]["total_iterations"], log["summary"]["final_train_loss"]) == (3, 0.125)


def test_evaluation_and_training_in_one_record(tmp_path: Path) -> None:
    """A record with both gives an evaluation and, where the step has none, an iteration; a real loss replaces it."""
    both = {"train/loss": 3.0, "val/loss": 4.0, "lr": 0.1, "val/acc": 0.5, "tokens": 7}
    records = [Metrics(step=5, time=T0, values=both), Metrics(step=5, time=T0 + 1, values={"train_loss": 2.9})]
    log = logged(tmp_path, records)
    evaluation = {"iter": 5, "train_loss": 3.0, "val_loss": 4.0, "lr": 0.1, "val/acc": 0.5}
    assert evaluation.items() <= log["eval_steps"][0].items()
    (row,) = log["training_iterations"]
    assert (row["loss"], row["tokens"], row["lr"]) == (2.9, 7, 0.1)


def test_evaluation_gets_the_loss_of_its_step(tmp_path: Path) -> None:
    """An evaluation alone takes the loss of its own iteration, even when that comes after it."""
    records = [
        Metrics(step=4, time=T0, values={"loss": 9.0, "learning_rate": 0.5}),
        Metrics(step=5, time=T0 + 1, values={"val_loss": 4.0}),
        Metrics(step=5, time=T0 + 2, values={"loss": 8.0}),
    ]
    (evaluation,) = logged(tmp_path, records)["eval_steps"]
    assert (evaluation["train_loss"], evaluation["lr"]) == (8.0, 0.5)


def test_validation_loss_that_comes_after_the_accuracy_of_its_step(tmp_path: Path) -> None:
    steps = range(3)
    calls = [(s, {name: v}) for s in steps for name, v in (("loss", 1.0), ("val/acc", 0.5), ("val/loss", 3.0 - s))]
    log = logged(tmp_path, [Metrics(time=T0 + at, step=s, values=v) for at, (s, v) in enumerate(calls)])
    assert [row["val_loss"] for row in log["eval_steps"]] == [3.0, 2.0, 1.0]
    assert log["summary"]["best_val_loss"] == 1.0


def test_time_per_iteration_leaves_evaluation_and_the_first_step_out(tmp_path: Path) -> None:
    """Without a measured time it comes from the records' times, evaluations left out."""
    records = [
        Metrics(step=0, time=T0, values={"loss": 1.0}),
        Metrics(step=10, time=T0 + 50, values={"loss": 1.0}),
        Metrics(step=20, time=T0 + 60, values={"loss": 1.0}),
        Metrics(step=20, time=T0 + 99, values={"val_loss": 1.0}),
        Metrics(step=30, time=T0 + 109, values={"loss": 1.0}),
        Metrics(step=40, time=T0 + 110, values={"loss": 1.0, "perf/iter_time_sec": 0.25}),
        Metrics(step=50, time=T0 + 111, values={"loss": 1.0, "perf/iter_ms": 500.0, "mfu": -100.0}),
    ]
    log = logged(tmp_path, records)
    assert [row.get("time_ms") for row in log["training_iterations"]] == [None, 5000, 1000, 1000, 250, 500]
    assert log["summary"]["avg_mfu"] is None
    clocked = logged(tmp_path / "clocked", records[:5])
    assert clocked["summary"]["avg_time_ms"] == (50 + 10 + 10) / 30 * 1000


def test_time_per_iteration_leaves_a_loops_pauses_out(tmp_path: Path) -> None:
    """What ``run.loop`` timed apart (a checkpoint after an iteration, an evaluation before its log) is in no time."""
    records = [
        Metrics(step=1, time=T0, values={"loss": 1.0}),
        Metrics(step=2, time=T0 + 2, values={"loss": 1.0}),
        Metrics(step=2, time=T0 + 62, values={"checkpoint-time": 60.0}),
        Metrics(step=3, time=T0 + 64, values={"loss": 1.0}),
        Metrics(step=4, time=T0 + 76, values={"evaluation-time": 10.0}),
        Metrics(step=4, time=T0 + 76, values={"loss": 1.0}),
        Metrics(step=5, time=T0 + 78, values={"loss": 1.0}),
    ]
    log = logged(tmp_path, records)
    assert [row.get("time_ms") for row in log["training_iterations"]] == [None, 2000, 2000, 2000, 2000]
    assert log["summary"]["avg_time_ms"] == 2000


@pytest.mark.parametrize("places", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_what_a_loop_measured_is_in_the_iteration_of_its_step(places: tuple[int, ...], tmp_path: Path) -> None:
    """Records of one step that each time it make one iteration, with the better name's time, whichever came first."""
    several: list[dict[str, Any]] = [
        {"iteration-time": 0.5, "throughput/device/mfu": 0.4},
        {"train_loss": 2.0, "perf/iter_time_sec": 0.25},
        {"grad-norm": 3.0},
    ]
    records = [Metrics(step=s, time=T0 + s, values={"train_loss": 9.0}) for s in (1, 2)]
    records += [Metrics(step=3, time=T0 + 3 + n / 10, values=several[place]) for n, place in enumerate(places)]
    log = logged(tmp_path, records)
    row = log["training_iterations"][-1]
    assert len(log["training_iterations"]) == 3
    assert (row["loss"], row["time_ms"], row["mfu"], row["grad-norm"]) == (2.0, 250.0, 0.4, 3.0)
    assert (row["iteration-time"], row["perf/iter_time_sec"]) == (0.5, 0.25)
    assert log["summary"]["avg_mfu"] == 0.4
    assert "samples" not in log


def test_no_number_makes_invalid_json(tmp_path: Path) -> None:
    """NaN and infinities are strings, big integers stay, and neither spoils the best loss."""
    values = {"loss": math.nan, "a": math.inf, "b": -math.inf, "big": 2**70, "val_loss": math.nan}
    records = [
        Config(time=T0, values={"x": math.nan}),
        Metrics(step=1, time=T0, values=values),
        Metrics(step=2, time=T0, values={"val_loss": 1.0}),
        Summary(time=T0, values={"lost": math.inf}),
    ]
    log = logged(tmp_path, records)
    row = log["training_iterations"][0]
    assert (row["loss"], row["a"], row["b"], row["big"]) == ("NaN", "Infinity", "-Infinity", 2**70)
    assert (log["config"]["x"], log["summary"]["lost"]) == ("NaN", "Infinity")
    assert (log["summary"]["best_val_loss"], log["summary"]["final_train_loss"]) == (1.0, "NaN")


def test_everything_else_is_kept(tmp_path: Path) -> None:
    """Texts, media, artifacts, alerts, tags and the environment have their places."""
    records = [
        Text(step=1, time=T0, values={"note": "hi"}),
        Media(step=1, time=T0, name="pic", type="image", items=[MediaFile(format="png", file="media/a.png")]),
        ArtifactRecord(step=1, time=T0, name="data", type="dataset", files=[ArtifactFile(path="d", uri="s3://d")]),
        Alert(time=T0, title="hot"),
        Info(time=T0, tags=["second"]),
        Environment(time=T0, values={"os": "Linux", "gpu": {"device": "H200"}}),
    ]
    log = logged(tmp_path, records, notes="why")
    assert (log["text"][0]["text"], log["media"][0]["file"], log["alerts"][0]["title"]) == ("hi", "media/a.png", "hot")
    assert log["artifacts"][0]["files"][0]["uri"] == "s3://d"
    assert (log["tags"], log["notes"]) == (["second"], "why")
    assert (log["metadata"]["device"], log["metadata"]["environment"]["os"]) == ("H200", "Linux")


def test_rewind_replaces_what_came_later(tmp_path: Path) -> None:
    """An attempt from a checkpoint supersedes later iterations and evaluations, in the lists and in the summary."""
    first = [Metrics(step=s, time=T0 + s, values={"loss": 5.0, "val_loss": s}) for s in range(60)]
    records = [
        *(Metrics(step=1, time=T0, values={"val_loss": 0.5}), *first),
        Start(time=T0 + 99, attempt=2, from_step=40),
        Metrics(step=41, time=T0 + 100, values={"loss": 4.0}),
    ]
    log = logged(tmp_path, records)
    assert [row["iter"] for row in log["training_iterations"]][-3:] == [39, 40, 41]
    assert log["eval_steps"][-1]["iter"] == 40
    assert (log["summary"]["total_iterations"], log["summary"]["final_train_loss"]) == (42, 4.0)


@pytest.mark.parametrize("damage", ["log", "list"])
def test_lost_file_is_made_again(tmp_path: Path, damage: str) -> None:
    """A log or a list that someone deleted is whole again after the next delivery."""
    records = stream(gpt2())
    run = driver(tmp_path)
    run.deliver(records)
    path = only(tmp_path / "run")
    before = path.read_bytes()
    path.unlink() if damage == "log" else next((tmp_path / "run/json").glob("training*")).unlink()
    run.deliver(records)
    assert path.read_bytes() == before


def test_same_name_in_the_same_second_makes_two_logs(tmp_path: Path) -> None:
    """Two runs never share a log, and one that was killed after reserving its name finds it again."""
    for run_id in ("one", "two"):
        info = run_info(tmp_path / run_id, id=run_id, options={"JSON_DIR": str(tmp_path / "out")})
        run = Driver(JsonTracker, info)
        run.open()
        again = Driver(JsonTracker, info)
        again.deliver(training(3))
        assert again.state["url"] == run.state["url"]
    logs = [load(path) for path in sorted((tmp_path / "out").iterdir())]
    assert sorted(log["run_id"] for log in logs) == ["one", "two"]
    assert all(len(log["training_iterations"]) == 3 for log in logs)


@pytest.mark.slow
def test_saves_are_few_and_never_far_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a save wanted at each step, all saves together write in proportion to the log; time alone saves too."""
    now = [0.0]
    monkeypatch.setattr(JsonTracker, "clock", staticmethod(lambda: now[0]))
    written = []
    real = json_backend.replace

    def counted(*arguments: Any) -> int:
        written.append(real(*arguments))
        return written[-1]

    monkeypatch.setattr(json_backend, "replace", counted)
    records = training(5000, finish=False)
    run = driver(tmp_path, options={"JSON_SAVE_INTERVAL": 1})
    run.open()
    run.write(records, batch=5)
    run_size = only(tmp_path / "run").stat().st_size
    assert sum(written) < 13 * run_size
    assert len(load(only(tmp_path / "run"))["training_iterations"]) > 5000 / 1.11
    count = len(written)
    assert run.tracker is not None
    run.tracker.tick()  # type: ignore[attr-defined]
    assert len(written) == count
    now[0] += 10
    monkeypatch.setattr(json_backend, "SMALL_BYTES", 1 << 30)
    run.tracker.tick()  # type: ignore[attr-defined]
    assert len(load(only(tmp_path / "run"))["training_iterations"]) == 5000
    run.tracker.tick()  # type: ignore[attr-defined]
    assert len(written) == count + 1


def test_log_is_valid_and_running_before_the_end(tmp_path: Path) -> None:
    """While the run goes on its log is complete JSON that says so, with a summary so far."""
    run = driver(tmp_path)
    run.open()
    assert load(only(tmp_path / "run"))["summary"]["status"] == "running"
    run.write(stream(gpt2()))
    run.close(Status("running"))
    log = load(only(tmp_path / "run"))
    assert (log["end_time"], log["summary"]["status"], log["summary"]["total_iterations"]) == (None, "running", 101)


def test_evaluations_only(tmp_path: Path) -> None:
    """The option leaves iterations out of the file, not out of the summary."""
    log = logged(tmp_path, gpt2(), options={"JSON_EVAL_ONLY": "y"})
    assert log["training_iterations"] == []
    assert (len(log["eval_steps"]), log["summary"]["total_iterations"]) == (3, 101)


@pytest.mark.slow
@pytest.mark.heavy
def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """A run of ten times the length needs no more memory to write and to save."""
    peaks = []
    for steps in (2_000, 20_000):
        run = Driver(JsonTracker, run_info(tmp_path / str(steps)))
        run.open()
        tracemalloc.start()
        for first in range(0, steps, 1000):
            rows = [Metrics(step=s, time=T0 + s, values={"loss": s, "b": 1.5}) for s in range(first, first + 1000)]
            run.write(stream(rows, first_seq=first + 1), batch=1000)
        run.close()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(load(only(tmp_path / str(steps)))["training_iterations"]) == steps
    # Assembling copies chunks of 1 MiB, which the short log doesn't fill.
    assert peaks[1] < peaks[0] + 3 * (1 << 20)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.one_of(st.floats(), st.integers(), st.booleans())


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)), max_size=40))
@settings(deadline=None, max_examples=60)
def test_no_value_is_lost(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, dict[str, Any]]]) -> None:
    """Whatever names, values and steps come, in any order: every value is in the log as often as it was logged."""
    directory = tmp_path_factory.mktemp("json")
    records: list[Record] = [
        Metrics(step=step, time=T0 + k, values={f"m/{name}": value for name, value in values.items()})
        for k, (step, values) in enumerate(rows)
    ]
    run = Driver(JsonTracker, run_info(directory))
    run.open()
    run.write(stream(records), batch=3)
    run.close()
    log = load(only(directory))
    found = sorted(
        (row["iter"], name, repr(value))
        for row in log["training_iterations"]
        for name, value in row.items()
        if name.startswith("m/")
    )

    def written(value: Any) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            return repr("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
        return repr(value)

    wanted = sorted((step, f"m/{name}", written(value)) for step, values in rows for name, value in values.items())
    assert found == wanted


def test_automatic_name_carries_its_time_once(tmp_path: Path) -> None:
    """A run named after the script and the time has that time once in its file's name."""
    stamp = datetime.fromtimestamp(T0).strftime("%Y%m%d_%H%M%S")
    info = run_info(tmp_path / "run", name=f"train_{stamp}")
    Driver(JsonTracker, info).deliver(training(3))
    assert [path.name for path in (tmp_path / "run").glob("*.json")] == [f"train_{stamp}.json"]


def test_log_says_what_its_names_were(tmp_path: Path) -> None:
    """Names that the format gives to values are mapped in the log itself, so that nothing is read back as another."""
    records = stream(
        [
            Metrics(step=1, time=T0, values={"train_loss": 2.0, "perf/mfu": 30.0, "iter": 7}),
            Metrics(step=1, time=T0, values={"eval/loss": 1.0}),
        ]
    )
    info = run_info(tmp_path)
    Driver(JsonTracker, info).deliver(records)
    (path,) = [path for path in tmp_path.glob("*.json") if "baseline" in path.name]
    log = json.loads(path.read_text())
    assert log["names"] == {"loss": "train_loss", "mfu": "perf/mfu", "iter_": "iter", "val_loss": "eval/loss"}


def test_nanogpts_two_calls_make_no_iterations_of_their_own(tmp_path: Path) -> None:
    """An evaluation logged before its iteration, with a loss, rate and MFU of its own: 101 iterations, 4,000 ms."""
    records: list[Record] = []
    at = T0
    for step in range(101):
        if step % 50 == 0:
            at += 60
            row = {"train_loss": 6.91, "val_loss": 8.0 - step / 100, "lr": 6e-4, "mfu": 32.0}
            records.append(Metrics(step=step, time=at, values=row))
        at += 4
        values = {
            "loss": 11 - step / 50,
            "time_ms": 19130.8 if step == 0 else 4000.0,
            "mfu": 30 + step / 50,
            "lr": 3e-4,
        }
        records.append(Metrics(step=step, time=at, values=values))
    log = logged(tmp_path, records)
    rows = log["training_iterations"]
    assert [(row["iter"], row["loss"]) for row in rows] == [(step, 11 - step / 50) for step in range(101)]
    evaluations = [(row["iter"], row["train_loss"], row["lr"]) for row in log["eval_steps"]]
    assert evaluations == [(step, 6.91, 6e-4) for step in (0, 50, 100)]
    summary = log["summary"]
    assert (summary["total_iterations"], summary["final_train_loss"], summary["avg_time_ms"]) == (101, 9.0, 4000.0)
    assert summary["avg_mfu"] == pytest.approx(31.0)


NAMES = st.sampled_from(["loss", "train_loss", "train/loss", "val_loss", "eval/loss", "lr", "learning_rate", "mfu",
                         "perf/mfu", "time_ms", "perf/iter_ms", "perf/iter_time_sec", "acc", "iter", "time",
                         "timestamp", "logged"])  # fmt: skip
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.dictionaries(NAMES, st.floats(0.5, 99), min_size=1, max_size=4)), max_size=8
)


@pytest.mark.heavy
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(ROWS)
@example([(1, {"val_loss": 1.0, "loss": 2.0}), (0, {"val_loss": 3.0}), (0, {"loss": 4.0})])
@example([(1, {"val_loss": 1.0, "loss": 2.0}), (0, {"val_loss": 3.0, "loss": 4.0}), (0, {"loss": 5.0})])
@example([(1, {"val_loss": 1.0, "lr": 2.0}), (0, {"eval/loss": 3.0, "lr": 4.0})])
@example([(1, {"val_loss": 1.0, "perf/iter_ms": 2.0}), (0, {"eval/loss": 3.0, "perf/iter_ms": 4.0})])
@example([(1, {"val_loss": 1.0, "loss": 2.0}), (0, {"eval/loss": 3.0, "loss": 4.0}), (0, {"loss": 5.0})])
@example([(1, {"time_ms": 1.0}), (1, {"loss": 2.0, "logged": 3.0, "perf/iter_ms": 4.0})])
@example([(1, {"loss": 1.0}), (1, {"train_loss": 2.0}), (0, {"train_loss": 3.0})])
@example([(0, {"loss": 1.0}), (1, {"loss": 2.0, "train_loss": 1.0}), (0, {"train_loss": 1.0}),
          (0, {"loss": 1.0, "val_loss": 1.0})])  # fmt: skip
@example([(0, {"loss": 0.5, "train_loss": 1.0, "val_loss": 1.0}), (0, {"loss": 1.0, "val_loss": 1.0})])
@example([(0, {"lr": 1.0}), (0, {"train_loss": 1.0, "train/loss": 2.0, "val_loss": 1.0}), (0, {"train/loss": 1.0})])
@example([(0, {"time_ms": 1.0, "loss": 1.0, "val_loss": 1.0}), (0, {"loss": 1.0, "perf/iter_ms": 1.0})])
@example([(1, {"loss": 1.0}), (0, {"loss": 2.0, "val_loss": 3.0}), (0, {"train/loss": 4.0, "eval/loss": 5.0})])
@example([(1, {"iter": 1.0, "loss": 1.0}), (1, {"iter": 2.0, "val_loss": 1.0, "loss": 1.0}), (1, {"iter": 3.0})])
@example([(0, {"lr": 1.0, "train_loss": 2.0, "val/acc": 2.0}), (0, {"lr": 4.0}), (0, {"val/acc": 5.0}),
          (0, {"train_loss": 6.0, "lr": 7.0}), (0, {"lr": 8.0, "val/acc": 9.0, "train_loss": 10.0})])  # fmt: skip
@example([(0, {"val_loss": 1.0, "lr": 2.0, "loss": 3.0}), (1, {"lr": 4.0}), (-1, {"loss": 5.0, "lr": 6.0}),
          (1, {"lr": 7.0, "val_loss": 8.0, "loss": 9.0})])  # fmt: skip
@example([(2, {"val_loss": 0.5, "train_loss": 2.0}), (0, {"loss": 2.0, "val_loss": 0.5}), (0, {"train_loss": 0.5})])
def test_every_value_of_any_loss_comes_back(rows: list[tuple[int, dict[str, float]]]) -> None:
    """Whatever losses, rates, times and evaluations share a step and its records, also the same name several times:
    each value is read as it was logged, in its order. What repeats the same value is one."""
    with tempfile.TemporaryDirectory() as place:
        step, records = 0, []
        for number, (more, values) in enumerate(rows):
            step += more
            records.append(Metrics(step=step, time=T0 + number, values=dict(values)))
        logged(Path(place), [Start(time=T0 - 1, rank=0), *records])
        (run,) = JsonReader().runs(str(only(Path(place, "run"))))
        read = [record for record in JsonReader().read(run) if isinstance(record, Metrics)]
    assert series(read) == series(records)


EVALUATED = ["loss", "val_loss", "eval/loss", "val/acc", "lr", "mfu", "perf/iter_ms", "acc", "time", "epoch"]
EVALUATIONS = st.lists(
    st.tuples(st.integers(0, 9).map(lambda more: more // 9), st.integers(0, 1),
              st.dictionaries(st.sampled_from(EVALUATED), st.sampled_from([1.0, 2.0]), min_size=1, max_size=3)),
    max_size=30,
)  # fmt: skip


@pytest.mark.heavy
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(EVALUATIONS)
@example([(0, 1, {"mfu": 2.0}), (0, 1, {"val_loss": 2.0, "mfu": 1.0}), (0, 1, {"val_loss": 1.0, "mfu": 2.0})])
@example([(0, 0, {"loss": 1.0}), (0, 0, {"loss": 2.0, "eval/loss": 2.0}), (0, 0, {"loss": 1.0})])
@example([(0, 0, {"acc": 2.0}), (0, 0, {"loss": 1.0, "acc": 1.0})])
@example([(0, 0, {"mfu": 2.0, "val_loss": 2.0, "time": 2.0}), (0, 0, {"mfu": 1.0})])
@example([(0, 0, {"loss": 2.0, "lr": 2.0, "val_loss": 2.0}), (0, 0, {"lr": 1.0}), (0, 0, {"perf/iter_ms": 1.0})])
@example([(0, 0, {"epoch": 1.0, "val_loss": 2.0}), *[(0, 0, {"val_loss": 1.0})] * 5, (0, 0, {"epoch": 2.0})])
@example([(0, 0, {"val_loss": 1.0, "mfu": 2.0}), (0, 0, {"val/acc": 2.0, "mfu": 1.0}),
          (0, 0, {"val/acc": 1.0, "val_loss": 1.0, "loss": 1.0}), *[(0, 1, {"val_loss": 2.0})] * 2,
          (0, 0, {"mfu": 1.0})])  # fmt: skip
def test_any_number_of_evaluations_of_a_step_is_read_in_its_order(
    rows: list[tuple[int, int, dict[str, float]]],
) -> None:
    """However many evaluations a step has, and whatever they repeat, also at one time: their values are read in the
    order of their records, each validation loss lies in ``eval_steps``, and the best is the least."""
    step, time, records = 0, T0, []
    for more, later, values in rows:
        step, time = step + more, time + later
        records.append(Metrics(step=step, time=time, values=dict(values)))
    with tempfile.TemporaryDirectory() as place:
        log = logged(Path(place), [Start(time=T0 - 1, rank=0), *records])
        (run,) = JsonReader().runs(str(only(Path(place, "run"))))
        read = [record for record in JsonReader().read(run) if isinstance(record, Metrics)]
    wanted = series(records)
    assert series(read) == wanted
    name = log["names"].get("val_loss", "val_loss")
    evaluations = [Metrics(step=row["iter"], time=T0, values={name: row["val_loss"]})
                   for row in log["eval_steps"] if row["val_loss"] is not None]  # fmt: skip
    losses = {key: values for key, values in wanted.items() if key[0] == name}
    assert series(evaluations) == losses
    assert log["summary"]["best_val_loss"] == min((value for found in losses.values() for value in found), default=None)


def series(records: Sequence[Record]) -> dict[tuple[str, int | None], list[Any]]:
    """The values of each name and step, in their order; of equal ones that follow each other one."""
    found: dict[tuple[str, int | None], list[Any]] = {}
    for record in records:
        for name, value in record.values.items() if isinstance(record, Metrics) else ():
            if found.setdefault((name, record.step), [])[-1:] != [value]:
                found[name, record.step].append(value)
    return found


def test_what_training_printed_is_a_file_beside_the_log(tmp_path: Path) -> None:
    """Each line once, though a delivery was killed between; a run that printed nothing has none."""
    info = run_info(tmp_path / "run", cwd=str(tmp_path))
    check_console_file(functools.partial(Driver, JsonTracker, info), tmp_path)
