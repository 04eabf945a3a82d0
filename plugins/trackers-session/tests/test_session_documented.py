"""docs/session.md, and the commands of the sessions' guide, word for word, on sessions of ours."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import matplotlib
import msgspec
import pytest
from trackers_session import commands as analyze_logs

from tests import ROOT, again
from tests.e2e import test_docs
from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry
from trackers.records import Config, Environment, Metrics, Record, Start

test_page_does_what_it_shows = again.with_values(test_docs.test_page_does_what_it_shows, [ROOT / "docs/session.md"])

ANALYSES = """
python analyze_logs.py --compare
python analyze_logs.py --session-id training_20241206_143022
python analyze_logs.py --report
python analyze_logs.py --plot
python analyze_logs.py --communication
python analyze_logs.py --log-dir logs --compare --communication
"""


WATCHING = """
tail() { command tail -n +1 "${@:2}"; }  # without -f: it ends
tail -f logs/training_*/training_*_main.log
tail -f logs/training_*/training_*_multigpu.log
tail -f logs/training_*/training_*_performance.log
"""


SIGNS = """
Mode: MULTI-GPU
GPU Count: 2
Accelerator processes: 2
Distributed backend: nccl
World size: 2
Communication | gradient_sync | Rank 0 | Size: 45.67MB | Duration: 12.34ms | Bandwidth: 3701.46MB/s
Multi-GPU Step 20 | Processes: 2 | Local rank: 0
Performance | Step 100 | Avg step time: 0.400s | Throughput: 10.0 samples/s | Total batch size: 4
GPU 1 utilization low: 45.2%
Mode: SINGLE-GPU
GPU Count: 1
"""


FOUND = """
SINGLE GPU vs MULTI-GPU COMPARISON
📱 SINGLE GPU SESSIONS (1):
🔗 MULTI-GPU SESSIONS (1):
  Session: training_20241206_143022
  GPUs: 2
  Steps: 100
  Final Loss: 0.0100
  Steps/sec: 2.50
  GPU 1: 45.2% avg util, 45.2% peak, – avg memory
⚡ PERFORMANCE COMPARISON:
🚀 Multi-GPU Speedup: 2.00x
📊 GPU Efficiency: 100.0%
📡 Session: training_20241206_143022
    gradient_sync: 3 occurrences
      Avg data size: 45.67MB
      Total data: 137.01MB
    training_start: 1 occurrences
"""


def session(name: str, processes: int, began: float, each: float) -> None:
    """A session of so many GPUs, of 100 steps, under a documented name."""
    gpus = {str(gpu): {"name": "NVIDIA RTX 4090", "memory_total_bytes": 24e9} for gpu in range(processes)}
    told = {"distributed": {"backend": "nccl", "local_rank": 0}} if processes > 1 else {}
    records: list[Record] = [
        Start(time=began, rank=0, world_size=processes, attempt=1),
        Config(time=began, values={"model_name": "qwen", "max_steps": 100, "total_batch_size": 2 * processes}),
        Environment(time=began, values={**told, "gpus": gpus}),
    ]
    sync = {"count": 3, "bytes": 45.67e6, "duration_ms": 12.34, "bandwidth_mb_per_sec": 3701.46}
    for step in range(1, 101):
        values = {"train_loss": 1 / step, "learning_rate": 1e-4, "perf/iter_time_sec": each}
        if processes > 1 and step == 20:
            values |= {f"communication/gradient_sync/{key}": float(value) for key, value in sync.items()}
        if step == 50:
            records.append(Metrics(time=began + step * each, values={f"system.gpu.{processes - 1}.gpu": 45.2}))
        records.append(Metrics(step=step, time=began + step * each, values=values))
    options = {"SESSION_DIR": "./logs", "TRACKER_SAMPLE": True}
    info = run_info(Path("runs", name), id=name, cwd=str(Path.cwd()), options=options, created=began)
    sampled = [
        msgspec.structs.replace(record, id=f"sampler-0.1:{record.seq}")
        if isinstance(record, Metrics) and record.step is None
        else record
        for record in stream(records)
    ]
    Driver(registry.load("session"), info).deliver(sampled)
    (made,) = (path for path in Path("logs").iterdir() if "_2024" not in path.name)
    for path in made.iterdir():
        content = path.read_text().replace(made.name, name)
        path.rename(path.with_name(path.name.replace(made.name, name))).write_text(content)
    made.rename(Path("logs", name))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_documented_commands_run_on_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command of the sessions' guide finds in sessions of ours what the guide shows, line by line."""
    matplotlib.use("Agg")
    session("training_20241206_140000", 1, T0, 0.4)
    session("training_20241206_143022", 2, T0 + 1800, 0.4)
    for line in ANALYSES.strip().splitlines():
        assert analyze_logs.main(shlex.split(line)[2:]) == 0, line
    out = capsys.readouterr().out
    missing = [line for line in FOUND.strip("\n").splitlines() if line not in out.splitlines()]
    assert not missing, out
    assert Path("logs/session_plot.png").read_bytes().startswith(b"\x89PNG")
    shown = subprocess.run(["bash", "-euo", "pipefail", "-c", WATCHING], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert not [sign for sign in SIGNS.strip().splitlines() if sign not in shown.stdout], shown.stdout
