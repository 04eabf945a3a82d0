"""What training's process tells of its ranks and GPUs, and where NCCL writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import pytest

from trackers.backends import registry
from trackers.backends.json.precheck import JsonPrecheck
from trackers.training import environment as surroundings


def test_surroundings_tell_what_there_is() -> None:
    """Nothing in an ordinary process; local ranks by any launcher's name, GPUs that are shown, NCCL's settings."""
    assert surroundings.describe(1, {"HOME": "/root", "LOCAL_RANK": "3"}) == {}
    environ = {"SLURM_LOCALID": "2", "CUDA_VISIBLE_DEVICES": "0,1", "NCCL_IB_DISABLE": "1"}
    assert surroundings.describe(4, environ) == {
        "distributed": {"local_rank": 2},
        "variables": {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_IB_DISABLE": "1"},
    }
    assert surroundings.later(1, time.time) is None


def test_nccl_writes_to_a_file_if_a_tracker_gathers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for one that doesn't, or that isn't known to this process."""

    class Gathering(JsonPrecheck):
        gathers_nccl: ClassVar[bool] = True

    asked = {"NCCL_DEBUG": "INFO"}
    surroundings.direct_nccl_log(["json", "no such tracker"], tmp_path, 3, asked)
    assert asked == {"NCCL_DEBUG": "INFO"}
    monkeypatch.setattr(registry, "precheck", lambda name: Gathering)
    surroundings.direct_nccl_log(["json"], tmp_path, 3, asked)
    assert asked["NCCL_DEBUG_FILE"] == str(tmp_path / "nccl/rank-3.%h.%p.log")
