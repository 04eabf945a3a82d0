"""Memory: the allocator's statistics under Megatron's names, and the process's where there is no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from trackers.instruments.memory import KEYS, MemoryReader

STATISTICS = {key: 1_500_000_000 + place for place, key in enumerate(KEYS)} | {"num_ooms": 3, "num_alloc_retries": 2}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """torch.cuda's memory_stats, as its documentation has it: a flat mapping of counters."""
    statistics: dict[str, Any] = dict(STATISTICS)
    cuda = SimpleNamespace(is_initialized=lambda: True, memory_stats=lambda: statistics)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return statistics


def test_names_are_those_of_megatron(gpu: dict[str, Any]) -> None:
    """All ten, bytes in gigabytes of 1e9, counts as they are."""
    found = MemoryReader().values()
    assert set(found) == {
        *(f"memory/mem-{kind}-gigabytes" for kind in ("allocated", "active", "inactive", "reserved")),
        *(f"memory/mem-max-{kind}-gigabytes" for kind in ("allocated", "active", "inactive", "reserved")),
        "memory/mem-alloc-retires",
        "memory/mem-allocated-count",
    }
    assert found["memory/mem-allocated-gigabytes"] == pytest.approx(1.5)
    assert found["memory/mem-alloc-retires"] == 2
    assert found["memory/mem-allocated-count"] == gpu["allocation.all.current"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"allocated_bytes.all.peak": "peak-bytes", "num_ooms": "ooms"}, {"memory/peak-gigabytes", "memory/ooms"}),
        (["reserved_bytes.all.peak", "num_ooms"], {"memory/mem-max-reserved-gigabytes", "memory/num_ooms"}),
        ("num_ooms, num_alloc_retries", {"memory/num_ooms", "memory/mem-alloc-retires"}),
        (["no.such.statistic"], set()),
    ],
)  # fmt: skip
def test_keys_choose_and_name(keys: Any, expected: set[str], gpu: dict[str, Any]) -> None:
    """Other statistics can be chosen, by mapping, list or text; one that the allocator lacks is absent, not 0."""
    assert set(MemoryReader(keys).values()) == expected


def test_process_memory_where_there_is_no_gpu() -> None:
    """Without CUDA it is this process's memory, under names of its own: it is no allocator's."""
    found = MemoryReader().values()
    assert set(found) == {"memory/process-gigabytes", "memory/max-process-gigabytes"}
    assert found["memory/process-gigabytes"] == pytest.approx(psutil.Process().memory_info().rss / 1e9, rel=0.1)
    assert found["memory/max-process-gigabytes"] >= found["memory/process-gigabytes"]


@pytest.mark.slow
def test_peak_is_this_programs_and_not_its_launchers() -> None:
    """A small program that a large one starts has its own peak: the system's usage counter keeps the launcher's."""
    small = "import json; from trackers.instruments.memory import process; print(json.dumps(process()))"
    code = f"import subprocess, sys; big = bytearray(400_000_000); subprocess.run([sys.executable, '-c', {small!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["memory/process-gigabytes"] <= found["memory/max-process-gigabytes"] < 0.3
