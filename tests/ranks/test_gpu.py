"""Values across ranks that lie on a GPU: read by one copy of all of them, without a synchronisation of the device."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers import Max, Mean, Std
from trackers.ranks.collective_transport import Collective
from trackers.ranks.contribution import ReductionRow
from trackers.values.device_copy import BatchPart, Transfer, batched, hold

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def no_sync() -> Iterator[None]:
    """Any call that synchronises with the device is an error."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def values(number: int) -> dict[str, Any]:
    """Means of floats by counts, maxima of halves, deviations of doubles, all on the device."""
    base = torch.arange(3, device="cuda") + number
    return {
        f"mean_{number}": Mean(base[0].float(), base[1]),
        f"max_{number}": Max(base[2].bfloat16()),
        f"std_{number}": Std(base[0].double()),
    }


def test_values_on_a_gpu_are_logged_without_a_synchronisation(
    no_sync: None, record_property: Callable[[str, object], None]
) -> None:
    """Of every type, and changed in place right after the call: the value is that of the call."""
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    loss = torch.ones((), device="cuda")
    spent_s = 0.0
    for step in range(20):
        row = {name: value for number in range(10) for name, value in values(number).items()}
        begun = time.perf_counter()
        run.log({**row, "loss": Mean(loss, 2)}, step=step)
        spent_s += time.perf_counter() - begun
        loss += 1
    record_property("a log of 31 values on the GPU, ms of the host", f"{spent_s / 20 * 1e3:.3f}")
    torch.cuda.set_sync_debug_mode("default")
    run.finish()
    lines = [json.loads(line) for line in Path(run.dir, "streams/rank-0.1.jsonl").read_text().splitlines()]
    rows = [line["values"] for line in lines if line["kind"] == "metrics"]
    assert [row["loss"] for row in rows] == [(step + 1) / 2 for step in range(20)]
    assert all(row[f"mean_{n}"] == pytest.approx(n / (n + 1)) for row in rows for n in range(10))
    assert all(row[f"max_{n}"] == n + 2 for row in rows for n in range(10))


def test_all_values_of_a_call_are_one_copy() -> None:
    """Fifty values share one batch."""
    row = {name: value for number in range(17) for name, value in values(number).items()}
    added = ReductionRow(row, hold, batched)
    parts = [part for part in added.waiting.values() if isinstance(part, Transfer)]  # counts are numbers at once
    assert len(parts) == 68
    assert len({id(part._batch) for part in parts if isinstance(part, BatchPart)}) == 1
    assert all(isinstance(part, BatchPart) for part in parts)


LAUNCHED = """
import json, os
import torch, torch.distributed as dist, trackers
from trackers import Max, Mean
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
run = trackers.init("json", project="p", name="launched", mode="offline", options={"TRACKER_REDUCE": "torch"})
for step in range(20):
    loss, worst = torch.full((), float(step), device="cuda"), torch.ones((), device="cuda")
    run.log({"loss": Mean(loss), "worst": Max(worst)}, step=step)
run.finish()
dist.destroy_process_group()
if os.environ["RANK"] == "0":
    print("DIR", run.dir)
"""


def test_torchrun_with_nccl_reduces_values_on_the_gpu(tmp_path: Path) -> None:
    """A rank for each GPU here, by torchrun: values across ranks over NCCL's own collectives are in the journal."""
    (tmp_path / "train.py").write_text(LAUNCHED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc-per-node={torch.cuda.device_count()}", "train.py"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, [line for line in done.stderr.splitlines() if "rank0" in line][-12:]
    (folder,) = [line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith("DIR")]
    found: dict[str, dict[int, float]] = {}
    for stream in Path(tmp_path, folder, "streams").glob("*.jsonl"):
        for line in map(json.loads, stream.read_text().splitlines()):
            if line["kind"] == "metrics" and line.get("step") is not None:
                for name, value in line["values"].items():
                    found.setdefault(name, {})[line["step"]] = value
    assert found["loss"] == {step: float(step) for step in range(20)}
    assert found["worst"] == dict.fromkeys(range(20), 1.0)


def test_collective_on_nccl_synchronises_nothing(tmp_path: Path) -> None:
    """The vector is put together, gathered and copied back behind the device's queue, and comes out right."""
    import torch.distributed as dist

    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        way = Collective(0, pytest.fail)
        dist.all_reduce(torch.ones(1, device="cuda"))
        for number in range(3):
            added = ReductionRow({**values(number), "n": Mean(3.0, 2)}, way.move, way.batch)
            torch.cuda.set_sync_debug_mode("error")
            waiting = way.begin(number, 0.0, added)
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
            assert waiting[0].ready()
            found = way.end(number, 0.0, added, {0: waiting[0].value()})
            assert found == {f"mean_{number}": number / (number + 1), f"max_{number}": number + 2.0,
                             f"std_{number}": 0.0, "n": 1.5}  # fmt: skip
    finally:
        dist.destroy_process_group()
