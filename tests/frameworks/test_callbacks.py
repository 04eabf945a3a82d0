"""``trackers.BenchmarkCallback``: steps measured in Lightning's trainer and in a plain loop, written at their end."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import trackers
from tests.fakes.cuda import Cuda
from tests.helpers import Time
from trackers.errors import UsageError
from trackers.hardware import host
from trackers.instruments import timers
from trackers.training.run import Run

RESULTS = Path("benchmark_results")


def only() -> dict[str, Any]:
    """The one result there is."""
    (path,) = RESULTS.glob("benchmark_*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The processor's clock of the timers, moved by hand."""
    clock = Time(100.0)
    monkeypatch.setattr(timers, "time", clock)
    return clock


def by_hand(clock: Time, seconds: list[float], **options: Any) -> trackers.BenchmarkCallback:
    """A plain loop of steps that take so long; the callback after its end."""
    callback = trackers.BenchmarkCallback(**options)
    callback.on_train_start()
    for number, second in enumerate(seconds, 1):
        clock.now += second
        callback.on_train_batch_end(loss=torch.tensor(4.0 - number), learning_rate=0.5)
    callback.on_train_end()
    return callback


def test_plain_loop_without_a_run(clock: Time) -> None:
    """Times, losses and rates of a loop by hand are in the file, the first step apart; sizes give tokens/s."""
    sizes = {"global_batch_size": 8, "sequence_length": 128, "max_steps": 4, "micro_batch_size": 4}
    callback = by_hand(clock, [60.0, 1.0, 2.0, 3.0], model_name="llama", **sizes)
    document = only()
    assert callback.path is not None
    assert callback.path.name == next(RESULTS.iterdir()).name
    assert callback.result == document
    assert document["platform"] == "cpu"
    assert document["gpu_info"]["pytorch_version"] == torch.__version__
    assert document["raw_step_times"] == pytest.approx([1.0, 2.0, 3.0])
    assert document["steps"] == [2, 3, 4]
    assert document["loss_values"] == [2.0, 1.0, 0.0]
    assert document["learning_rates"] == [0.5, 0.5, 0.5]
    assert document["training_config"] == {
        "max_steps": 4, "global_batch_size": 8, "micro_batch_size": 4, "sequence_length": 128, "num_gpus": 0,
    }  # fmt: skip
    performance = document["performance_metrics"]
    assert (performance["total_steps"], performance["warmup_steps"]) == (4, 1)
    assert performance["avg_step_time_seconds"] == pytest.approx(2.0)
    assert performance["tokens_per_second"] == pytest.approx(8 * 128 / 2.0)
    assert (document["source"]["model_name"], document["source"]["status"]) == ("llama", "finished")


def test_evaluations_and_checkpoints_are_left_out(clock: Time) -> None:
    """What passes in an evaluation, and from a checkpoint to the next batch, is in no step."""
    callback = trackers.BenchmarkCallback()
    callback.on_train_start()
    for step in range(4):
        callback.on_train_batch_start()
        clock.now += 1.0
        callback.on_train_batch_end(loss=1.0)
        if step == 1:
            callback.on_validation_start()
            clock.now += 50.0
            callback.on_save_checkpoint()
            clock.now += 7.0
            callback.on_validation_end()
        if step == 2:
            callback.on_save_checkpoint()
            clock.now += 9.0
    callback.on_train_end()
    assert only()["raw_step_times"] == pytest.approx([1.0, 1.0, 1.0])


def test_through_a_run_every_tracker_has_the_values(clock: Time) -> None:
    """With a run, its trackers get each step, its configuration the sizes; the result is kept with it."""
    run = trackers.init("json", project="p", name="n", config={"block_size": 64}, mode="offline")
    assert isinstance(run, Run)
    callback = by_hand(clock, [9.0, 1.0, 1.0], global_batch_size=4)
    run.finish()
    document = only()
    assert document["source"]["run_id"] == run.id
    assert document["training_config"]["sequence_length"] == 64
    assert document["performance_metrics"]["tokens_per_second"] == pytest.approx(4 * 64)
    data = trackers.load(run.dir)
    assert list(data.metrics(["perf/iter_time_sec"]).to_pandas()["perf/iter_time_sec"]) == [9.0, 1.0, 1.0]
    assert data.config == {"block_size": 64, "global_batch_size": 4}
    (artifact,) = [json.loads(line) for line in Path(run.dir, "streams/rank-0.1.jsonl").read_text().splitlines()
                   if '"artifact"' in line]  # fmt: skip
    assert artifact["type"] == "benchmark"
    assert callback.path is not None
    assert Path(run.dir, artifact["files"][0]["file"]).read_bytes() == callback.path.read_bytes()


def test_with_the_tracker_there_is_one_file(clock: Time) -> None:
    """Callback and tracker of one run write one file, the tracker's last, with the same figures."""
    run = trackers.init("benchmark", project="p", name="n", inline=True)
    callback = by_hand(clock, [9.0, 1.0, 3.0], global_batch_size=4, sequence_length=16)
    first = only()
    run.finish()
    second = only()
    assert callback.result is not None
    assert first.pop("source")["format"] == "callback"
    assert second.pop("source")["format"] == "run"
    for document in (first, second):
        document.pop("timestamp")  # the journal's clock and the callback's may fall into two seconds
    assert first == second


def test_loop_that_fails_has_what_it_measured(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    """After an exception the result holds the steps until then and says that it failed."""
    callback = trackers.BenchmarkCallback()
    callback.on_train_start()
    for _ in range(3):
        clock.now += 1.0
        callback.on_train_batch_end(loss=1.0)
    callback.on_exception(exception=RuntimeError("CUDA out of memory"))
    callback.on_train_end()
    document = only()
    assert document["source"]["status"] == "failed"
    assert document["raw_step_times"] == pytest.approx([1.0, 1.0])


def test_fault_of_the_callback_never_stops_training(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    """A loss that is none, a place that was taken meanwhile: said once, in a line, and training goes on."""
    callback = trackers.BenchmarkCallback()
    callback.on_train_start()
    for _ in range(3):
        callback.on_train_batch_end(loss=object())
    RESULTS.rmdir()
    RESULTS.write_text("")
    callback.on_train_batch_end(loss=1.0)
    callback.on_train_end()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "BenchmarkCallback.on_train_batch_end" in said[0]
    assert "BenchmarkCallback.on_train_end" in said[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"platform": "tpu"}, "platform 'tpu': known are auto, cuda, rocm, cpu"),
        ({"global_batch_size": 0}, "global_batch_size=0: give a whole number, 1 or more"),
        ({"sequence_length": 1.5}, "sequence_length=1.5: give a whole number"),
    ],
)
def test_bad_arguments_are_errors_before_training(options: dict[str, Any], said: str) -> None:
    """What can be seen before the first step is one clear line."""
    with pytest.raises(UsageError, match=said):
        trackers.BenchmarkCallback(**options)


def test_place_that_cannot_be_made_is_an_error_before_training() -> None:
    """So is a directory that can't be made."""
    Path("file").write_text("")
    with pytest.raises(UsageError, match="file/below can't be made"):
        trackers.BenchmarkCallback("file/below").on_train_start()


def test_other_ranks_write_nothing(
    clock: Time, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several ranks the first alone writes, and says how many there were; the others say nothing."""
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        by_hand(clock, [1.0, 1.0], platform="cuda", global_batch_size=2, sequence_length=8)
    document = only()
    assert document["training_config"]["num_gpus"] == 2
    assert document["performance_metrics"]["tokens_per_second_per_gpu"] == pytest.approx(8.0)
    assert "BenchmarkCallback" not in capsys.readouterr().err


class FakeCuda(Cuda):
    """A GPU on paper, with the allocator's books and a name."""

    allocated = 3e9

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        both = {"all": {"current": self.allocated, "peak": 2 * self.allocated}}
        return {"allocated_bytes": both, "reserved_bytes": both}

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=80 * 1024**3)

    def synchronize(self) -> None:
        self.synchronized += 1
        self.run(self.queued_ms - self.done_ms)


def test_gpu_is_waited_for_once_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are the GPU's own, known though it is far behind; no step waits for it, the end does, once."""
    cuda = FakeCuda()
    module = SimpleNamespace(cuda=cuda, __version__="2.9.0", version=SimpleNamespace(hip=None, cuda="12.8"))
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(host, "gpus", dict)
    callback = trackers.BenchmarkCallback(global_batch_size=2, sequence_length=8)
    callback.on_train_start()
    for milliseconds in (9000.0, 250.0, 750.0):
        cuda.work(milliseconds)
        callback.on_train_batch_end(loss=1.0)
        assert (cuda.done_ms, cuda.synchronized) == (0.0, 0)
    callback.on_train_end()
    assert cuda.synchronized == 1
    document = only()
    assert document["platform"] == "cuda"
    assert document["raw_step_times"] == pytest.approx([0.25, 0.75])
    assert document["gpu_info"] == {
        "device_count": 1, "device_name": "NVIDIA H100 80GB HBM3", "total_memory_gb": 80.0, "platform": "cuda",
        "gpu_cores": 16896, "pytorch_version": "2.9.0", "cuda_version": "12.8",
    }  # fmt: skip
    gib = 1e9 / 1024**3
    assert document["memory_metrics"]["avg_memory_allocated_gb"] == pytest.approx(3 * gib)
    assert document["memory_metrics"]["peak_memory_reserved_gb"] == pytest.approx(6 * gib)


def lightning_parts(name: str, clock: Time, fails_at: int = -1) -> tuple[Any, Any]:
    """Lightning under one of its two names, and a small module of it: a batch takes a second, an evaluation fifty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = __import__(name, fromlist=["Trainer"])

    class Small(module.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)
            self.losses: list[float] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == fails_at:
                raise RuntimeError("broken")
            clock.now += 1.0
            loss = self.layer(batch[0]).square().mean()
            self.losses.append(float(loss))
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            clock.now += 50.0

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.125)

    return module, Small()


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.filterwarnings("ignore")
def test_real_lightning_trainer(name: str, clock: Time) -> None:
    """In Lightning's own trainer, under both its names: optimizer steps without evaluations, mean losses, sizes."""
    module, model = lightning_parts(name, clock)
    callback = trackers.BenchmarkCallback(sequence_length=16)
    assert isinstance(callback, module.Callback)
    assert isinstance(callback, trackers.BenchmarkCallback)
    data = TensorDataset(torch.randn(48, 8))
    trainer = module.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=True,
        enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=2, val_check_interval=6,
    )  # fmt: skip
    trainer.fit(model, DataLoader(data, batch_size=4), DataLoader(data, batch_size=48))
    document = only()
    losses = [(one + two) / 2 for one, two in zip(model.losses[::2], model.losses[1::2], strict=True)]
    assert document["steps"] == [2, 3, 4, 5, 6]
    assert document["loss_values"] == pytest.approx(losses[1:], rel=1e-5)
    assert document["learning_rates"] == [0.125] * 5
    assert document["training_config"] == {
        "max_steps": 6, "global_batch_size": 8, "micro_batch_size": 4, "sequence_length": 16, "num_gpus": 0,
    }  # fmt: skip
    assert document["performance_metrics"]["total_steps"] == 6
    assert document["raw_step_times"] == pytest.approx([2.0] * 5)
    assert document["source"]["status"] == "finished"


@pytest.mark.filterwarnings("ignore")
def test_lightning_run_that_fails_has_a_result(clock: Time) -> None:
    """An exception in a training step reaches the user, and the result says that training failed."""
    module, model = lightning_parts("lightning.pytorch", clock, fails_at=3)
    trainer = module.Trainer(max_epochs=1, accelerator="cpu", callbacks=[trackers.BenchmarkCallback()], logger=False,
                             enable_checkpointing=False, enable_progress_bar=False,
                             enable_model_summary=False)  # fmt: skip
    data = DataLoader(TensorDataset(torch.randn(4, 8)), batch_size=1)
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(model, data)
    assert (only()["steps"], only()["source"]["status"]) == ([2, 3], "failed")


def test_nemo_style_sizes_come_from_the_data_module(clock: Time) -> None:
    """A trainer whose data module is NeMo's says the sizes of a step by itself."""
    data = SimpleNamespace(global_batch_size=128, micro_batch_size=2, seq_length=4096)
    trainer = SimpleNamespace(datamodule=data, global_rank=0, world_size=8, global_step=0, max_steps=3, optimizers=[])
    callback = trackers.BenchmarkCallback(platform="cuda")
    callback.on_train_start(trainer, None)
    for step in (1, 2, 3):
        clock.now += 2.0
        trainer.global_step = step
        callback.on_train_batch_end(trainer, None, {"loss": torch.tensor(1.5)}, None, step)
    callback.on_train_end(trainer, None)
    document = only()
    assert document["training_config"] == {
        "max_steps": 3, "global_batch_size": 128, "micro_batch_size": 2, "sequence_length": 4096, "num_gpus": 8,
    }  # fmt: skip
    assert document["performance_metrics"]["tokens_per_second_per_gpu"] == pytest.approx(128 * 4096 / 2 / 8)
    assert document["loss_values"] == [1.5, 1.5]


class Mine(trackers.BenchmarkCallback):
    """A user's own."""


@pytest.mark.parametrize("kind", [trackers.BenchmarkCallback, Mine])
def test_callback_can_be_copied_and_pickled(kind: type[trackers.BenchmarkCallback]) -> None:
    """Trainers that start processes copy their callbacks: a copy is of the same class, and works."""
    callback = kind(global_batch_size=8)
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert isinstance(other, kind)
        other.on_train_start()
        other.on_train_batch_end(loss=1.0)
        other.on_train_end()
    callback.on_train_start()
    callback.on_train_batch_end(loss=1.0)
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):  # while it measures
        other.on_train_start()
        other.on_train_end()
    callback.on_train_batch_end(loss=1.0)
    callback.on_train_end()
    assert callback.result is not None
    assert len(list(RESULTS.iterdir())) == 5


@pytest.mark.slow
def test_callback_loads_neither_lightning_nor_torch() -> None:
    """A plain loop pays for no framework that it doesn't use."""
    code = (
        "import sys, trackers; c = trackers.BenchmarkCallback(); c.on_train_start(); c.on_train_batch_end(loss=1.0); "
        "c.on_train_batch_end(loss=2.0); c.on_train_end(); "
        "print(*[m for m in ('torch', 'lightning', 'pytorch_lightning', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert only()["loss_values"] == [2.0]
