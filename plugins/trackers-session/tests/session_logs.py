"""Session summaries as other programs write them, whole and poor ones."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

BEGAN = datetime(2024, 12, 6, 14, 0, 0)
SESSION = {
    "session": {"id": "one", "start_time": "2024-12-06T14:00:00", "end_time": "2024-12-06T14:01:00", "gpu_count": 1},
    "training_metrics": [{"step": k, "loss": 3.0, "learning_rate": 1e-4, "timestamp": f"2024-12-06T14:00:{k:02d}",
                          "process_rank": 0} for k in range(1, 9)],
}  # fmt: skip
FORM = {
    "session": {"id": "s", "start_time": "2025-01-01T01:00:00", "end_time": "2025-01-01T01:10:00", "mode": "SINGLE-GPU",
                "gpu_count": 1, "model_name": "m"},
    "training_metrics": [{"step": 50, "timestamp": "2025-01-01T01:00:25", "loss": 2.0, "learning_rate": 1e-4,
                          "metrics": {"step_duration": 0.5, "samples_per_second": 8.0}}],
    "gpu_snapshots": [{"timestamp": "2025-01-01T01:00:00", "gpus": [{"gpu_id": 0, "utilization": 90.0}]}],
    "communication_logs": [],
}  # fmt: skip


def stamp(seconds: float) -> str:
    """A time of a session, as its files have it."""
    return (BEGAN + timedelta(seconds=seconds)).isoformat()


def write_session(name: str, gpus: int, rate: float, loss: float, *, metrics: dict[str, Any] | None = None) -> Path:
    """A session with 1000 steps at a rate, its GPUs busy at 80 %, then 90 % for twice as long."""
    duration = 1000 / rate
    snapshots = [
        {"timestamp": stamp(t), "gpus": [
            {"id": k, "name": "NVIDIA RTX 4090", "utilization": used, "memory_used_mb": 18000, "memory_total_mb": 24000,
             "memory_percent": 75.0, "temperature": 60} for k in range(gpus)],
         "system": {"cpu_percent": 20.0, "memory_percent": 30.0}}
        for t, used in ((0, 80.0), (10, 80.0), (30, 90.0))
    ]  # fmt: skip
    content = {
        "session": {"id": name, "start_time": stamp(0), "end_time": stamp(duration), "duration_seconds": duration,
                    "mode": "MULTI-GPU" if gpus > 1 else "SINGLE-GPU", "gpu_count": gpus, "model_name": "qwen",
                    "dataset_name": "alpaca"},
        "training_metrics": [
            {"step": step, "loss": 3.0 if step < 1000 else loss, "learning_rate": 1e-4, "timestamp": stamp(step / rate),
             "process_rank": 0, "metrics": metrics or {}} for step in range(50, 1001, 50)],
        "gpu_snapshots": snapshots,
        "communication_logs": [
            {"timestamp": stamp(k), "operation": "gradient_sync", "process_rank": 0, "data_size_mb": 67.0 + k % 2,
             "duration_ms": 12.0} for k in range(4)] + [
            {"timestamp": stamp(0), "operation": "training_start", "process_rank": 0}] if gpus > 1 else [],
    }  # fmt: skip
    path = Path("logs", name, f"{name}_summary.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    return path


POOR: list[Any] = [
    {"session": {}},
    {"session": None, "training_metrics": None, "gpu_snapshots": None, "communication_logs": None},
    {"training_metrics": []},
    {"training_metrics": [{}, None, {"step": "x"}, {"step": 3, "loss": None}, {"loss": "NaN", "step": 4}]},
    {"session": {"gpu_count": 0, "duration_seconds": 0}, "training_metrics": [{"step": 1, "loss": math.nan}]},
    {"session": {"gpu_count": 2, "start_time": "yesterday", "end_time": 5}, "gpu_snapshots": [{"gpus": [{}, None]}]},
    {"gpu_snapshots": [{"timestamp": 1.0, "gpus": [{"utilization": None}, {"id": 3, "utilization": 50.0}]}]},
    {"communication_logs": [{}, {"operation": "a/b\x1b[31m"}, {"operation": "x", "data_size_mb": 0, "duration_ms": 0}]},
    {"session": {"duration_seconds": -5, "gpu_count": 8},
     "training_metrics": [{"step": 5, "loss": 1, "process_rank": 3}, {"step": 5, "loss": 2, "process_rank": 1}]},
]  # fmt: skip
