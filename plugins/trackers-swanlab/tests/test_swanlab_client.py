"""SwanLab's own client reads what the tracker wrote, and would upload all of it; ours reads what that client wrote."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from swanlab.proto.swanlab.grpc.core.v1.sync_pb2 import DeliverSyncStartRequest
from swanlab.proto.swanlab.record.v1.record_pb2 import Record as NativeRecord
from swanlab.proto.swanlab.settings.core.v1.core_pb2 import CoreSettings
from swanlab.sdk.internal.core_python.metrics import RunMetrics
from swanlab.sdk.internal.core_python.store import DataStoreReader
from swanlab.sdk.internal.core_python.sync import CoreSyncPython
from swanlab.sdk.internal.pkg import constraints
from swanlab_store import swanlab_stored
from trackers_swanlab.reader import SwanlabReader
from trackers_swanlab.run_files import stored_name
from trackers_swanlab.tracker import SwanlabTracker

from tests import stores
from tests.helpers import T0, Driver, run_info, stream
from trackers.records import ArtifactRecord, Config, Finish, Media, Metrics, Record, Start, Summary, Text
from trackers.testing import Limits, Stored, check_tracker, checks
from trackers.testing.checks import metric_names, one_of_each
from trackers.tracker import RunInfo


def read(info: RunInfo, state: Mapping[str, Any]) -> Stored:
    """The run's directory, its records by the client's own reader and classes."""
    (path,) = info.path("swanlab").glob("run-*/run-*.swanlab")
    reader = DataStoreReader()
    reader.open(path)
    try:
        return swanlab_stored(path.parent, [NativeRecord.FromString(content) for content in reader])
    finally:
        reader.close()


@pytest.mark.processes
@pytest.mark.parametrize("check", checks())
def test_client_reads_what_was_promised(check: str, tmp_path: Path) -> None:
    """Each check of the conformance kit passes with the client's own reader."""
    limits = Limits(integers="float", big_integers="float", rename=stored_name)
    check_tracker("swanlab", read, directory=tmp_path / "runs", limits=limits, checks=[check])


class Uploads:
    """Takes what the client would upload."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def put(self, records: list[Any]) -> None:
        self.records += records


def synced(directory: Path) -> tuple[list[Any], Any]:
    """What ``swanlab sync`` would upload of a run's directory, and the end that it would tell."""
    core = CoreSyncPython()
    answer = core.deliver_sync_start(DeliverSyncStartRequest(core_settings=CoreSettings(run_dir=str(directory))))
    assert answer.success, answer.message
    core._transport, core._metrics = uploads, _ = Uploads(), RunMetrics()  # type: ignore[assignment]
    asyncio.run(core.read())
    return uploads.records, core._finish_record


def test_sync_uploads_all(tmp_path: Path) -> None:
    """The client takes each record of a run with a rewind, media, an alert and results, and leaves none out."""
    info = run_info(tmp_path / "run")
    records: list[Record] = [
        *one_of_each(tmp_path / "run"),
        *(Metrics(step=step, time=T0, values={"a": step, "b/c": -step}) for step in range(5)),
        Metrics(time=T0, values={"system.cpu": 7.0}),
        Start(time=T0, attempt=2, from_step=2),
        *(Metrics(step=step, time=T0, values={"a": step, "b/c": -step}) for step in range(3, 9)),
        Summary(time=T0, values={"best": 0.5}),
    ]
    Driver(SwanlabTracker, info).deliver(stream(records))
    (directory,) = (tmp_path / "run/swanlab").iterdir()
    uploads, finish = synced(directory)
    kinds = Counter(record.WhichOneof("record_type") for record in uploads)
    wrote = Counter(
        NativeRecord.FromString(content).WhichOneof("record_type")
        for content in stores.leveldb_records(next(directory.glob("*.swanlab")))
    )
    assert wrote - kinds == Counter({"start": 1, "finish": 1})
    assert finish.state == 1


def test_names_follow_the_clients_rules() -> None:
    """Whatever a metric is called, the client takes its stored name."""
    for name in ["", *metric_names(), "a\nb", "__swanlab__.gpu", "n" * 513]:
        constraints.ta_metric_key.validate_python(stored_name(name))


OFFLINE = """
import os
import swanlab

swanlab.init(project="digits", experiment_name="baseline", description="why", tags=["first"], group="ablation",
             mode="offline", logdir="swanlog", config={"lr": 1e-5, "model": {"depth": 4}, "note": "größe: 1"})
for step in range(20):
    swanlab.log({"loss": 1 / (step + 1), "val/acc": float("nan") if step == 3 else step}, step=step)
swanlab.log({"said": swanlab.Text("hello"), "chart": swanlab.echarts.Table().add(["a"], [["b"]])}, step=20)
with open("weights.bin", "wb") as file:
    file.write(bytes(range(256)))
swanlab.save(os.path.abspath("weights.bin"))
raise RuntimeError("out of memory")
"""


@pytest.mark.processes
def test_reader_gives_back_what_the_client_wrote(tmp_path: Path) -> None:
    """An offline run of SwanLab's client: numbers with their steps, settings, texts, tables, files and its end."""
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", OFFLINE]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "out of memory" in done.stderr
    (run,) = SwanlabReader().runs(str(tmp_path / "swanlog"))
    assert (run.name, run.project, run.notes, run.group) == ("baseline", "digits", "why", "ablation")
    assert (run.tags, run.status) == (["first"], "failed")
    records = list(SwanlabReader().read(run))
    assert run.note == ""
    rows = [record for record in records if isinstance(record, Metrics) and record.step is not None]
    assert [(row.step, row.values["loss"]) for row in rows] == [(step, 1 / (step + 1)) for step in range(20)]
    assert math.isnan(rows[3].values["val/acc"])
    (config,) = [record for record in records if isinstance(record, Config)]
    assert config.values == {"lr": 1e-5, "model": {"depth": 4}, "note": "größe: 1"}
    assert [record.values for record in records if isinstance(record, Text)] == [{"said": "hello"}]
    (table,) = [record for record in records if isinstance(record, Media)]
    assert table.items[0].data == {"columns": ["a"], "rows": [["b"]]}
    assert not [record for record in records if isinstance(record, ArtifactRecord)]  # it lies there as a link
    (link,) = Path(run.directory, "files").rglob("weights.bin")
    link.unlink()
    link.write_bytes(b"weights")
    (artifact,) = [record for record in SwanlabReader().read(run) if isinstance(record, ArtifactRecord)]
    assert Path(run.directory, artifact.files[0].file) == link
    end = records[-1]
    assert isinstance(end, Finish)
    assert (end.status, end.exit_code) == ("failed", 1)
