"""A kill at each named point, between any two writes, sends, commits and renames, costs no record and doubles none."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.backends.wandb.support import server
from tests.chaos import prepared
from tests.chaos.audit import audit, read
from tests.chaos.prepared import Journal, deliver, journal
from tests.fakes.wandb_server import WandbServer
from tests.faults.driven import ROOT
from tests.stores import mlflow_tables
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader
from trackers.records import Metrics

__all__ = ["journal", "mlflow_tables", "server"]

LOOP = tuple(f"{call}.{when}" for call in ("open", "write", "commit", "close") for when in ("before", "after"))
"""Points of the delivery loop, with the tracker's name before them."""
FILES = ("file.write.before", "file.rename.before", "file.rename.after")
ORDER = ("order.switch.before", "order.switch.after", "order.settle.before", "order.settle.after")
OWNED = ("owned.write.before", "owned.write.after")
CUT = ("owned.cut.before", "owned.cut.after")
REPLACED = ("owned.replace.before", "owned.rename.before", "owned.rename.after")
OWN = {
    "json": (*OWNED, *REPLACED),
    "csv": (*OWNED, *REPLACED),
    "tensorboard": OWNED,
    "trackio": tuple(f"trackio.{what}.{when}" for what in ("log", "extend") for when in ("before", "after")),
    "mlflow": (
        *(f"mlflow.{what}" for what in ("create.before", "create.after", "params.after", "tags.after")),
        *(f"mlflow.{what}" for what in ("metrics.before", "metrics.after", "file.before", "file.after", "end.before")),
    ),
    "wandb": (
        *(f"wandb.{what}" for what in ("init.before", "init.after", "row.before", "row.after")),
        *(f"wandb.{what}" for what in ("exit.before", "exit.after")),
    ),
}
"""Points that a tracker alone passes."""
TRAINING = ("journal.write.before", "journal.write.after")
SUPERVISOR = ("relay.finish.before", "relay.finish.after")
LEASE = ("lease.create.half", "lease.claim.after")
"""The second is killed at in :mod:`tests.faults.test_lease`."""
APPENDED = ("progress.write.before", "progress.write.after")
"""Killed at in :mod:`tests.backends.progress.test_tracker`."""
SPANS = ("mlflow.spans.after",)
"""Killed at in :mod:`tests.backends.mlflow.test_traces`."""
MODELS = ("mlflow.model.create", "mlflow.model.files", "mlflow.model.before")
"""Killed at in :mod:`tests.backends.mlflow.test_models`."""
STORE = ("store.remove.noted", "store.remove.deleted")
"""Killed at in :mod:`tests.object_storage.test_removal`."""
REDUCER = ("reducer.state.before", "reducer.append.before", "reducer.append.after")


def points(tracker: str) -> list[str]:
    """Every point that the delivery to a tracker passes."""
    return [*(f"{tracker}.{point}" for point in LOOP), *FILES, *ORDER, *OWN[tracker]]


def finish(journal: Journal, tracker: str) -> None:
    """One delivery that nobody kills."""
    code = deliver(journal, tracker)
    assert code == 0, (journal.directory / "output.txt").read_text()[-2000:]


def verify(journal: Journal, tracker: str, status: str = "failed", **more: object) -> None:
    """The store holds every call once, and no stray file is left."""
    info = journal.run.read_info()
    found = audit(tracker, read(tracker, info, **more), prepared.SEED, journal.said, [status])  # type: ignore[arg-type]
    assert not found.total(), "\n".join(found.lines[:10])
    assert found.held in (len(journal.said.begun), len(journal.said.returned))
    assert not prepared.strays(journal)


def kill_at(journal: Journal, tracker: str, point: str) -> None:
    """Kill deliveries at the first and, behind what that one had written, at the third passing of a point."""
    assert deliver(journal, tracker, failpoint=f"{point}=kill:1") == -signal.SIGKILL, f"{point} isn't passed"
    # Points that a process passes once or twice let it come to its end.
    assert deliver(journal, tracker, failpoint=f"{point}=kill:3") in (-signal.SIGKILL, 0)


LIGHT = [
    pytest.param(tracker, point, marks=[] if tracker == "json" or ".commit." in point else pytest.mark.slow)
    for tracker in ("json", "csv", "tensorboard", "trackio")
    for point in points(tracker)
]


@pytest.mark.parametrize(("tracker", "point"), LIGHT)
def test_kill_at_point(tracker: str, point: str, journal: Journal, tmp_path: Path) -> None:
    """Deliveries that die at this point leave a store that the next one makes whole."""
    copy = journal.copy(tmp_path / "run")
    kill_at(copy, tracker, point)
    finish(copy, tracker)
    verify(copy, tracker)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["json", "csv", "tensorboard"])
def test_kill_while_a_tail_is_cut(tracker: str, journal: Journal, tmp_path: Path) -> None:
    """A delivery that dies before or after it has cut an uncommitted tail harms nothing."""
    copy = journal.copy(tmp_path / "run")
    for point in CUT:
        assert deliver(copy, tracker, failpoint="owned.write.after=kill:3") == -signal.SIGKILL
        assert deliver(copy, tracker, failpoint=f"{point}=kill") == -signal.SIGKILL, f"{point} isn't passed"
    finish(copy, tracker)
    verify(copy, tracker)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["json", "csv", "tensorboard"])
def test_kill_within_a_write(tracker: str, journal: Journal, tmp_path: Path) -> None:
    """A write of which only the first half reached the file is undone."""
    copy = journal.copy(tmp_path / "run")
    for _ in range(2):
        assert deliver(copy, tracker, changes=["torn_file"]) == -signal.SIGKILL
    finish(copy, tracker)
    verify(copy, tracker)


@pytest.mark.slow
def test_kill_at_every_point_of_mlflow(
    journal: Journal, tmp_path: Path, mlflow_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run, delivered to MLflow by process after process, each dead at another point, is there once."""
    shutil.copyfile(mlflow_tables, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    copy = journal.copy(tmp_path / "run")
    for point in in_order("mlflow"):
        assert deliver(copy, "mlflow", failpoint=f"{point}=kill") == -signal.SIGKILL, f"{point} isn't passed"
    finish(copy, "mlflow")
    verify(copy, "mlflow", mlflow_uri=uri)


@pytest.mark.slow
def test_kill_at_every_point_of_wandb(journal: Journal, tmp_path: Path, server: WandbServer) -> None:
    """One run, delivered to W&B by process after process, each dead at another point, is there once."""
    copy = journal.copy(tmp_path / "run")
    for point in in_order("wandb"):
        assert deliver(copy, "wandb", failpoint=f"{point}=kill") == -signal.SIGKILL, f"{point} isn't passed"
    finish(copy, "wandb")
    verify(copy, "wandb", wandb_runs={name: run.dump() for name, run in server.runs.items()})


def in_order(tracker: str) -> list[str]:
    """A tracker's own points, each once and none that only an earlier stage passes behind a later one."""
    own = [f"{tracker}.open.before", *OWN[tracker], f"{tracker}.write.after", f"{tracker}.commit.before"]
    late = [point for point in own if re.search(r"\.(exit|end)\.", point)]
    return [*(point for point in own if point not in late), *late, f"{tracker}.close.after"]


@pytest.mark.slow
@pytest.mark.parametrize("point", TRAINING)
def test_kill_of_training_at_journal_point(point: str, tmp_path: Path) -> None:
    """Training that dies beside a write to the journal, and goes on as a second attempt, lost nothing it was told."""
    journal = prepared.train(tmp_path / "run", failpoint=f"{point}=kill:20")
    assert journal.said.words == ["ready"]
    prepared.train(tmp_path / "run")
    finish(journal, "json")
    verify_begun(journal)


@pytest.mark.slow
def test_kill_of_training_within_a_write(tmp_path: Path) -> None:
    """Half a line at the end of the journal is no record, and is no obstacle for the next attempt."""
    journal = prepared.train(tmp_path / "run", changes=["torn_journal"])
    prepared.train(tmp_path / "run")
    finish(journal, "json")
    verify_begun(journal)


def verify_begun(journal: Journal) -> None:
    """As :func:`verify`; the call in which training died may be there or not."""
    found = audit("json", read("json", journal.run.read_info()), prepared.SEED, journal.said, ["failed"])
    assert not found.total(), "\n".join(found.lines[:10])
    assert len(journal.said.returned) > prepared.CALLS


@pytest.mark.slow
@pytest.mark.parametrize("point", SUPERVISOR)
def test_kill_of_the_supervisor_beside_the_finish_record(point: str, tmp_path: Path) -> None:
    """A sync that dies beside the finish record it writes for a killed run leaves the status to the next one."""
    journal = prepared.train(tmp_path / "run", failpoint="journal.write.before=kill:25")
    assert prepared.sync(journal, "json", failpoint=f"{point}=kill") == -signal.SIGKILL, f"{point} isn't passed"
    assert prepared.sync(journal, "json") == 0
    verify(journal, "json", status="crashed")


def test_kill_while_a_lease_is_made(journal: Journal, tmp_path: Path) -> None:
    """An empty lease, whose maker died before it wrote its name, is taken over after seconds."""
    copy = journal.copy(tmp_path / "run")
    assert deliver(copy, "json", failpoint=f"{LEASE[0]}=kill") == -signal.SIGKILL
    finish(copy, "json")
    verify(copy, "json")


REDUCE = """
import sys
from trackers import records
from trackers.relay.aggregation.output import Reduced, OutputState as State
from trackers.journal.run_directory import RunDirectory

reduced = Reduced(RunDirectory(sys.argv[1]), 1)
for number in range(int(reduced.state.time), 10):
    line = records.encode(records.Metrics(step=number, time=1000.0 + number, values={"loss": number / 7}))
    assert reduced.append([line], State(time=number + 1))
"""


@pytest.mark.parametrize("point", REDUCER)
def test_kill_of_the_reducer(point: str, tmp_path: Path) -> None:
    """Results across ranks that a dying reducer passed on, or was about to, are in the journal once."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    for failpoint, code in ((f"{point}=kill:1", -signal.SIGKILL), (f"{point}=kill:3", -signal.SIGKILL), ("", 0)):
        env = {**os.environ, "TRACKERS_FAILPOINT": failpoint, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", REDUCE, str(run.path)]
        env = {name: value for name, value in env.items() if value}
        assert forked.run(command, preload=forked.PACKAGE, env=env).returncode == code
    (path,) = run.streams.iterdir()
    found = [record for record in StreamReader(path).read() if isinstance(record, Metrics)]
    assert [(record.step, record.values["loss"]) for record in found] == [(step, step / 7) for step in range(10)]


def test_every_point_of_the_package_is_killed_at() -> None:
    """No failpoint is forgotten here, and none of these names is one that isn't there any more.

    What keeps, edits and deletes runs, and what sends alerts, has points of its own, which its own tests are killed at.
    """
    import trackers

    package = Path(trackers.__file__).parent
    files = [path for path in package.rglob("*.py") if not {"retention", "alerting", "editing"} & set(path.parts)]
    there = set(re.findall(r"failpoint\(f?\"([^\"]+)\"\)", "\n".join(path.read_text() for path in files)))
    own = {point for tracker in OWN for point in OWN[tracker]}
    loop = {f"{{self.name}}.{point}" for point in LOOP}
    ours = {*loop, *FILES, *ORDER, *CUT, *own, *TRAINING, *SUPERVISOR, *LEASE, *APPENDED, *SPANS, *STORE}
    ours |= {*MODELS, *REDUCER}
    assert there == ours
