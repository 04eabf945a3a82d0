"""The files that are mutated: one run, written by the real writers of every format, and logs of training programs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import msgspec

from tests import ROOT
from tests.fuzz import planted, plugged

RUN = Path("runs", "digits", "seedrun1")
NAMES = (
    "json", "csv", "tensorboard", "trackio", "mlflow", "wandb", "benchmark", "progress",
    *plugged.trackers(),
)  # fmt: skip

PROGRAM = """
import math
import numpy as np
import trackers

run = trackers.init(
    trackers="@NAMES@", project="digits", name="seed", id="seedrun1",
    config={"lr": 0.1, "model": {"width": 3}}, tags=["a"], group="g", notes="n",
)
for step in range(12):
    run.log({"train_loss": 2.0 / (step + 1), "learning_rate": 1e-3, "count": step}, step=step)
run.log({"val_loss": math.nan, "note": "text"}, step=11)
table = trackers.Table(columns=["a"], data=[[1]])
pictures = {"picture": trackers.Image(np.zeros((4, 4, 3), np.uint8)), "spread": trackers.Histogram([1, 2, 3])}
run.log({**pictures, "table": table}, step=11)
run.log({"final/best": 0.5})
run.alert("watch", "out")
with open("weights.bin", "wb") as file:
    file.write(b"weights")
run.log_artifact("weights.bin", name="weights", type="model")
run.finish()
"""


def a_run(work: Path, names: Sequence[str]) -> Path:
    """The directory of a run that was delivered to these trackers; their stores lie below ``work``."""
    work.mkdir(parents=True)
    home = {"HOME": str(work), "XDG_CACHE_HOME": str(work / "cache"), "XDG_DATA_HOME": str(work / "data")}
    away = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(work / "trackio"), "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
    code = Path(__file__).parents[2]
    path = os.pathsep.join([str(code), *filter(None, [os.environ.get("PYTHONPATH")])])  # with plug-ins
    environment = {**os.environ, **home, **away, "PYTHONPATH": path, "TRACKER_FINISH_TIMEOUT": "600"}
    program = PROGRAM.replace("@NAMES@", ",".join(names))
    subprocess.run([sys.executable, "-c", program], cwd=work, env=environment, check=True, capture_output=True)
    return work / "runs" / "digits" / "seedrun1"


def make_plugged(place: Path, name: str) -> None:
    """Write the files of one distribution in plugins/ alone."""
    module = plugged.modules()[name]
    work = place / "work"
    module.seeds(place, a_run(work, getattr(module, "TRACKERS", ("json",))))
    shutil.rmtree(work, ignore_errors=True)


def make(place: Path) -> None:
    """Write them below a directory, each format in a folder of its own; about seven seconds.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    work = place / "work"
    run = a_run(work, NAMES)
    _copy(run.glob("*.json"), place / "json", lambda path: path.name.startswith("seed"))
    _copy((work / "benchmark_results").glob("*.json"), place / "benchmark")
    _copy([*run.glob("*.csv")], place / "csv")
    _copy((run / "tensorboard").rglob("*tfevents*"), place / "tb")
    _copy(work.glob("trackio/*.db"), place / "trackio")
    _copy(work.glob("mlflow.db"), place / "mlflow")
    _thin(place / "mlflow" / "mlflow.db")
    shutil.copytree(work / "mlruns", place / "mlflow-files" / "mlruns")
    _copy(work.glob("mlflow.db"), place / "mlflow-files")
    _copy(run.glob("wandb/*/*.wandb"), place / "wandb-file")
    _mlflow_store(place / "mlflow-store" / "mlruns")
    _tables(place)
    planted.make(place)
    for module in plugged.modules().values():
        module.seeds(place, run)
    (place / "hf").mkdir()
    state = {"global_step": 2, "max_steps": 2, "epoch": 1.0, "best_metric": 0.5, "is_local_process_zero": True,
             "log_history": [{"loss": 2.5, "step": 1, "epoch": 0.5}, {"eval_loss": 2.0, "step": 2},
                             {"train_runtime": 1.5, "step": 2}]}  # fmt: skip
    (place / "hf" / "trainer_state.json").write_text(json.dumps(state, indent=2))
    _run(run, place / "delivery", set(NAMES))
    _run(run, place / "run", {"json", "wandb"})
    _pack(place / "run" / RUN, place / "packed" / RUN)
    _leases(place / "run" / RUN, place / "lease" / RUN)
    _archive(place / "run" / RUN, place / "archive" / RUN)
    with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(work / "cache")):
        _caches(place)
    online = {**os.environ, "WANDB_MODE": "online"}  # to a server on loopback
    subprocess.run(
        [sys.executable, "-m", "tests.fuzz.answers", str(place)],
        cwd=ROOT,
        env=online,
        check=True,
        capture_output=True,
    )
    shutil.rmtree(work)


TABLES = {
    "results": "     epoch,   time,   train/box_loss\n"
    + "".join(f"  {n},  {n * 9.5},  {1 / n}\n" for n in range(1, 9)),
    "monitor": '#{"t_start": 1770000000.5, "env_id": "Toy-v0"}\nr,l,t\n10.5,20,1.5\n12.25,33,2.75\n9.5,12,3.25\n',
    "lightning": "epoch,lr,step,loss,val_loss\n0,0.1,9,0.5,\n0,,9,,0.25\n1,0.1,19,0.125,\n",
    "german": "Schritt;step;loss;Zeit [s]\n0;0;0,5;1,5\n1;10;1.234,25;3,0\n",
    "pandas": ',step,loss,note\n0,1,0.5,"a, ""b"""\n1,2,"1,000",NA\n',
    "long": "run_id,key,value,step,timestamp\nab,loss,0.5,0,1770000000500\nab,acc,0.25,0,1770000000500\ncd,acc,1,0,1\n",
    "blanks": "# by hand\nstep  loss time\n 1  2.5 2026-01-02T10:00:00\n 2 2.25 2026-01-02T10:00:01\n",
    "stamps": "timestamp\tstep\tloss\tloss\n1770000000500\t1\t0.5\t1\n1770000001500\t2\tnan\tInfinity\n",
}
"""Tables as other programs write them, by name."""
LINES: dict[str, list[dict[str, object]]] = {
    "trainer_log.jsonl": [{"current_steps": n, "total_steps": 9, "loss": 1 / n, "lr": 1e-4, "epoch": n / 9,
                           "elapsed_time": f"0:00:0{n}", "remaining_time": f"0:00:0{9 - n}"} for n in range(1, 10)],
    "scalars.json": [*({"lr": 0.1, "data_time": 0.01, "loss": 1.0, "time": 0.25, "epoch": 1, "iter": n, "step": n}
                       for n in range(1, 6)), {"coco/bbox_mAP": 0.25, "data_time": 0.1, "time": 0.5, "step": 1}],
    "verl.jsonl": [{"step": n, "data": {"actor/pg_loss": 0.5, "val-core/x": math.nan}} for n in range(4)],
    "result.json": [{"training_iteration": n, "timesteps_total": 100 * n, "timestamp": 1770000000 + n,
                     "config": {"lr": 0.1, "model": {"width": 3}}, "info": {"kl": "0.5", "list": [1, 2]}, "note": "x",
                     "date": "2026-01-02_10-00-00", "none": None} for n in range(1, 5)],
}  # fmt: skip


def _tables(place: Path) -> None:
    """Tables and JSON lines."""
    for folder in ("tables", "lines", "settings"):
        (place / folder).mkdir()
    for name, text in TABLES.items():
        (place / "tables" / f"{name}.csv").write_text(text)
    for name, rows in LINES.items():
        (place / "lines" / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (place / "settings/metrics.csv").write_text(TABLES["lightning"])
    (place / "settings/hparams.yaml").write_text("lr: 0.1\nlayers: [1, 2]\nmodel:\n  width: 3\n  name: é\n")


def _mlflow_store(place: Path) -> None:
    """A store of files, as MLflow's client writes it, with two runs."""
    from mlflow import MlflowClient

    with mock.patch.dict(os.environ, MLFLOW_ALLOW_FILE_STORE="true"):
        client = MlflowClient(tracking_uri=place.absolute().as_uri())
        experiment = client.create_experiment("digits")
        for name in ("a", "b"):
            run = client.create_run(experiment, run_name=name, tags={"group": "g"}).info.run_id
            for step in range(4):
                client.log_metric(run, "loss", 1 / (step + 1), 1_700_000_000_000 + step, step)
            client.log_param(run, "lr", 0.1)
            client.set_terminated(run)


def _thin(database: Path) -> None:
    """Leave a metric of each kind: MLflow's client asks for each one's history, which takes a millisecond."""
    kept = ("train_loss", "val_loss", "final/best", "system/cpu_utilization_percentage", "system/disk_in")
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for table in ("metrics", "latest_metrics"):
            connection.execute(f"DELETE FROM {table} WHERE key NOT IN {kept}")
        connection.execute("VACUUM")


def _run(run: Path, place: Path, deliveries: set[str]) -> None:
    """The run's directory, with some of its deliveries."""

    def others(folder: str, names: list[str]) -> set[str]:
        left = {"wandb", "tensorboard", "relay.lease", *plugged.trackers()} if Path(folder) == run else set()
        if Path(folder).name == "delivery":
            left = {name for name in names if name.partition(".")[0] not in deliveries}
        return left & set(names)

    shutil.copytree(run, place / RUN, ignore=others)
    identity = place / RUN / "run.json"
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "trackers": sorted(deliveries)}, indent=1))


def _pack(run: Path, target: Path) -> None:
    """The run, its streams packed as ``trackers archive`` packs them."""
    from trackers.support.seekable_zstd import pack, packed_path

    shutil.copytree(run, target)
    for stream in (target / "streams").glob("*.jsonl"):
        pack(stream, packed_path(stream))
        stream.unlink()


def _leases(run: Path, target: Path) -> None:
    """The run with leases of processes that are gone, on this machine and another, and a claim on one."""
    from trackers.journal.lease import Holder, Lease

    shutil.copytree(run, target, ignore=shutil.ignore_patterns("media", "session", "benchmark", "*.csv"))
    here = Lease(target / "delivery" / "json.lease")
    assert here.acquire()
    held = msgspec.structs.replace(here.holder(), pid=2**22 + 1)
    here.path.write_bytes(msgspec.json.encode(held))
    away = Holder(token="0123456789abcdef", host="node7", boot_id="b", pid=7, pid_start=1.5, allow_s=3.0, count=2)
    (target / "relay.lease").write_bytes(here.path.read_bytes())
    (target / "delivery" / "wandb.lease").write_bytes(msgspec.json.encode(away))
    (target / "delivery" / f"json.lease.{held.token}.taken").write_bytes(msgspec.json.encode(away))


def _archive(run: Path, target: Path) -> None:
    from trackers.journal.run_directory import RunDirectory
    from trackers.retention.archive import archive

    shutil.copytree(run, target)
    archive(RunDirectory(target))


def _caches(place: Path) -> None:
    """What the W&B reader and all others keep below ``XDG_CACHE_HOME``."""
    from tests.fuzz.targets import READS_CACHE, WANDB_CACHE
    from trackers.readers.cache import Cache
    from trackers.readers.run_data import load
    from trackers.readers.wandb.fetch import RunCache

    held = RunCache(*WANDB_CACHE)
    for part in (range(5), range(5, 12)):
        held.add([{"_step": step, "_timestamp": 1.0 * step, "loss": 0.5, "note": "x"} for step in part])
    held.set_events([{"_timestamp": 1.0, "system.cpu": 3.0}], "12/t/finished", 1)
    held.complete("12/t/finished")
    shutil.copytree(held.path, place / "wandb-cache")
    data = load(f"json:{next((place / 'json').glob('*.json'))}")
    cache = Cache(READS_CACHE)
    cache.replace({"version": "1", "note": ""}, 12, data.blocks(), data.records())
    shutil.copytree(cache.path, place / "reads-cache")


def _copy(files, target, wanted=lambda path: True) -> None:  # type: ignore[no-untyped-def]
    target.mkdir(exist_ok=True)
    for file in files:
        if wanted(file):
            shutil.copyfile(file, target / file.name)
