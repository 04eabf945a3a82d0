"""What `make gpu-check` runs on a machine with a GPU: values against nvidia-smi's, then the tests that need a GPU.

    python -m tests.hardware.gpu_check [--seconds S] [--capture FILE] [--tests FILE …]

`scripts/gpu_check.sh` chooses the Python. Each value is compared with what ``nvidia-smi`` says of the same GPU, and the
energy counter with the power. ``GPU_TESTS`` then run, and what they measure is printed. All of it is kept as a capture.
Without a GPU nothing is checked, and that is said; the exit code is then 0. It is 1 when a value is off, a test fails
or is skipped, or torch doesn't see the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests import ROOT
from trackers import __version__
from trackers.hardware.gpus.base import Reading
from trackers.hardware.gpus.detect import Gpus

CAPTURES = ROOT / "tests/hardware/captures"
GPU_TESTS = ("tests/hardware/test_gpu.py", "tests/instruments/test_gpu.py", "tests/ranks/test_gpu.py")
NOT_OURS = ("TRACKER", "WANDB_", "MLFLOW_", "TRACKIO_", "PYTEST_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_")
"""Beginnings of variables that a test's run must not see."""
TESTS_S = 1800.0

MIB = float(1 << 20)


class Field(NamedTuple):
    """How a value compares with nvidia-smi's: within ``off`` of it, or within the share ``share`` of it."""

    smi: str
    of: Any
    off: float
    share: float = 0.0


FIELDS = (
    Field("utilization.gpu", lambda r: _times(r.compute_frac, 100), 30),
    Field("utilization.memory", lambda r: _times(r.memory_busy_frac, 100), 30),
    Field("memory.used", lambda r: _times(r.memory_used_bytes, 1 / MIB), 64, 0.05),
    Field("memory.total", lambda r: _times(r.memory_total_bytes, 1 / MIB), 1),
    Field("temperature.gpu", lambda r: r.temp_c, 3),
    Field("power.draw", lambda r: r.power_w, 20, 0.15),
    Field("enforced.power.limit", lambda r: r.power_limit_w, 1),
    Field("clocks.sm", lambda r: _times(r.sm_clock_hz, 1e-6), 100, 0.15),
    Field("clocks.mem", lambda r: _times(r.memory_clock_hz, 1e-6), 100, 0.15),
)
"""nvidia-smi --help-query-gpu has the units: percent, MiB, °C, W, MHz."""


def ask_smi() -> list[dict[str, str]]:
    """nvidia-smi's own words, by field, a GPU each; [] without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    names = ["uuid", *(field.smi for field in FIELDS), "driver_version"]
    command = [program, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        return []
    return [dict(zip(names, map(str.strip, row.split(",")), strict=True)) for row in done.stdout.splitlines() if row]


def compare(readings: Sequence[Reading], smi: Sequence[dict[str, str]]) -> Iterator[tuple[str, bool]]:
    """A line for each value, and whether it agrees. What neither tells agrees."""
    ours = {reading.gpu.uuid: reading for reading in readings}
    for theirs in smi:
        reading = ours.get(theirs["uuid"])
        if reading is None:
            yield f"{theirs['uuid']}: not read", False
            continue
        for field in FIELDS:
            wanted, found = _number(theirs[field.smi]), field.of(reading)
            agrees = (wanted is None) == (found is None)
            if wanted is not None and found is not None:
                agrees = abs(found - wanted) <= max(field.off, field.share * abs(wanted))
            shown = "absent" if found is None else f"{found:.1f}"
            yield f"GPU {reading.gpu.label} {field.smi}: {shown}, nvidia-smi says {theirs[field.smi]}", agrees


def check_energy(before: Sequence[Reading], after: Sequence[Reading], seconds: float) -> Iterator[tuple[str, bool]]:
    """The energy counter's difference over a time, against the power at both ends."""
    for first, last in zip(before, after, strict=True):
        if first.energy_j is None or last.energy_j is None or first.power_w is None or last.power_w is None:
            continue
        by_counter, by_power = (last.energy_j - first.energy_j) / seconds, (first.power_w + last.power_w) / 2
        agrees = abs(by_counter - by_power) <= max(25.0, 0.35 * by_power)
        yield f"GPU {first.gpu.label} energy counter: {by_counter:.1f} W on average, power {by_power:.1f} W", agrees


def check_sense(readings: Sequence[Reading]) -> Iterator[tuple[str, bool]]:
    """What no GPU can be."""
    for reading in readings:
        label = f"GPU {reading.gpu.label}"
        fractions = [f for f in (reading.compute_frac, reading.memory_busy_frac) if f is not None]
        yield f"{label} fractions lie between 0 and 1: {fractions}", all(0 <= fraction <= 1 for fraction in fractions)
        if reading.memory_used_bytes is not None and reading.memory_total_bytes is not None:
            yield f"{label} uses no more memory than it has", reading.memory_used_bytes <= reading.memory_total_bytes


class TestResult(NamedTuple):
    """One test: "passed", "failed" or "skipped", the first line of why, and what it measured, by name with the unit."""

    __test__ = False

    name: str
    outcome: str
    why: str
    figures: dict[str, str]


def run_tests(files: Sequence[str]) -> list[TestResult]:
    """Run tests by a pytest of their own, in a directory and with a HOME of their own."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        config, report = Path(folder, "pytest.ini"), Path(folder, "report.xml")
        config.write_text("[pytest]\njunit_family = xunit1\n")  # has properties
        environ = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
        environ |= {"HOME": folder, "PYTHONPATH": os.pathsep.join([str(ROOT), environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--noconftest"]
        command += [
            "-c",
            str(config),
            "--rootdir",
            str(ROOT),
            "-p",
            "no:cacheprovider",
            "--basetemp",
            str(Path(folder, "tests")),
            f"--junitxml={report}",
        ]
        command += [str(ROOT / file) for file in files]
        done = subprocess.run(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TESTS_S
        )
        found = list(_results(report)) if report.exists() else []
    if not found or (done.returncode and all(one.outcome == "passed" for one in found)):
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or [""]
        found.append(TestResult("pytest", "failed", f"exit code {done.returncode}: {last[0]}", {}))
    if any(one.outcome == "failed" for one in found):
        print(done.stdout, end="")
    return found


def _results(report: Path) -> Iterator[TestResult]:
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        outcome, why = "passed", ""
        for kind, meaning in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
            for told in case.iter(kind):
                outcome, why = meaning, (told.get("message") or "").partition("\n")[0]
        figures = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        yield TestResult(case.get("name", ""), outcome, why, figures)


def about(smi: Sequence[dict[str, str]]) -> dict[str, str]:
    """Versions of what was checked with; nothing that names the machine."""
    found = {"trackers": __version__, "python": platform.python_version(), "kernel": platform.release()}
    if smi:
        found["driver"] = smi[0]["driver_version"]
    try:
        import torch
    except ImportError:
        return found
    found["torch"] = str(torch.__version__)
    found["cuda"] = str(torch.version.cuda)
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(0)
        found["gpus"] = str(torch.cuda.device_count())
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    with_nvml = {one.metadata["Name"] for one in metadata.distributions()} & {"nvidia-ml-py"}
    return found | {name: metadata.version(name) for name in with_nvml}


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print a line for each value and test, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="over which energy is measured (3)")
    parser.add_argument("--capture", type=Path, help="where to keep it (tests/hardware/captures/GPU.json)")
    parser.add_argument("--tests", nargs="*", default=list(GPU_TESTS), help="the tests that need a GPU")
    given = parser.parse_args(arguments)
    said: list[str] = []
    gpus = Gpus(said.append, scope="node")
    nvidia = [gpu for gpu in gpus.gpus if gpu.vendor == "nvidia"]
    tells = about(smi := ask_smi())
    if not nvidia and "gpu" not in tells:
        print("gpu-check: no CUDA device: nothing was checked" + "".join(f"; {text}" for text in said))
        return 0
    lines = [("torch sees a GPU", "gpu" in tells)]
    readings: list[Reading] = []
    if nvidia:
        begun = time.monotonic()
        before = _read(gpus)
        time.sleep(given.seconds)
        spent = time.process_time(), time.perf_counter()
        readings = _read(gpus)
        spent = time.process_time() - spent[0], time.perf_counter() - spent[1]
        tells["reading"] = f"{len(readings)} GPUs in {spent[1] * 1e3:.2f} ms, {spent[0] * 1e3:.2f} ms of processor time"
        smi = ask_smi()
        lines += compare(readings, smi)
        lines += check_energy(before, readings, time.monotonic() - begun)
        lines += check_sense(readings)
        lines.append((f"nvidia-smi tells of {len(smi)} GPUs", bool(smi)))
    else:
        lines.append(("no values: NVML sees no GPU", False))
    gpus.close()
    tests = run_tests(given.tests) if "gpu" in tells else []
    lines += [(f"{one.name}: {one.outcome}{one.why and ': ' + one.why}", one.outcome == "passed") for one in tests]
    for text, agrees in lines:
        print(f"{'ok ' if agrees else 'OFF'}  {text}")
    for text in said:
        print(f"     said: {text}")
    figures = {name: value for one in tests for name, value in one.figures.items()}
    for name, value in (tells | figures).items():
        print(f"     {name}: {value}")
    path = given.capture or CAPTURES / f"{_slug(tells.get('gpu') or nvidia[0].name)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    capture = {
        "about": tells,
        "readings": msgspec.to_builtins(readings),
        "nvidia_smi": smi,
        "checks": [{"text": text, "agrees": agrees} for text, agrees in lines],
        "figures": figures,
    }
    path.write_text(_anonymous(json.dumps(capture, indent=1), smi, readings) + "\n")
    failed = sum(not agrees for _, agrees in lines)
    print(f"gpu-check: {len(lines) - failed} of {len(lines)} checks hold; kept as {path}")
    return 1 if failed else 0


def _anonymous(text: str, smi: Sequence[dict[str, str]], readings: Sequence[Reading]) -> str:
    """Without the numbers that tell one GPU from all others of the world."""
    uuids = [theirs["uuid"] for theirs in smi] + [uuid for reading in readings for uuid in reading.gpu.uuids]
    for number, uuid in enumerate(dict.fromkeys(uuids)):
        text = text.replace(uuid, f"GPU-{number}")
    return text


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "gpu"


def _read(gpus: Gpus) -> list[Reading]:
    return [reading for reading in gpus.read(whole=True) if reading.gpu.vendor == "nvidia"]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


if __name__ == "__main__":
    sys.exit(main())
