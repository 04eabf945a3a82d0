"""A pipe, a folder, a device or a socket in place of any file of a run holds nobody up, and hides no other run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import trackers
from tests.analysis.support import T0, write_run
from trackers.cli.app import app
from trackers.copying.transfer import copy
from trackers.errors import NotFound, TrackersError, UsageError
from trackers.journal.attempts import AttemptHistory, checkpoint_record
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.records import Media, MediaFile
from trackers.relay.delivery.cursor_file import read_account
from trackers.relay.sync import Follower, RunSync, runs_below, sync
from trackers.retention.prune import due_logs

FILES = (
    "run.json", "streams/rank-0.1.jsonl", "streams/rank-0.1.jsonl.zst", "streams/sampler-0.1.jsonl",
    "delivery/json.json", "delivery/json.rejected.jsonl", "delivery/json.lease", "archive.json", "messages.jsonl",
    "relay.log", "git-1.patch", "run.json.deleting",
)  # fmt: skip
KINDS = ("pipe", "folder", "socket", "device", "link to a device")
LIMIT_S = 60
"""Reading an endless device, or waiting for a pipe, would take longer on any machine."""


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def over(*_: Any) -> None:
        raise AssertionError("it waits for what never comes")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def plant(path: Path, kind: str) -> None:
    """Put something that is no file in a file's place."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's name is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
        os.chdir(here)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    else:
        if os.geteuid() != 0:
            pytest.skip("needs root: only root makes devices")
        with contextlib.suppress(PermissionError):
            os.mknod(path, 0o20666, os.makedev(1, 5))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("file", "kind"), [*((file, "pipe") for file in FILES), *((file, kind) for file in FILES[:2] for kind in KINDS[1:])]
)
def test_what_is_no_file_holds_nobody_up(file: str, kind: str) -> None:
    """Listing, showing and loading end at once; the other run is shown."""
    rows = [(1, 1.0, {"loss": 1.0})]
    write_run("good", rows)
    path = write_run("bad", rows)
    if file.endswith(".zst"):
        (path / "streams/rank-0.1.jsonl").unlink()
    (path / "delivery/json.json").write_text("{}")
    plant(path / file, kind)
    bad = str(path)
    words = (["ls", "--dir", "runs"], ["ls", "--dir", "runs", "--json"], ["show", bad], ["show", bad, "--rejected"])
    for one in words:
        done = CliRunner().invoke(app, one)
        assert done.exception is None or isinstance(done.exception, (TrackersError, OSError, SystemExit)), one
        assert "good" in done.output or "runs" not in one
    assert "good" in [data.run.id for data in trackers.load_all("runs")]
    with contextlib.suppress(TrackersError):
        trackers.load(bad).metrics()


ROWS = [(1, 0.1, {"loss": 1.0})]
TABLE = MediaFile(format="json", file="media/table.json")


@pytest.mark.parametrize("file", ["streams/rank-0.1.jsonl", "delivery/json.json", "relay.lease"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_resumed_run_names_what_is_no_file(file: str, kind: str) -> None:
    """As ``init`` begins, in one line with the way out: no traceback, and no wait at the end."""
    path = write_run("bad", ROWS)
    plant(path / file, kind)
    with pytest.raises(UsageError, match=f"{file} is a .*, and no process can use it: remove it"):
        trackers.init(["json"], project="digits", id="bad", resume="allow")


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device"])
def test_reader_names_what_is_no_file(kind: str) -> None:
    """Of a run with a hundred files it says which one is in the way."""
    path = write_run("bad", ROWS)
    plant(path / "streams/rank-0.1.jsonl", kind)
    with pytest.raises(NotFound, match=r"bad can't be read: .*streams/rank-0\.1\.jsonl: is"):
        trackers.load(str(path)).metrics()


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device"])
def test_copy_names_what_is_no_file(kind: str) -> None:
    """A medium that isn't copied is said, though both sides' records agree, and its tracker refused it by another
    path."""
    path = write_run("bad", ROWS, more=[Media(name="t", type="table", items=[TABLE], time=T0)])
    plant(path / TABLE.file, kind)
    (report,) = copy(str(path), "out")
    assert report.agrees
    assert [line for line in report.messages if line.endswith(f"aren't copied, the first: {TABLE.file}")]


DELIVERED = (
    "streams/rank-0.1.jsonl", "streams", "delivery", "delivery/json.json", "delivery/json.order",
    "delivery/json.lease", "delivery/json.rejected.jsonl", "relay.log", "messages.jsonl", "relay.lease",
)  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
def test_delivery_refuses_it_at_once(kind: str) -> None:
    """What can't become usable isn't waited for: one line names it, and other runs are delivered."""
    names = [name for name in DELIVERED if not (kind == "folder" and name in ("streams", "delivery"))]
    planted = [write_run(f"bad{number}", ROWS) / name for number, name in enumerate(names)]
    for path in planted:
        if path.is_dir():
            shutil.rmtree(path)
        plant(path, kind)
    other = RunDirectory(write_run("good", ROWS))
    complaints: list[str] = []
    begun: set[Path] = set()

    def show(work: RunSync) -> None:
        begun.add(work.run.path)

    runs = [RunDirectory(f"runs/digits/bad{number}") for number in range(len(names))]
    assert not sync([*runs, other], ["json"], show, say=complaints.append, patience_s=0.0)
    assert begun == {other.path}
    assert read_account(other, "json").closed == "finished"
    assert [str(path) in line for path, line in zip(planted, complaints, strict=True)] == [True] * len(names)
    for run in runs:
        with pytest.raises(UsageError, match="no process can use it: remove it"):
            sync([run], [], show, patience_s=0.0)


@pytest.mark.processes
@pytest.mark.parametrize(("tracker", "file"), [
    ("trackio", "{trackio}/digits.db"), ("trackio", "{trackio}/digits.lock"), ("mlflow", "mlflow.db"),
])  # fmt: skip
def test_sync_waits_for_no_pipe_in_a_trackers_place(
    tracker: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery stops there, with the file and the way out, instead of being tried for two minutes, or for ever."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    run = RunDirectory(write_run("bad", ROWS))
    path = Path(file.format(trackio=os.environ["TRACKIO_DIR"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    assert not sync([run], [tracker], lambda work: None, say=print, patience_s=0.0)
    account = read_account(run, tracker)
    assert account.stopped
    assert path.name in account.error
    assert "remove it" in account.error


def test_directories_of_links_to_themselves_end(tmp_path: Path) -> None:
    """Each directory is looked through once, whatever links lead to it."""
    write_run("one", ROWS, root=tmp_path / "runs")
    for number in range(40):
        (tmp_path / "runs" / f"link-{number}").symlink_to(tmp_path / "runs")
        (tmp_path / "runs" / "digits" / f"link-{number}").symlink_to("..")
    assert [run.path.name for run in runs_below(tmp_path / "runs")] == ["one"]


@pytest.mark.processes
def test_sources_of_other_runs_are_served_beside_one_that_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose streams nobody may list ends no ``sync --follow``."""
    bad, good = write_run("bad", ROWS), write_run("good", ROWS)
    listed = os.listdir

    def refusing(path: Any = ".") -> list[str]:
        if str(path).endswith("bad/streams"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "listdir", refusing)
    complaints: list[str] = []
    until = time.monotonic() + LIMIT_S

    def done() -> bool:
        closed = read_account(RunDirectory(good), "json").closed
        return bool(closed and complaints) or time.monotonic() > until

    Follower([Path("runs")], ["json"], lambda work: None, say=complaints.append).serve(done)
    assert read_account(RunDirectory(good), "json").closed == "finished"
    assert [str(bad) in line for line in complaints] == [True]


@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_stream_that_is_no_file_holds_no_resumed_run_up(kind: str) -> None:
    """The checkpoint and the axis that a run goes on from are looked for in files alone."""
    run = RunDirectory(write_run("bad", ROWS))
    history = AttemptHistory(run)
    plant(run.stream(StreamName("rank", 0, 1)), kind)
    assert checkpoint_record(run, 1) == {}
    assert history.axes_at(1) == (None, {}, None)


def test_log_that_is_no_file_holds_nobody_up(tmp_path: Path) -> None:
    """A pipe among a directory's logs isn't waited for as they are compressed and deleted."""
    for name in ("a.log", "b.log.gz"):
        os.mkfifo(tmp_path / name)
        os.utime(tmp_path / name, (1.0, 1.0))
    assert due_logs(tmp_path) == []
