"""What a run trained on: as torch knows it in training's process, and as the kernel shows it beside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trackers
from tests.fakes.cuda import Cuda
from trackers.hardware import host
from trackers.instruments.clock import accelerator
from trackers.training.rank_run import RankRun
from trackers.training.run import Run


def torch_with(monkeypatch: pytest.MonkeyPatch, *, used: bool = True, hip: str | None = None, **more: Any) -> None:
    """A torch whose CUDA is or isn't in use, of NVIDIA's or AMD's build."""
    properties = SimpleNamespace(name="AMD Instinct MI300X" if hip else "NVIDIA H200", total_memory=192 * 1024**3)
    cuda = Cuda()
    for name, value in {"is_initialized": used, "current_device": 0, "device_count": 8}.items():
        monkeypatch.setattr(cuda, name, lambda value=value: value, raising=False)
    monkeypatch.setattr(cuda, "get_device_properties", lambda device: properties, raising=False)
    version = SimpleNamespace(hip=hip, cuda=None if hip else "12.8")
    module = SimpleNamespace(cuda=cuda, version=version, __version__="2.8.0", **more)
    monkeypatch.setitem(sys.modules, "torch", module)


def test_cuda_and_rocm_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both call it torch.cuda; the build says which it is, and torch what GPU."""
    torch_with(monkeypatch)
    assert accelerator() == {
        "accelerator": "cuda", "gpu": "NVIDIA H200", "gpu_memory_gib": 192.0, "gpu_count": 8,
        "pytorch_version": "2.8.0", "cuda_version": "12.8",
    }  # fmt: skip
    torch_with(monkeypatch, hip="6.2.41133-dd7f95766")
    found = accelerator()
    assert (found["accelerator"], found["gpu"]) == ("rocm", "AMD Instinct MI300X")
    assert (found["rocm_version"], "cuda_version" in found) == ("6.2.41133", False)


def test_processor_is_said_where_nothing_else_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with GPUs that training didn't use trained on the CPU; another accelerator isn't taken for that."""
    torch_with(monkeypatch, used=False)
    assert accelerator() == {"accelerator": "cpu", "pytorch_version": "2.8.0"}
    torch_with(monkeypatch, used=False, xpu=SimpleNamespace(is_initialized=lambda: True))
    assert accelerator() == {"pytorch_version": "2.8.0"}
    monkeypatch.setitem(sys.modules, "torch", None)
    assert accelerator() == {}


def environments(run: Run) -> list[dict[str, Any]]:
    """What training's process said of its surroundings."""
    lines = Path(run.dir, "streams/rank-0.1.jsonl").read_text().splitlines()
    return [record["values"] for record in map(json.loads, lines) if record["kind"] == "environment"]


def test_run_records_it_once_it_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU in use is recorded when the loop begins, so that a killed run has it; the CPU at the end, once."""
    torch_with(monkeypatch)
    for used in (True, False):
        torch_with(monkeypatch, used=used)
        options = {"TRACKER_RELAY": False}
        run = trackers.init("benchmark", project="p", name="n", mode="offline", options=options)
        assert isinstance(run, Run)
        if used:
            run.loop(3)
        assert len(environments(run)) == used
        run.finish()
        assert [found["accelerator"] for found in environments(run)] == ["cuda" if used else "cpu"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_kernel_shows_cards_and_drivers(tmp_path: Path) -> None:
    """NVIDIA's and AMD's cards by the kernel's files; a machine with neither has no driver."""
    assert host.gpus(tmp_path) == {"gpu_drivers": []}
    card = tmp_path / "sys/class/drm/card0/device"
    card.mkdir(parents=True)
    for name, text in {"vendor": "0x1002", "product_name": "AMD Instinct MI300X", "mem_info_vram_total": "1"}.items():
        (card / name).write_text(text + "\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    assert host.gpus(tmp_path) == {"gpu_drivers": ["amd"], "gpu": "AMD Instinct MI300X"}
    (tmp_path / "dev/nvidiactl").write_text("")
    assert host.gpus(tmp_path)["gpu_drivers"] == ["nvidia", "amd"]
    gpu = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 24\n")
    assert host.gpus(tmp_path)["gpu"] == "NVIDIA H200"


def test_other_ranks_neither_trace_nor_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main rank alone profiles, and alone says what it trains on."""
    torch_with(monkeypatch)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = trackers.init("benchmark", project="p", name="n", options={"TRACKER_RELAY": False, "TRACKER_PROFILE": True})
    assert isinstance(run, RankRun)
    loop = run.loop(3, start_step=0)
    assert loop.profiler is None
    run.finish()
    assert not Path("profile_logs").exists()
