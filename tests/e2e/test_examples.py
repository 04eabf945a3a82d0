"""The examples, run as a user runs them, small: they learn, and their JSON log holds what they computed."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests import ROOT, forked

EXAMPLES = ROOT / "examples"
GPT2 = [str(EXAMPLES / "gpt2/train.py"), "--n-layer", "1", "--n-head", "2", "--n-embd", "32", "--block-size", "32"]
GPT2 += ["--batch-size", "8", "--eval-iters", "2", "--warmup-iters", "5", "--learning-rate", "0.01"]
GPT2 += ["--sample-tokens", "8", "--device", "cpu"]


def run(*command: str, launcher: tuple[str, ...] = ()) -> str:
    """Run an example with this Python, in the test's directory; returns what it printed."""
    if command[0] == GPT2[0] and not launcher:
        done = forked.run([sys.executable, *command])
        assert done.returncode == 0, done.stderr
        return done.stdout
    result = forked.run([sys.executable, *launcher, *command], merged=True)
    assert result.returncode == 0, result.stdout
    return result.stdout


def log(name: str) -> dict[str, Any]:
    """The one JSON log below the working directory whose run has this name."""
    found = [path for path in Path.cwd().rglob(f"{name}_*.json") if "training_iterations" in path.read_text()]
    assert len(found) == 1, found
    content: dict[str, Any] = json.loads(found[0].read_text())
    return content


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_digits_log_holds_every_loss_that_training_computed() -> None:
    """The JSON log has each of the 100 losses exactly, in order, and they fall."""
    printed = run(str(EXAMPLES / "digits.py"), "--steps", "100", "--tracker", "json", "--tracker-run-name", "digits")
    content = log("digits")

    digits = load(EXAMPLES / "digits.py")
    random = np.random.default_rng(0)
    images, labels, val_images, val_labels = digits.split(random)
    network = digits.Network(64, 64, random)
    computed = []
    for step in range(100):
        chosen = random.integers(len(labels), size=64)
        rate = 0.1 * (1 + math.cos(math.pi * step / 100)) / 2
        computed.append(network.train_step(images[chosen], labels[chosen], rate, 0.9)[0])
    val_loss, predicted = network.evaluate(val_images, val_labels)

    logged = [row["loss"] for row in content["training_iterations"]]
    assert logged == pytest.approx(computed, rel=1e-9)
    assert np.mean(logged[-10:]) < np.mean(logged[:10]) / 2
    assert content["eval_steps"][-1]["val_loss"] == pytest.approx(val_loss, rel=1e-9)
    best = min(row["val_loss"] for row in content["eval_steps"])
    assert content["summary"]["best_val_loss"] == best
    assert f"best validation loss {best:.4f}" in printed
    assert len(content["checkpoints"]) >= 1
    assert (predicted == val_labels).mean() > 0.9


@pytest.mark.slow
def test_gpt2_averages_are_true_means_over_the_interval() -> None:
    """A loss logged every ten steps is the mean of the ten losses of a run that logs each step, the first included."""
    for name, interval in (("each", "1"), ("tenth", "10")):
        command = ["--tracker", "json", "--tracker-run-name", name, "--log-interval", interval, "--max-iters", "40"]
        run(*GPT2, *command, "--eval-interval", "20")
    each = [row["loss"] for row in log("each")["training_iterations"]]
    content = log("tenth")
    rows = content["training_iterations"]
    assert [row["iter"] for row in rows] == [10, 20, 30, 40]
    expected = [float(np.mean(each[start : start + 10])) for start in range(0, 40, 10)]
    assert [row["loss"] for row in rows] == pytest.approx(expected, rel=1e-5)
    assert expected[-1] < expected[0] - 0.5
    for row in rows:
        assert row["train_perplexity"] == pytest.approx(math.exp(row["loss"]))
        assert row["perf/tokens_per_sec"] == pytest.approx(8 * 32 / row["perf/iter_time_sec"])
    assert [row["iter"] for row in content["eval_steps"]] == [20, 40]


@pytest.mark.slow
def test_gpt2_results_checkpoints_and_samples_are_kept() -> None:
    """The best loss, a checkpoint and the generated text are with the run, named as the defconfig says."""
    run(*GPT2, "--max-iters", "20", "--eval-interval", "10", "--defconfig", "gpt2-local", "--tracker", "json")
    content = log("gpt2_adamw_baseline")
    best = min(row["val_loss"] for row in content["eval_steps"])
    assert content["summary"]["best_val_loss"] == best
    assert content["summary"]["total_checkpoints"] == len(content["checkpoints"]) >= 1
    (directory,) = Path("runs/gpt2").glob("[!.]*")
    records = [json.loads(line) for stream in (directory / "streams").glob("*.jsonl") for line in stream.open()]
    results = {name: value for record in records for name, value in record.get("values", {}).items()}
    assert results["final/best_val_loss"] == best
    assert results["final/best_val_perplexity"] == pytest.approx(math.exp(best))
    tables = [record for record in records if record.get("name") == "samples/generated_text"]
    assert [table["step"] for table in tables] == [10, 20]
    assert tables[0]["items"][0]["data"]["columns"] == ["iteration", "prompt", "generated"]


@pytest.mark.slow
def test_gpt2_under_torchrun_is_one_run_with_all_ranks_tokens() -> None:
    """Two ranks make one run; its tokens per second count both, and its losses are the mean of both."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    options = ["--max-iters", "20", "--eval-interval", "20", "--tracker", "json", "--tracker-run-name", "two"]
    printed = run(*GPT2, *options, launcher=launcher)
    content = log("two")
    assert content["metadata"]["world_size"] == 2
    assert [row["iter"] for row in content["training_iterations"]] == [10, 20]
    for row in content["training_iterations"]:
        assert row["perf/tokens_per_sec"] == pytest.approx(2 * 8 * 32 / row["perf/iter_time_sec"])
    assert len(re.findall("best validation loss", printed)) == 1
    assert len(list(Path("runs").glob("*/*/run.json"))) == 1
