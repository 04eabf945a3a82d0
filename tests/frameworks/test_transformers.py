"""``TrackersCallback`` in Transformers' own Trainer, training a tiny model, read back from the stores."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import trackers
from tests.frameworks.support import READ, directories, info_of, journal
from trackers.errors import UsageError
from trackers.frameworks.transformers import TrackersCallback

JSON_NAMES = {"train/loss": "loss", "eval/loss": "val_loss"}
"""What the JSON log calls losses, whatever they were logged as."""


def tokens() -> list[dict[str, list[int]]]:
    """Eight rows of the same tokens: with a batch of two, four steps are an epoch."""
    return [{"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]} for _ in range(8)]


def model() -> Any:
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=16, n_positions=8))


def trainer(*callbacks: Any, **options: Any) -> Any:
    given: dict[str, Any] = {
        "output_dir": "out", "num_train_epochs": 2, "per_device_train_batch_size": 2, "logging_steps": 1,
        "eval_strategy": "epoch", "save_strategy": "no", "report_to": [], "disable_tqdm": True, "use_cpu": True,
        **options,
    }  # fmt: skip
    made = Trainer(
        model=model(), args=TrainingArguments(**given), train_dataset=tokens(), eval_dataset=tokens(),
        callbacks=list(callbacks),
    )  # fmt: skip
    return made


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.setenv("TRACKER_MODE", "offline")


def points(run: Any, name: str) -> list[tuple[int, float]]:
    """Steps and values of a metric of a run, or of the run in a directory."""
    frame = trackers.load(str(getattr(run, "dir", run))).metrics([name]).to_pandas()
    return [(int(step), float(value)) for step, value in zip(frame["step"], frame[name], strict=True)]


@pytest.mark.processes
def test_two_epochs_reach_every_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each store has the Trainer's own log at its global steps, the results, the configuration and the end."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').absolute()}")
    callback = TrackersCallback("json,tensorboard,mlflow,trackio,wandb", project="p", config={"seed_of_mine": 7})
    one = trainer(callback, run_name="n")
    one.train()
    one.evaluate()
    one.predict(tokens())
    callback.run.finish(timeout=120)
    expected: dict[str, dict[int, float]] = {}
    results = {}
    for row in one.state.log_history:
        for name, value in row.items():
            if name in ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss",
                        "total_flos"):  # fmt: skip
                results[f"final/{name}"] = value
            elif name != "step":
                renamed = f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}"
                expected.setdefault(renamed, {})[row["step"]] = value
    assert set(expected["train/loss"]) == set(range(1, 9))
    assert set(expected["eval/loss"]) == {4, 8}
    info = info_of(callback.run)
    for tracker, read in READ.items():
        stored = read(info)
        for name, values in expected.items():
            there = JSON_NAMES.get(name, name) if tracker == "json" else name
            found = {point.step: point.value for point in stored.metrics[there]}
            assert found == pytest.approx(values, rel=1e-6), (tracker, name)
        assert [point.step for point in stored.metrics["test/loss"]] == [8], tracker
        summary = stored.summary or {}
        assert {name: summary[name if name in summary else name[6:]] for name in results} == pytest.approx(
            results, rel=1e-6
        ), tracker
        assert stored.status in ("finished", "FINISHED"), tracker
        if stored.config is not None:
            config = {
                name: stored.config[name] for name in ("seed_of_mine", "num_train_epochs", "model/num_parameters")
            }
            parameters = sum(parameter.numel() for parameter in one.model.parameters())
            assert config == {"seed_of_mine": 7, "num_train_epochs": 2, "model/num_parameters": parameters}, tracker
            assert stored.config["model"]["n_embd"] == 8, tracker
        assert stored.name in ("n", None), tracker


@pytest.mark.usefixtures("_offline")
def test_report_to_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the module is enough for ``report_to=["trackers"]``; two Trainers in a process have a run each."""
    for name in ("one", "two"):
        trainer(report_to=["trackers"], run_name=name, max_steps=2).train()
    found = {trackers.load(str(path)).run.name: path for path in Path("runs").glob("*/*")}
    assert set(found) == {"one", "two"}
    for path in found.values():
        assert [step for step, _ in points(path, "train/loss")] == [1, 2]
    assert trackers.load(str(found["one"])).status == "finished"


@pytest.mark.usefixtures("_offline")
def test_users_run_is_used_and_left_open() -> None:
    """A run that the script began gets everything and isn't ended."""
    run = trackers.init("json", project="mine")
    callback = TrackersCallback()
    trainer(callback, max_steps=1).train()
    assert callback.run is run
    assert not run.finished
    run.finish()
    assert [step for step, _ in points(run, "train/loss")] == [1]


@pytest.mark.usefixtures("_offline")
def test_bad_option_is_an_error_before_the_first_step() -> None:
    """An unknown tracker stops train at once, an unknown log_model the constructor."""
    with pytest.raises(UsageError, match="unknown tracker 'jsonn'"):
        trainer(TrackersCallback("jsonn")).train()
    with pytest.raises(ValueError, match="log_model='some': known are"):
        TrackersCallback(log_model="some")


@pytest.mark.usefixtures("_offline")
def test_other_processes_than_the_zeroth_do_nothing() -> None:
    """Elsewhere no run is begun and nothing is logged."""
    callback = TrackersCallback("json")
    state = SimpleNamespace(is_world_process_zero=False, is_hyper_param_search=False, global_step=0)
    callback.on_train_begin(None, state, None)
    callback.on_log(None, state, None, logs={"loss": 1.0})
    callback.on_save(None, state, None)
    callback.on_predict(None, state, None, metrics={"test_loss": 1.0})
    callback.on_train_end(None, state, None)
    assert callback.run is None
    assert not Path("runs").exists()


class _Stop(transformers.TrainerCallback):  # type: ignore[misc]
    """Fails at a step, as a lost process does."""

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 6:
            raise RuntimeError("preempted")


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_checkpoint_continues_its_run_from_its_step(elsewhere: bool) -> None:
    """``resume_from_checkpoint`` goes on with the run of the checkpoint; steps after it are replaced."""
    first = TrackersCallback("json", project="p")
    with pytest.raises(RuntimeError, match="preempted"):
        trainer(first, _Stop(), save_strategy="steps", save_steps=4).train()
    assert [step for step, _ in points(first.run, "train/loss")] == [1, 2, 3, 4, 5]
    if elsewhere:  # as a process that begins anew
        first.run.finish(exit_code=1)
    second = TrackersCallback("json") if elsewhere else first
    trainer(second, save_strategy="steps", save_steps=4).train(resume_from_checkpoint=True)
    second.run.finish()
    assert second.run.id == first.run.id
    (only,) = Path("runs/p").iterdir()
    assert [step for step, _ in points(only, "train/loss")] == list(range(1, 9))
    assert [record.get("from_step") for record in journal(only) if record["kind"] == "start"] == [None, 4]
    assert trackers.load(str(only)).status == "finished"


@pytest.mark.usefixtures("_offline")
def test_checkpoints_and_the_model_are_artifacts() -> None:
    """Checkpoints, and the model at the end, are kept as they were; the best metric is a result."""
    callback = TrackersCallback("json", project="p", log_model="checkpoint")
    options = {"save_strategy": "epoch", "load_best_model_at_end": True, "metric_for_best_model": "loss"}
    one = trainer(callback, save_total_limit=1, **options)
    one.train()
    end = TrackersCallback("json", project="q", log_model="end")
    trainer(end, **options).train()
    for run in (callback.run, end.run):
        run.finish()
    found = [record for record in journal(callback.run) if record["kind"] == "artifact"]
    assert [record["aliases"][0] for record in found] == ["step-4", "step-8"]
    assert "best" in found[-1]["aliases"]
    assert {record["type"] for record in found} == {"model"}
    for record in found:
        assert {"model.safetensors", "trainer_state.json"} <= {file["path"] for file in record["files"]}
        assert all(Path(callback.run.dir, file["file"]).is_file() for file in record["files"])
    summary = trackers.load(callback.run.dir).summary
    assert summary["best_metric"] == pytest.approx(one.state.best_metric)
    (model,) = [record for record in journal(end.run) if record["kind"] == "artifact"]
    assert {"model.safetensors", "config.json"} <= {file["path"] for file in model["files"]}


@pytest.mark.usefixtures("_offline")
def test_each_trial_of_a_search_is_a_run_of_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are runs named one after the other, with their parameters; one that broke off is a failed one."""
    callback = TrackersCallback("json", project="p", name="search")
    for number, rate in enumerate((0.1, 0.2, 0.3)):
        state = transformers.TrainerState(is_world_process_zero=True, is_hyper_param_search=True)
        state.trial_params = {"learning_rate": rate}
        args = TrainingArguments("out", learning_rate=rate, use_cpu=True, report_to=[])
        callback.on_train_begin(args, state, None, model=torch.nn.Linear(1, 1))
        state.global_step = 1
        callback.on_log(args, state, None, logs={"loss": rate})
        if number != 1:
            callback.on_train_end(args, state, None)
    callback.run.finish()
    found = sorted((trackers.load(str(path)) for path in Path("runs/p").iterdir()), key=lambda one: str(one.run.name))
    assert [one.run.name for one in found] == ["search-1", "search-2", "search-3"]
    assert {one.run.group for one in found} == {"out"}
    assert [one.status for one in found] == ["finished", "failed", "finished"]
    assert [one.config["trial"] for one in found] == [{"learning_rate": rate} for rate in (0.1, 0.2, 0.3)]


@pytest.mark.slow
@pytest.mark.usefixtures("_offline")
def test_search_with_optuna() -> None:
    """``hyperparameter_search`` of Transformers: a run for each trial, with its parameters and its evaluation."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    callback = TrackersCallback("json", project="p", group="rates")
    one = trainer(callback, max_steps=2)
    one.model_init = lambda trial=None: model()
    space = {"learning_rate": [0.1, 0.01], "seed": [1, 2]}
    rates = []

    def chosen(trial: Any) -> dict[str, Any]:
        given = {name: trial.suggest_categorical(name, values) for name, values in space.items()}
        rates.append(given["learning_rate"])
        return given

    one.hyperparameter_search(chosen, n_trials=2, backend="optuna", hp_name=lambda trial: f"trial-{trial.number}")
    callback.run.finish()
    found = sorted((trackers.load(str(path)) for path in Path("runs/p").iterdir()), key=lambda one: str(one.run.name))
    assert [one.run.name for one in found] == ["trial-0", "trial-1"]
    assert {one.run.group for one in found} == {"rates"}
    assert {one.status for one in found} == {"finished"}
    for data, rate in zip(found, rates, strict=True):
        assert data.config["learning_rate"] == rate
        assert {"train/loss", "eval/loss", "final/train_runtime"} <= set(data.keys())


PARALLEL = """
from tests.frameworks.test_transformers import trainer
one = trainer(report_to=["trackers"], run_name="n", max_steps=2)
one.train()
assert one.args.world_size == 2
"""


@pytest.mark.soak
def test_two_processes_are_one_run_of_the_first() -> None:
    """In torchrun's environment the Trainer trains in two processes, and the world's process zero alone records."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PARALLEL], env={**os.environ, **place, "RANK": rank, "LOCAL_RANK": rank}
        )
        for rank in ("0", "1")
    ]
    assert [process.wait(timeout=150) for process in started] == [0, 0]
    (path,) = directories()
    assert [step for step, _ in points(path, "train/loss")] == [1, 2]
    assert trackers.load(str(path)).status == "finished"


FAILING = """
import transformers
from tests.frameworks.test_transformers import _Stop, trainer
trainer(_Stop(), report_to=["trackers"], run_name="n").train()
"""


@pytest.mark.slow
def test_failed_training_ends_as_failed() -> None:
    """A script that an exception ends leaves a failed run with the reason."""
    done = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, timeout=170)
    assert "RuntimeError: preempted" in done.stderr
    (path,) = Path("runs").glob("*/*")
    assert trackers.load(str(path)).status == "failed"
    assert any(record.get("reason") == "RuntimeError: preempted" for record in journal(path))
