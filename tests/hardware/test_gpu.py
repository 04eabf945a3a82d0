"""Samples of a real GPU against nvidia-smi, known work and NVML's own counter: ``make gpu-check``.

Skipped where there is none.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.hardware.energy import EnergyCounter
from trackers.hardware.gpus.detect import Gpus
from trackers.metrics.gpu_details import GROUPS

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or shutil.which("nvidia-smi") is None, reason="needs a GPU"
)

MIB = float(1 << 20)
Record = Callable[[str, object], None]


@pytest.fixture
def gpus() -> Iterator[Gpus]:
    """All GPUs, with every group of values."""
    source = Gpus(pytest.fail, scope="node", details=GROUPS)
    source.read(whole=True)
    yield source
    source.close()


def smi(*fields: str, of: str = "gpu") -> dict[str, str]:
    """What nvidia-smi says of the first GPU, by field; a driver that doesn't know a field says nothing of it."""
    found: dict[str, str] = {}
    for field in fields:
        command = ["nvidia-smi", f"--query-{of}={field}", "--format=csv,noheader,nounits", "--id=0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0 and done.stdout.strip():
            found[field] = done.stdout.splitlines()[0].strip()
    return found


def busy(seconds: float, work: Callable[[], object]) -> int:
    """Repeat work on the GPU for a time; returns how often."""
    torch.cuda.synchronize()
    until, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        work()
        count += 1
        if count % 10 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return count


def matrices() -> Callable[[], object]:
    """A product of 8192 x 8192 matrices in bfloat16."""
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(matrix)
    return lambda: torch.matmul(matrix, matrix, out=out)


FIELDS = {
    "correctedMemoryErrors": ("ecc.errors.corrected.aggregate.total", 1.0, 0.0),
    "uncorrectedMemoryErrors": ("ecc.errors.uncorrected.aggregate.total", 1.0, 0.0),
    "correctedMemoryErrorsVolatile": ("ecc.errors.corrected.volatile.total", 1.0, 0.0),
    "uncorrectedMemoryErrorsVolatile": ("ecc.errors.uncorrected.volatile.total", 1.0, 0.0),
    "memoryTemp": ("temperature.memory", 1.0, 3.0),
    "pcieLinkGen": ("pcie.link.gen.current", 1.0, 0.0),
    "pcieLinkWidth": ("pcie.link.width.current", 1.0, 0.0),
    "graphicsClock": ("clocks.gr", 1.0, 300.0),
    "encoderUtilization": ("utilization.encoder", 1.0, 5.0),
    "decoderUtilization": ("utilization.decoder", 1.0, 5.0),
    "fanSpeed": ("fan.speed", 1.0, 10.0),
    "heldByPowerSeconds": ("clocks_event_reasons_counters.sw_power_cap", 1e6, 1.0),
    "heldByBrakeSeconds": ("clocks_event_reasons_counters.hw_power_brake_slowdown", 1e6, 1.0),
}
"""A detail's field of nvidia-smi, by what it is multiplied there, and how far apart the two may be."""
ROWS = {
    "remappedRowsCorrectable": "remapped_rows.correctable",
    "remappedRowsUncorrectable": "remapped_rows.uncorrectable",
    "remappedRowsPending": "remapped_rows.pending",
    "remappedRowsFailed": "remapped_rows.failure",
}


def test_details_are_nvidia_smis(gpus: Gpus, record_property: Record) -> None:
    """Each value that nvidia-smi has, too, is the same; what it calls N/A is absent."""
    details = gpus.read(whole=True)[0].details
    told = smi(*(field for field, _, _ in FIELDS.values())) | smi(*ROWS.values(), of="remapped-rows")
    compared = {}
    for name, (field, factor, off) in {**FIELDS, **{name: (row, 1.0, 0.0) for name, row in ROWS.items()}}.items():
        if field not in told:
            continue
        try:
            theirs = float({"Yes": "1", "No": "0"}.get(told[field], told[field])) / factor
        except ValueError:  # [N/A]
            assert name not in details, name
            continue
        assert details[name] == pytest.approx(theirs, abs=off), name
        compared[name] = theirs
    record_property("details that equal nvidia-smi's", {name: _short(value) for name, value in compared.items()})
    assert {"memoryTemp", "pcieLinkGen", "pcieLinkWidth", "graphicsClock"} <= compared.keys()


def test_activity_is_that_of_known_work(gpus: Gpus, record_property: Record) -> None:
    """Tensor cores in matrix products, memory in copies, PCIe by the bytes that were sent; hardly anything at rest."""
    time.sleep(0.5)
    gpus.read()
    time.sleep(1.0)
    idle = gpus.read()[0].details
    if "smActive" not in idle:
        record_property("activity", "this GPU has no GPM")
        assert torch.cuda.get_device_capability() < (9, 0)
        return
    assert idle["smActive"] < 5
    work = matrices()
    busy(1.0, work)
    gpus.read()
    begun = time.perf_counter()
    count = busy(2.0, work)
    seconds = time.perf_counter() - begun
    product = gpus.read()[0].details
    record_property("matrix products", f"{2 * 8192**3 * count / seconds / 1e12:.0f} TFLOP/s: {_shown(product)}")
    assert product["smActive"] > 70
    assert product["pipeTensorActive"] > 60
    assert product["pipeFp64Active"] < 1
    block = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(block)
    busy(0.5, lambda: other.copy_(block))
    gpus.read()
    begun = time.perf_counter()
    count = busy(1.5, lambda: other.copy_(block))
    rate = 2 * block.nbytes * count / (time.perf_counter() - begun)
    copied = gpus.read()[0].details
    record_property("copies on the GPU", f"{rate / 1e12:.2f} TB/s read and written: {_shown(copied)}")
    assert copied["dramActive"] > 50
    assert copied["pipeTensorActive"] < 1
    host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    part = block[: host.nbytes]
    gpus.read()
    begun = time.perf_counter()
    count = busy(1.5, lambda: part.copy_(host, non_blocking=True))
    rate = host.nbytes * count / (time.perf_counter() - begun)
    sent = gpus.read()[0].details
    record_property("copies to the GPU", f"{rate / 1e9:.2f} GB/s; pcieRxBytes {sent['pcieRxBytes'] / 1e9:.2f} GB/s")
    assert sent["pcieRxBytes"] == pytest.approx(rate, rel=0.15)  # with the packets' headers


def test_cost_of_a_sample(record_property: Record) -> None:
    """What a sample a second takes of a core, in training and at rest: printed, for eight such GPUs."""
    work = matrices()
    for name, groups in (("off", ()), ("basic", ("health",)), ("full", tuple(GROUPS))):
        source = Gpus(pytest.fail, details=groups)
        source.read(whole=True)
        for state in ("busy", "idle"):
            spent, longest = 0.0, 0.0
            samples = 11  # one of them reads what is slow
            for _ in range(samples):
                if state == "busy":
                    for _ in range(60):
                        work()
                time.sleep(0.9 if state == "idle" else 0.2)
                begun, cpu = time.perf_counter(), time.process_time()
                source.read()
                longest = max(longest, time.perf_counter() - begun)
                spent += time.process_time() - cpu
                torch.cuda.synchronize()
            record_property(f"a sample, details {name}, {state}, processor ms; longest ms; 8 GPUs' share of a core",
                            f"{spent / samples * 1e3:.3f}; {longest * 1e3:.2f}; {spent / samples * 8:.4f}")  # fmt: skip
        source.close()


def test_each_calls_time(record_property: Record) -> None:
    """How long NVML takes for each call of a sample, once a second in training: printed."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    work = matrices()
    calls: dict[str, Callable[[], object]] = {
        "utilisation": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "memory": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
        "power": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "power limit": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "energy": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "temperature": lambda: pynvml.nvmlDeviceGetTemperatureV(handle, 0),
        "clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, 1),
        "reasons": lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
    }
    longest: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(5):
        for _ in range(60):
            work()
        time.sleep(0.5)
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            longest[name].append((time.perf_counter() - begun) * 1e6)
        torch.cuda.synchronize()
    pynvml.nvmlShutdown()
    shown = {name: f"{sorted(took)[len(took) // 2]:.0f} to {max(took):.0f}" for name, took in longest.items()}
    record_property("NVML's calls in training, µs, median to longest", shown)


def test_energy_between_readings_of_the_counter(record_property: Record) -> None:
    """Power over time fills in between two readings of the counter, which take milliseconds."""
    source, work = Gpus(pytest.fail), matrices()
    energy, shares = EnergyCounter(), []
    energy.add(source.read(whole=True), time.monotonic())
    for round in range(2):
        for _ in range(10):
            busy(0.25, work) if round else time.sleep(0.25)
            energy.add(source.read(), time.monotonic())
        guessed = energy.total_j
        energy.add(source.read(whole=True), time.monotonic())
        assert guessed is not None
        assert energy.total_j is not None
        shares.append(guessed / energy.total_j)
    source.close()
    record_property("energy by power over time, of the counter's, first at rest", [f"{share:.3f}" for share in shares])
    assert shares[-1] == pytest.approx(1.0, abs=0.15)


def test_processes_are_nvidia_smis(gpus: Gpus) -> None:
    """This process and its memory, as nvidia-smi lists them, if the driver shows processes here."""
    held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    users = gpus.read(whole=True)[0].users
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    theirs = {int(pid): float(used) for pid, used in csv.reader(io.StringIO(done.stdout)) if used.strip().isdigit()}
    assert users is not None
    assert set(theirs) <= set(users)
    for pid, used in theirs.items():
        assert users[pid] / MIB == pytest.approx(used, abs=2)
    if theirs:
        assert users[os.getpid()] >= held.nbytes


FAULT = """
import sys
import torch, trackers
run = trackers.init("json", project="p", name="fault", options={"TRACKER_RELAY": False}, mode="offline")
print(run.dir, flush=True)
value = torch.ones((), device="cuda")
for step in range(50):
    run.log({"loss": value * step}, step=step)
torch.cuda.synchronize()
index = torch.full((8,), 1 << 40, dtype=torch.int64, device="cuda")
torch.ones(8, device="cuda")[index]
run.log({"loss": torch.full((), 50.0, device="cuda")}, step=50)
torch.cuda.synchronize()
"""


def test_error_on_the_device_is_trainings_own(gpus: Gpus, tmp_path: Path, record_property: Record) -> None:
    """It reaches training as torch's own error; what was logged before is there, and the run failed."""
    done = subprocess.run([sys.executable, "-c", FAULT], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "CUDA error" in done.stderr
    folder = Path(tmp_path, done.stdout.splitlines()[0])
    lines = [json.loads(line) for line in (folder / "streams/rank-0.1.jsonl").read_text().splitlines()]
    rows = [line for line in lines if line["kind"] == "metrics"]
    losses = {row["step"]: row["values"]["loss"] for row in rows if "loss" in row["values"]}
    # The newest one waits to be read by the next call, which finds that the device has failed: it is counted as lost.
    assert {step: losses[step] for step in range(49)} == {step: float(step) for step in range(49)}
    assert lines[-1]["kind"] == "finish"
    assert lines[-1]["status"] == "failed"
    time.sleep(1.0)
    gpus.read()
    record_property("Xids after an assertion on the device", [(event.code, event.level) for event in gpus.events])


def test_a_run_has_the_gpus_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record) -> None:
    """A whole run with its sampler: every value that is promised, and the energy that NVML's counter tells."""
    import pynvml

    monkeypatch.chdir(tmp_path)
    pynvml.nvmlInit()
    handle, work = pynvml.nvmlDeviceGetHandleByIndex(0), matrices()
    busy(0.5, work)
    options = {"TRACKER_GPU_DETAIL": "full", "TRACKER_SAMPLE_RECORD_INTERVAL": 2, "TRACKER_AGENT": False}
    run = trackers.init("json", project="p", name="sampled", options=options)
    counted = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    for step in range(80):
        busy(0.15, work)
        run.log({"loss": torch.ones((), device="cuda") * step}, step=step)
    used_j = (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - counted) / 1000
    run.finish(timeout=60)
    pynvml.nvmlShutdown()
    lines = [json.loads(line) for line in Path(run.dir, "streams/sampler-0.1.jsonl").read_text().splitlines()]
    last: dict[str, Any] = {}
    for line in lines:
        last.update(line.get("values") or {})
    of_gpus = {name: _short(value) for name, value in sorted(last.items()) if "gpu" in name}
    record_property("a run's last samples", of_gpus)
    for name in ("gpu/compute_util_avg", "gpu/power_total_w", "gpu/energy_total_j", "system.gpu.0.powerWatts",
                 "system.gpu.0.memoryTemp", "system.gpu.0.pcieLinkGen", "system.gpu.0.jobMemoryBytes"):  # fmt: skip
        assert name in last, name
    if torch.cuda.get_device_capability() >= (9, 0):
        assert last["gpu/tensor_active_avg"] > 30
    total_j = last["energy/total_kwh"] * 3.6e6
    record_property("a run's energy and the counter's, J", f"{total_j:.0f} and {used_j:.0f}")
    assert total_j == pytest.approx(used_j, rel=0.25)  # it begins a second later, and its end is the run's


def _shown(details: dict[str, float]) -> str:
    names = ("smActive", "smOccupancy", "pipeTensorActive", "pipeFp32Active", "pipeFp16Active", "dramActive")
    return ", ".join(f"{name} {details[name]:.1f}" for name in names if name in details)


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
