"""Tensor inspection in a run: with its loop and without, Megatron's log, several ranks, the example."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import trackers
from benchmarks import inspection as benchmark
from tests import ROOT, forked
from tests.inspection.test_inspector import Mlp, section
from tests.inspection.test_nvinspect import fields
from trackers.inspection import TensorInspectConfig
from trackers.inspection.inspector import Inspector, NoInspector
from trackers.inspection.statistics import FOLDER
from trackers.journal.stream import StreamReader
from trackers.records import Metrics

EXAMPLE = ROOT / "examples/gpt2/train.py"


def journal(run: Any) -> list[tuple[int, dict[str, Any]]]:
    found = StreamReader(Path(run.dir, "streams/rank-0.1.jsonl")).read(100_000)
    return [(record.step, record.values) for record in found if isinstance(record, Metrics)]


def test_run_inspects_with_its_loop(capfd: pytest.CaptureFixture[str]) -> None:
    """The option and run.loop are enough: values at the iterations of the format, beside the loop's own, in the run's
    journal and in its text log; after finish nothing is left in the model.
    """
    Path("conf.yaml").write_text(yaml.safe_dump(section(freq=2, stats=["max", "std"])))
    options = {"TRACKER_RELAY": False, "TRACKER_TENSOR_INSPECT": "conf.yaml"}
    run = trackers.init("json", project="p", mode="offline", options=options)
    model = Mlp()
    loop = run.loop(total_steps=5, model=model, interval=1)
    for _ in range(5):
        model(torch.ones(3, 6)).sum().backward()
        loop.step()
    assert isinstance(run.inspection, Inspector)
    run.finish()
    assert not any(module._forward_hooks for module in model.modules())
    rows = [(step, values) for step, values in journal(run) if "model.fc1_activation_max" in values]
    assert [step for step, _ in rows] == [0, 2, 4]
    assert all(values["model.fc1_activation_max"] == 1.0 for _, values in rows)
    assert all(values["model.fc1_activation_std"] == 0.0 for _, values in rows)
    text = Path(run.dir, "tensor_inspect", FOLDER, "nvdlfw_inspect_globalrank-0.log").read_text().splitlines()
    assert [fields(one) for one in text] == [
        (name, step, pytest.approx(value, abs=1e-4)) for step, values in rows for name, value in values.items()
    ]
    assert "tensor inspection" not in capfd.readouterr().err


def test_run_inspects_without_a_loop() -> None:
    """By hand: started before the model, attached to it, told of each step; a new one takes the old one's place."""
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    assert isinstance(run.inspect(), NoInspector)
    config = TensorInspectConfig(enabled=True, features=section(), log_dir="logs", init_training_step=7)
    first = run.inspect(config)
    inspector = run.inspect(config)
    model = Mlp()
    inspector.attach(model)
    for _ in range(2):
        model(torch.full((3, 6), 3.0))
        inspector.step()
    first.step()
    run.inspect(TensorInspectConfig(features=section()))
    assert not any(module._forward_pre_hooks for module in model.modules())
    run.finish()
    rows = [(step, values["model.fc1_activation_max"]) for step, values in journal(run)]
    assert rows == [(7, 3.0), (8, 3.0)]
    assert len(Path("logs", FOLDER, "nvdlfw_inspect_globalrank-0.log").read_text().splitlines()) == 4
    off = trackers.init(mode="disabled")
    off.inspect("no file", model).step()
    off.finish()


def test_run_of_megatrons_kind_inspects_too() -> None:
    """trackers.frameworks.megatron's log: asked of its run, also later; each training_log ends an iteration."""
    from trackers.frameworks.megatron import LoggerConfig, start

    model = Mlp()
    config = LoggerConfig(log_interval=1)
    log = start(config, trackers=["json"], init={"mode": "offline", "options": {"TRACKER_RELAY": False}},
                train_iters=2, global_batch_size=1, model=model, write=lambda text: None)  # fmt: skip
    log.run.inspect(TensorInspectConfig(enabled=True, features=section()), model)
    for iteration in (1, 2):
        model(torch.ones(1, 6))
        log.training_log({"lm loss": 1.0}, {}, 0.1, None, iteration, 1.0, False, 0, None, None, None)
    log.run.finish()
    assert [step for step, values in journal(log.run) if "model.fc1_activation_max" in values] == [0, 1]


def rows_with(name: str) -> dict[int, dict[str, Any]]:
    """The rows of the one JSON log that have this value, by step."""
    (path,) = [path for path in Path().rglob("job_*.json") if "training_iterations" in path.read_text()]
    content = json.loads(path.read_text())
    return {row["iter"]: row for rows in content.values() if isinstance(rows, list) for row in rows if name in row}


RANKS = """
import sys, torch, trackers, yaml
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 2)))
run = trackers.init("json", project="p", name="job", options={"TRACKER_TENSOR_INSPECT": "conf.yaml"})
loop = run.loop(2, model=model, start_step=0)
torch.manual_seed(rank)
for step in range(2):
    x = torch.randn(4 + rank, 3) * (rank + 1)
    torch.save(x, f"x-{step}-{rank}.pt")
    model(x).sum().backward()
    loop.step()
run.finish()
dist.barrier()
dist.destroy_process_group()
import os; os._exit(0)
"""

SHARDED = """
import torch, trackers
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from trackers.inspection.inspector import Inspector
dist.init_process_group("gloo")
tensors = ["activation", "gradient", "weight", "output", "wgrad", "dgrad"]
wanted = {"LogTensorStats": {"enabled": True, "tensors": tensors, "stats": ["l2_norm"]}}
layers = {"layer_name_regex_pattern": ".*"}
config = trackers.inspection.TensorInspectConfig(
    enabled=True, features={"all": {"enabled": True, "layers": layers, "transformer_engine": wanted}})
found = []
for sharded in (False, True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5))
    if sharded:
        mesh = init_device_mesh("cpu", (2,))
        for part in (model[0], model[2], model): fully_shard(part, mesh=mesh)
    inspector = Inspector(lambda values, step: found.append(values), print, config)
    inspector.attach(model)
    model(torch.randn(4, 6)).square().sum().backward()
    inspector.step()
    inspector.close()
assert len(found[0]) == 11 and found[0].keys() == found[1].keys()
assert all(abs(found[1][name] / value - 1) < 1e-5 for name, value in found[0].items()), found
dist.barrier()
dist.destroy_process_group()
import os; os._exit(0)
"""


def launch_two(program: str) -> None:
    """Run a program on two ranks."""
    Path("ranks.py").write_text(program)
    done = forked.run([sys.executable, "ranks.py"], preload=forked.TORCH, ranks=2, timeout=150)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="needs FSDP2 on processors: a newer torch")
def test_sharded_tensors_numbers_are_the_whole_ones() -> None:
    """Sharded by FSDP2, all six tensors have the numbers that they have unsharded."""
    launch_two(SHARDED)


def test_ranks_numbers_are_put_together() -> None:
    """Under DDP the numbers are those of all ranks' tensors as one, though their sizes differ; weights are weights."""
    stats = ["min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"]
    features = section(stats=stats, tensors=["activation", "weight"])
    fp8 = {
        "enabled": True,
        "tensors": ["activation"],
        "stats": ["underflows%", "mse", "scale_inv_max", "scale_inv_min"],
    }
    features["s"]["transformer_engine"]["LogFp8TensorStats"] = fp8
    Path("conf.yaml").write_text(yaml.safe_dump(features))
    launch_two(RANKS)
    rows = rows_with("model.0_activation_min")
    for step in (0, 1):
        parts = [torch.load(f"x-{step}-{rank}.pt") for rank in (0, 1)]
        whole = torch.cat(parts).double()
        size = whole.abs()
        expected = {
            "min": whole.min(), "max": whole.max(), "mean": whole.mean(), "std": whole.std(), "l1_norm": size.sum(),
            "l2_norm": whole.norm(), "cur_amax": size.max(), "dynamic_range": (size.max() / size.min()).log2(),
            "scale_inv_max": max(part.abs().max() for part in parts) / 448,
            "scale_inv_min": min(part.abs().max() for part in parts) / 448,
        }  # fmt: skip
        for stat, value in expected.items():
            assert rows[step][f"model.0_activation_{stat}"] == pytest.approx(float(value), rel=1e-4), stat
        torch.manual_seed(0)
        weight = nn.Linear(3, 2).weight.detach()
        assert rows[step]["model.0_weight_l1_norm"] == pytest.approx(float(weight.abs().sum()), rel=1e-5)
        assert rows[step]["model.0_weight_std"] == pytest.approx(float(weight.std()), rel=1e-5)


@pytest.mark.slow
def test_benchmark_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/inspection.py gives each figure that it has a bound for, from a model and tensors that are smaller."""
    monkeypatch.setattr(benchmark, "SHAPE", (16, 8, 1, 1, 8))
    monkeypatch.setattr(benchmark, "SIZES", (64,))
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    figures = benchmark.pass_figures(3) + benchmark.step_figures(run, 3)
    run.finish()
    assert [figure.at_most for figure in figures if figure.at_most] == [1.5, 1.5, 2.0, 2.0]
    assert all(figure.value == figure.value for figure in figures)


def test_example_inspects_by_a_flag(capfd: pytest.CaptureFixture[str]) -> None:
    """examples/gpt2 with one flag: each tracker gets the numbers, at the file's iterations."""
    stats = ["cur_amax", "dynamic_range"]
    Path("conf.yaml").write_text(yaml.safe_dump(section(
        layers={"layer_name_regex_pattern": r"feed\.2"}, stats=stats, tensors=["activation", "gradient"], freq=3,
    )))  # fmt: skip
    sizes = ["--n-layer", "1", "--n-head", "2", "--n-embd", "32", "--block-size", "32", "--batch-size", "4"]
    command = [*sizes, "--max-iters", "7", "--eval-interval", "4", "--eval-iters", "1", "--sample-tokens", "4"]
    flags = ["--tracker", "json,csv", "--tracker-run-name", "job", "--tracker-tensor-inspect", "conf.yaml"]
    done = forked.run([sys.executable, str(EXAMPLE), *command, *flags], preload=forked.TORCH, timeout=150)
    assert done.returncode == 0, done.stderr
    names = [f"model.blocks.0.feed.2_{tensor}_{stat}" for tensor in ("activation", "gradient") for stat in stats]
    rows = rows_with(names[0])
    assert list(rows) == [0, 3, 6]
    assert all(row[name] > 0 for row in rows.values() for name in names)
    (table,) = Path().rglob("metrics.csv")
    with table.open() as lines:
        told = {
            int(row["step"]): [float(row[name]) for name in names] for row in csv.DictReader(lines) if row[names[0]]
        }
    assert told == {step: [row[name] for name in names] for step, row in rows.items()}
