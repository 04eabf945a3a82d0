"""A delivery that begins anew goes on, whatever a metric of any name was: its state holds what it made of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry
from trackers.records import Metrics, Record, Start, Summary

NUMBERS = (True, 1e308, 1e308, False, 2**53 + 1, -1, float("nan"), float("inf"), 2**63 - 1, float("-inf"), 0, True)
NAMES = ("loss", "train_loss", "val_loss", "val/loss", "lr", "mfu", "time_ms", "tokens", "tokens_per_sec", "epoch",
         "samples_per_sec", "throughput", "consumed-samples", "consumed_tokens", "batch-size", "iteration-time",
         "perf/tokens_per_sec", "perf/tflops_per_gpu", "grad_norm", "energy", "flops", "gpu/power")  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["json", "csv", "progress", "benchmark", "tensorboard", "console"])
def test_delivery_goes_on_after_any_number(name: str, tmp_path: Path) -> None:
    """A truth value as the best loss so far, sums that are too large for a double, integers beyond one; the JSON log's
    delivery refused its own state, and stopped."""
    options = {"SESSION_DIR": str(tmp_path / "logs"), "BENCHMARK_DIR": str(tmp_path / "results")}
    driver = Driver(registry.load(name), run_info(tmp_path / "run", options=options))
    records: list[Record] = [Start(time=T0)]
    for step, value in enumerate(NUMBERS):
        records.append(Metrics(step=step, time=T0 + step, values=dict.fromkeys(NAMES, value)))
        records.append(Summary(step=step, time=T0 + step, values={f"final/{one}": value for one in NAMES}))
    records = stream(records)
    for end in range(1, len(records) + 1):
        driver.deliver(records[:end])
    assert driver.cursor == len(records)
