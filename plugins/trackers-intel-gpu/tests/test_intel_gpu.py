"""Readings of xpu-smi's outputs, and the conformance kit above a program in its place."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest
import trackers_intel_gpu
from trackers_intel_gpu import open_devices

from trackers.hardware.gpus.base import Opening
from trackers.testing import check_devices

DEVICES = {
    "device_list": [
        {"device_id": number, "device_name": "Intel(R) Data Center GPU Max 1550", "device_type": "GPU",
         "uuid": f"00000000-0000-00{number}a-0000-002f0bd58086", "memory_physical_size_byte": "137438953472"}
        for number in (0, 1)
    ]
}  # fmt: skip
HEAD = ("Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Frequency (MHz), "
        "GPU Core Temperature (Celsius Degree), GPU Memory Temperature (Celsius Degree), GPU Energy Consumed (J), "
        "GPU Memory Used (MiB)")  # fmt: skip
NEWER = HEAD.replace("GPU Utilization (%)", "Average % utilization of all GPU Engines")
LINES = "10:00:00.000,    0, 91.50, 480.20, 1550, 51.00, 47.00, 120000.50, 4096.00\n" \
        "10:00:00.001,    1, 0.00, N/A, 0,  , 30.00, 50.00, 36.25\n"  # fmt: skip
PROGRAM = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = discovery ]; then cat "$here/devices"; exit; fi
echo $$ > "$here/pid"
cat "$here/dump"
exec sleep 600
"""


@pytest.fixture(params=[HEAD, NEWER], ids=["older", "newer"])
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called xpu-smi on PATH that prints what lies beside it, and runs until it is ended."""
    path = tmp_path / "bin/xpu-smi"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    path.chmod(0o755)
    (path.parent / "devices").write_text(json.dumps(DEVICES))
    (path.parent / "dump").write_text(f"{request.param}\n{LINES}")
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    return path


def test_kit_passes_and_values_are_in_si_units(program: Path) -> None:
    """Percent as a share, MiB as bytes, MHz as Hz; what isn't told is None, never 0."""
    first, second = check_devices(open_devices, absent=program.unlink)
    assert (first.compute_frac, first.power_w, first.sm_clock_hz, first.temp_c) == (0.915, 480.2, 1.55e9, 51.0)
    assert (first.memory_used_bytes, first.memory_total_bytes, first.energy_j) == (4 << 30, 128 << 30, 120000.5)
    assert first.details == {"memoryTemp": 47.0}
    assert (second.power_w, second.temp_c, second.compute_frac) == (None, None, 0.0)


def test_xpu_smi_that_ends_is_a_driver_that_is_gone(program: Path) -> None:
    """It was killed, or the driver was unloaded."""

    def lose() -> None:
        process = psutil.Process(int((program.parent / "pid").read_text()))
        process.kill()
        process.wait()

    check_devices(open_devices, lose=lose)


def test_job_sees_the_gpus_of_its_mask(program: Path) -> None:
    """ZE_AFFINITY_MASK names devices and tiles of them, unless all of the node are wanted."""
    for scope, mask, labels in (("job", "1.0", ["1"]), ("job", "", ["0", "1"]), ("node", "1", ["0", "1"])):
        source = open_devices(Opening(scope=scope, environ={"ZE_AFFINITY_MASK": mask}))
        assert source is not None
        assert [gpu.label for gpu in source.gpus] == labels
        source.close()


def test_gpu_without_a_line_is_waited_for_once(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has readings without values, and later samples of all the others aren't held up."""
    monkeypatch.setattr(trackers_intel_gpu, "LONGEST_S", 0.5)
    text = (program.parent / "dump").read_text()
    (program.parent / "dump").write_text("".join(line for line in text.splitlines(True) if "    1," not in line))
    source = open_devices(Opening(scope="node"))
    assert source is not None
    first, second = source.read()
    assert (first.power_w, second.power_w) == (480.2, None)
    waits: list[float] = []
    monkeypatch.setattr(source, "_wait", lambda until: waits.append(until))
    source.read()
    assert all(until <= time.monotonic() for until in waits)
    source.close()


def test_without_xpu_smi_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program, no devices, no word."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert open_devices(Opening(pytest.fail)) is None
