"""Snippets and commands that users of JSON logs and benchmark results have, word for word, on our files."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import matplotlib
import pandas
import pytest

import trackers
from tests import LOGS
from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry
from trackers.cli.scripts import compare_results
from trackers.records import Metrics, Record, Start

NAME = "out/run_20231031_162345.json"
LOG = LOGS / "primus.log"

PLOT = """
import json
with open('out/run_20231031_162345.json', 'r') as f:
    log = json.load(f)
print(log['summary'])
import matplotlib.pyplot as plt
iters = [x['iter'] for x in log['training_iterations']]
losses = [x['loss'] for x in log['training_iterations']]
plt.plot(iters, losses)
plt.savefig('loss_curve.png')
"""
COMPARE = """
from training_logger import compare_runs
comparison = compare_runs([
    'out/run_20231031_162345.json',
    'out/run_20231031_171523.json'
])
for run in comparison['runs']:
    print(f"{run['run_name']}: final_loss={run['final_loss']:.4f}, "
          f"best_val={run['best_val_loss']:.4f}, mfu={run['avg_mfu']:.2f}%")
"""
STATISTICS = """
import json
import pandas as pd
with open('out/run_20231031_162345.json', 'r') as f:
    log = json.load(f)
df = pd.DataFrame(log['training_iterations'])
print(f"Mean loss: {df['loss'].mean():.4f}")
print(f"Min loss: {df['loss'].min():.4f}")
print(f"Mean time: {df['time_ms'].mean():.2f} ms")
print(f"Mean MFU: {df[df['mfu'] > 0]['mfu'].mean():.2f}%")
df.to_csv('training_metrics.csv', index=False)
"""
PROGRESS = """
import json
import matplotlib.pyplot as plt
with open('out/run_20231031_162345.json', 'r') as f:
    log = json.load(f)
fig, (ax1, ax2, ax3) = plt.subplots(1, 3, figsize=(15, 4))
iters = [x['iter'] for x in log['training_iterations']]
losses = [x['loss'] for x in log['training_iterations']]
ax1.plot(iters, losses)
times = [x['time_ms'] for x in log['training_iterations'][5:]]  # Skip warmup
ax2.hist(times, bins=30)
mfus = [x['mfu'] for x in log['training_iterations'] if x['mfu'] > 0]
ax3.plot(mfus)
plt.tight_layout()
plt.savefig('training_analysis.png', dpi=50)
"""
VALIDATION = """
import json
import matplotlib.pyplot as plt
with open('out/run_20231031_162345.json', 'r') as f:
    log = json.load(f)
eval_iters = [x['iter'] for x in log['eval_steps']]
train_losses = [x['train_loss'] for x in log['eval_steps']]
val_losses = [x['val_loss'] for x in log['eval_steps']]
plt.figure(figsize=(10, 6))
plt.plot(eval_iters, train_losses, label='Train Loss', marker='o')
plt.plot(eval_iters, val_losses, label='Val Loss', marker='s')
plt.savefig('train_val_comparison.png', dpi=50)
"""
TABLE = """
import json
import pandas as pd
logs = ['out/run_20231031_162345.json', 'out/run_20231031_171523.json']
summaries = []
for log_file in logs:
    with open(log_file, 'r') as f:
        data = json.load(f)
    summaries.append({
        'Run': data['run_name'],
        'Final Train Loss': data['summary']['final_train_loss'],
        'Best Val Loss': data['summary']['best_val_loss'],
        'Avg Time (ms)': data['summary']['avg_time_ms'],
        'Avg MFU (%)': data['summary']['avg_mfu'],
        'Total Iters': data['summary']['total_iterations']
    })
df = pd.DataFrame(summaries)
df.to_csv('run_comparison.csv', index=False)
"""
CONVERT = """
from torch.utils.tensorboard import SummaryWriter
import json
with open('out/run_20231031_162345.json', 'r') as f:
    log = json.load(f)
writer = SummaryWriter('runs/experiment_1')
for data in log['training_iterations']:
    writer.add_scalar('Loss/train', data['loss'], data['iter'])
    if data['mfu'] > 0:
        writer.add_scalar('MFU', data['mfu'], data['iter'])
for data in log['eval_steps']:
    writer.add_scalar('Loss/val', data['val_loss'], data['iter'])
writer.close()
"""
ONE_RESULT = """
import json
with open(FILE) as f:
    data = json.load(f)
print(f\"Tokens/s/GPU: {data['performance_metrics']['tokens_per_second_per_gpu']:,.0f}\")
"""
RESULTS = """
import json, glob
for f in sorted(glob.glob('benchmark_results/benchmark_*.json')):
    with open(f) as fp:
        d = json.load(fp)
    print(f\"{d['platform']:5} {d['timestamp']:19} \
{d['performance_metrics'].get('tokens_per_second_per_gpu', 0):>10,.0f} tokens/s/GPU\")
"""
SHELL = """
cat out/run_20231031_162345.json | jq '.'
cat out/run_20231031_162345.json | jq '.summary'
cat out/run_20231031_162345.json | jq '.summary.final_train_loss'
cat out/run_20231031_162345.json | jq '.training_iterations | length'
for f in out/*.json; do
    loss=$(jq -r '.summary.best_val_loss' "$f")
    echo "$f: $loss"
done | sort -t: -k2 -n | head -1
"""


def rows(steps: int, begin: int = 0, at: float = 1.0, **more: float) -> list[Record]:
    """Losses, and an evaluation each fourth step."""
    found: list[Record] = []
    for step in range(begin, begin + steps):
        found.append(Metrics(step=step, time=T0 + at + step, values={"train_loss": 1 / (step + 1), **more}))
        if step % 4 == 0:
            found.append(Metrics(step=step, time=T0 + at + step + 0.5, values={"val_loss": 2.0}))
    return found


RUNS: dict[str, list[Record]] = {
    "without a processor's tokens": rows(12),
    "one step": rows(1),
    "resumed": [*rows(9), Start(time=T0 + 500, attempt=2, rank=0), *rows(9, 9, 500.0)],
    "complete": rows(12, mfu=30.0, time_ms=500.0, **{"perf/tokens_per_sec": 1000.0}),
    "without evaluations": [Metrics(step=step, time=T0 + step, values={"loss": 1.0}) for step in range(8)],
    "other names": [Metrics(step=step, time=T0 + step, values={"lm loss": 1.0, "learning-rate": 0.1, "grad-norm": 2.0})
                    for step in range(8)],
}  # fmt: skip


class Writer:
    """Takes what TensorBoard's own writer takes."""

    def __init__(self, place: str) -> None:
        self.place = place

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        assert isinstance(value, (int, float)), (tag, value)

    def close(self) -> None:
        return


def write(records: list[Record], monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """Two logs of a run, under the documented names, and a benchmark result."""
    matplotlib.use("Agg")
    logger = types.ModuleType("training_logger")
    logger.compare_runs = trackers.compare_runs  # type: ignore[attr-defined]
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "training_logger", logger)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    options = {"JSON_DIR": "out", "BENCHMARK_DIR": "benchmark_results", **more}
    for number, tracker in enumerate(("json", "json", "benchmark")):
        info = run_info(Path("runs", str(number)), id=f"run{number}", name=f"other{number}", options=options)
        Driver(registry.load(tracker), info).deliver(stream([Start(time=T0, rank=0, pid=1), *records]))
    first, second = sorted(Path("out").glob("*.json"))
    first.rename(NAME)
    second.rename("out/run_20231031_171523.json")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RUNS)
def test_documented_snippets_run_on_any_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No KeyError, no null where a number is formatted: also without MFU, tokens, GPUs or evaluations, and resumed."""
    write(RUNS[name], monkeypatch)
    for snippet in (PLOT, COMPARE, STATISTICS, PROGRESS, VALIDATION, TABLE, CONVERT, RESULTS):
        exec(snippet, {})
    (document,) = Path("benchmark_results").glob("benchmark_*.json")
    exec(ONE_RESULT, {"FILE": str(document)})
    shown = subprocess.run(["bash", "-euo", "pipefail", "-c", SHELL], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert pandas.read_csv("training_metrics.csv")["iter"].is_monotonic_increasing


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_documented_snippets_run_where_nan_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """With JSON_NAN=null, pandas and matplotlib take a loss and an MFU that were NaN for none."""
    lost = {"train_loss": math.nan, "mfu": math.nan, "time_ms": 500.0, "grad_norm": -math.inf}
    records: list[Record] = [*rows(8, mfu=30.0, time_ms=500.0), Metrics(step=8, time=T0 + 9, values=lost)]
    records += [Metrics(step=8, time=T0 + 10, values={"val_loss": math.nan})]
    write([*records, *rows(3, 9, mfu=30.0, time_ms=500.0)], monkeypatch, JSON_NAN="null")
    for snippet in (PLOT, COMPARE, STATISTICS, PROGRESS, VALIDATION, TABLE):
        exec(snippet, {})
    log = json.loads(Path(NAME).read_text(), parse_constant=pytest.fail)
    (row,) = (row for row in log["training_iterations"] if row["iter"] == 8)
    assert (row["loss"], row["grad_norm"], row["mfu"]) == (None, None, 0)
    assert [row["val_loss"] for row in log["eval_steps"]] == [2.0, 2.0, None]
    table = pandas.read_csv("training_metrics.csv")
    assert (table["loss"].count(), table["mfu"].mean()) == (11, 30.0 * 11 / 12)
    assert "NaN" not in Path(NAME).read_text()


AS_WRITTEN = r"""
du -sh benchmark_results/
ls -lhS benchmark_results/
ls benchmark_results/benchmark_*.json | wc -l
du -h benchmark_results/benchmark_*.json
du -h benchmark_results/*.log
ls -t benchmark_results/benchmark_cuda_*.json | head -1
cat $(ls -t benchmark_results/benchmark_cuda_*.json | head -1) | python3 -m json.tool
python3 -c "
import json
with open('$(ls -t benchmark_results/benchmark_cuda_*.json | head -1)') as f:
    data = json.load(f)
print(f\"Tokens/s/GPU: {data['performance_metrics']['tokens_per_second_per_gpu']:,.0f}\")
"
tail -n 50 benchmark_results/primus_training_*.log
grep "elapsed time per iteration" benchmark_results/primus_training_*.log
python3 -c "
import json, glob
for f in sorted(glob.glob('benchmark_results/benchmark_*.json')):
    with open(f) as fp:
        d = json.load(fp)
    print(f\"{d['platform']:5} {d['timestamp']:19} \
{d['performance_metrics'].get('tokens_per_second_per_gpu', 0):>10,.0f} tokens/s/GPU\")
"
tar -czf benchmarks_backup_$(date +%Y%m%d).tar.gz \
    benchmark_results/benchmark_*.json \
    benchmark_results/comparison_report.md
tar -czf benchmarks_full_$(date +%Y%m%d).tar.gz \
    benchmark_results/
tar -xzf benchmarks_backup_$(date +%Y%m%d).tar.gz
gzip benchmark_results/*.log
find benchmark_results/ -name "*.log" -mtime +7 -delete
find benchmark_results/ -name "*.log.gz" -mtime +30 -delete
echo "Benchmark JSONs retained: $(ls benchmark_results/benchmark_*.json | wc -l)"
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_documented_commands_run_on_results() -> None:
    """Each listing of the storage guide runs on our results, logs and reports, and leaves every result."""
    matplotlib.use("Agg")
    for number, platform in enumerate(("cuda", "rocm")):
        info = run_info(Path("runs", platform), id=platform, options={"BENCHMARK_DIR": "benchmark_results"})
        records = [Start(time=T0, rank=0), *rows(12, at=1.0 + number)]
        Driver(registry.load("benchmark"), info).deliver(stream(records))
        (made,) = (path for path in Path("benchmark_results").glob("*.json") if "_20260105" not in path.name)
        made.rename(f"benchmark_results/benchmark_{platform}_20260105_11290{number}.json")
    assert compare_results.main([]) == 0
    shutil.copy(LOG, "benchmark_results/primus_training_112906.log")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shown = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", AS_WRITTEN], capture_output=True, text=True, env=environment, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "elapsed time per iteration" in shown.stdout
    assert shown.stdout.endswith("Benchmark JSONs retained: 2\n")
    assert shown.stdout.count(" 0 tokens/s/GPU\n") == 2
