"""What a W&B server, an offline run or trackio's store says of files leads nowhere: nothing else is read or written."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import json
import os
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests.analysis.support import write_run
from tests.backends.wandb.support import server
from tests.backends.wandb.test_datastore import framed
from tests.fakes.wandb_server import WandbServer
from tests.fakes.wandb_store import Artifact
from tests.readers.test_wandb_reader import held
from trackers.analysis.sql import sql
from trackers.errors import NotFound
from trackers.readers.wandb import file
from trackers.support import confined

__all__ = ["server"]
# The client's thread complains where a test's service was stopped before what it had opened was collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the reader's."""
    path = tmp_path / "victim/id_rsa.json"
    path.parent.mkdir()
    path.write_text('{"columns": ["precious"], "data": [["precious"]]}')
    return path


def places(victim: Path, up: int) -> list[str]:
    """Ways to name the file from a directory so deep below the one that both lie in."""
    return [str(victim), f"{'../' * up}victim/{victim.name}", f"media/{'../' * (up + 1)}victim/{victim.name}",
            "link/id_rsa.json", "link.json", f"file://{victim}", "..", "", "pipe.json"]  # fmt: skip


def plant(folder: Path, victim: Path) -> None:
    """Links to the file, and a pipe, in a directory that comes from somebody else."""
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(victim.parent)
    (folder / "link.json").symlink_to(victim)
    os.mkfifo(folder / "pipe.json")


def values(paths: list[str]) -> dict[str, Any]:
    """A row of W&B's that names each as an image, a table, a page and a list of images."""
    found: dict[str, Any] = {}
    for number, path in enumerate(paths):
        for kind in ("image-file", "table-file", "html-file", "audio-file"):
            found[f"{kind}{number}"] = {"_type": kind, "path": path, "format": "json", "size": 1}
        found[f"list{number}"] = {"_type": "images/separated", "filenames": [path], "count": 1, "format": "json"}
    return found


def check(data: trackers.RunData, victim: Path, top: Path, *, got: str = "got") -> None:
    """Nothing of the file came along, no record names it, and nothing lies where it shouldn't."""
    for record in [*data.media(top / got), *data.artifacts(top / got)]:
        assert "precious" not in repr(record)
        for item in [*getattr(record, "items", ()), *getattr(record, "files", ())]:
            for base in (data.run.directory, str(top / got)):
                assert not item.file or Path(base, item.file).resolve() != victim
    assert not [path for path in (top / got).rglob("*") if path.is_file() and b"precious" in path.read_bytes()]
    assert "precious" not in repr(data.records())
    assert victim.read_text().count("precious") == 2
    assert [path.name for path in victim.parent.iterdir()] == [victim.name]


def test_offline_file_of_wandb_leads_nowhere(tmp_path: Path, victim: Path) -> None:
    """Media and artifacts of a .wandb file that somebody else wrote."""
    from wandb.proto import wandb_internal_pb2 as protocol

    directory = tmp_path / "wandb/offline-run-20251121_000000-abcd1234"
    plant(directory / "files", victim)
    run, row = protocol.Record(), protocol.Record()
    run.run.run_id, run.run.display_name, run.run.project = "abcd1234", "mine", "digits"
    run.run.start_time.FromNanoseconds(10**18)
    row.history.step.num = 1
    row.history.item.add(key="loss", value_json="1.5")
    for name, value in values(places(victim, 3)).items():
        row.history.item.add(key=name, value_json=json.dumps(value))
    logged = [run, row]
    digest = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    for number, path in enumerate(["model.pt", "../../victim/new", "/new", str(victim)]):
        record = protocol.Record()
        record.artifact.name, record.artifact.type, record.artifact.digest = f"a{number}", "model", str(number)
        content = record.artifact.manifest.contents.add()
        content.path, content.local_path, content.digest, content.size = path, str(victim), digest, 5
        logged.append(record)
    (directory / "run-abcd1234.wandb").write_bytes(framed([record.SerializeToString() for record in logged]))
    data = trackers.load(f"wandb-file:{tmp_path / 'wandb'}")
    assert data.metrics()["loss"].to_pylist() == [1.5]
    check(data, victim, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} - {"got", "wandb", "victim"} <= {
        "home",
        "cache",
        "config",
        "state",
    }


@pytest.mark.parametrize("kind", ["elsewhere", "pipe", "staged", "out of the staged", "a staged link"])
def test_long_manifest_is_read_where_the_client_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The list of an artifact of more than 100,000 files is a file that a .wandb file names: it may name any."""
    from wandb.proto import wandb_internal_pb2 as protocol

    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    place = tmp_path / "data/artifacts/staging/artifact_manifests"
    place.mkdir(parents=True)
    private = tmp_path / "private.gz"
    private.write_bytes(gzip.compress(b'{"path": "precious", "digest": "x", "size": 1}\n'))
    os.mkfifo(tmp_path / "pipe.gz")
    (place / "list.gz").write_bytes(private.read_bytes())
    (place / "link.gz").symlink_to(private)
    named = {
        "elsewhere": private, "pipe": tmp_path / "pipe.gz", "staged": place / "list.gz", "a staged link":
        place / "link.gz", "out of the staged": place / "../../../../private.gz",
    }[kind]  # fmt: skip
    run, record = protocol.Record(), protocol.Record()
    run.run.run_id = run.run.display_name = "abcd1234"
    run.run.start_time.FromNanoseconds(10**18)
    record.artifact.name, record.artifact.type, record.artifact.digest = "a", "model", "1"
    record.artifact.manifest.manifest_file_path = str(named)
    folder = tmp_path / "offline-run-20251121_000000-abcd1234"
    folder.mkdir()
    (folder / "run-abcd1234.wandb").write_bytes(framed([run.SerializeToString(), record.SerializeToString()]))
    (artifact,) = trackers.load(f"wandb-file:{folder}").artifacts()
    assert [file.path for file in artifact.files] == ["precious" if kind == "staged" else str(named)]


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl", "a.log", "a.wandb", "a.*", "tfevents"])
def test_run_is_a_run_whatever_its_directory_is_called(tmp_path: Path, victim: Path, name: str) -> None:
    """Not a directory of another format's files, which may be links."""
    run = write_run("lr3", [(1, 1.0, {"loss": 0.25})], project="p").rename(tmp_path / "runs/p" / name)
    table = victim.with_name("private.csv")
    table.write_text("step,precious\n1,42\n")
    for link in ("metrics.csv", "x.json", "events.out.tfevents.1"):
        (run / link).symlink_to(table)
    assert trackers.load(str(run)).metrics()["loss"].to_pylist() == [0.25]
    assert sql("select name, value from metrics", root=run.parents[1]).table.to_pylist() == [
        {"name": "loss", "value": 0.25}
    ]
    with pytest.raises(NotFound, match="no run"):
        trackers.load(f"{tmp_path}/nothing*")


@pytest.mark.parametrize("name", ["hparams.yaml", "args.yaml", "params.json"])
def test_settings_beside_a_table_are_no_link(tmp_path: Path, victim: Path, name: str) -> None:
    """They would become the run's configuration, which is copied and delivered."""
    table = tmp_path / "received/metrics.csv"
    table.parent.mkdir()
    table.write_text("step,loss\n1,0.5\n")
    (table.parent / name).symlink_to(victim)
    data = trackers.load(f"csv:{table.parent}")
    assert "precious" not in repr(data.records())
    assert f"{name} isn't read: it is a link" in (data.run.note or "")
    assert data.metrics()["loss"].to_pylist() == [0.5]


def test_table_that_is_a_link_is_read(tmp_path: Path) -> None:
    """DVC lays out files so: who names it, or its directory, has what it leads to. docs/security.md says so."""
    cached = tmp_path / "cache.csv"
    cached.write_text("step,loss\n1,0.5\n")
    table = tmp_path / "received/metrics.csv"
    table.parent.mkdir()
    table.symlink_to(cached)
    for source in (f"csv:{table}", f"csv:{table.parent}"):
        assert trackers.load(source).metrics()["loss"].to_pylist() == [0.5]
    run = trackers.init("tensorboard", project="p", dir=tmp_path / "runs", inline=True,
                        options={"TENSORBOARD_DIR": str(tmp_path / "cache")})  # fmt: skip
    run.log({"loss": 0.5}, step=1)
    run.finish()
    (events,) = (tmp_path / "cache").rglob("*tfevents*")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / events.name).symlink_to(events)
    assert trackers.load(f"tb:{tmp_path / 'events'}").metrics()["loss"].to_pylist() == [0.5]


@pytest.mark.slow
def test_server_of_wandb_leads_nowhere(server: WandbServer, tmp_path: Path, victim: Path) -> None:
    """Media and artifacts that a server names, with files that it would give by those names."""
    run = held(server, rows=1)
    names = places(victim, 1)
    run.rows[0].update(values(names))
    run.files.update(dict.fromkeys(names, b"evil"))
    made = Artifact("QQ==", "model", "model", run.id, "0" * 32, [], None, {}, state="COMMITTED")
    digest = base64.b64encode(hashlib.md5(b"evil").digest()).decode()
    refused = [name for name in names if not confined.is_inside(name)]
    contents: dict[str, Any] = {name: {"digest": digest, "size": 4} for name in (*refused, "../../victim/new")}
    contents["elsewhere"] = {"digest": digest, "size": 4, "ref": f"file://{victim}"}
    made.manifest = {
        "version": 1,
        "storagePolicy": "wandb-storage-policy-v1",
        "storagePolicyConfig": {},
        "contents": contents,
    }
    made.blobs = dict.fromkeys(contents, b"evil")
    server.store.artifacts.append(made)
    data = trackers.load("wandb:someone/digits/v2h4vzbc")
    assert data.metrics(["loss"])["loss"].to_pylist() == [0.5]
    check(data, victim, tmp_path)
    (artifact,) = data.artifacts(tmp_path / "got")
    assert [file.path for file in artifact.files] == ["elsewhere"]


@pytest.mark.heavy
def test_store_of_trackio_leads_nowhere(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Media that trackio's database names."""
    from tests.helpers import T0, Driver, run_info, stream
    from trackers.backends.trackio.tracker import TrackioTracker
    from trackers.records import Metrics

    place = Path(os.environ["TRACKIO_DIR"])
    Driver(TrackioTracker, run_info(tmp_path / "run")).deliver(stream([Metrics(step=1, time=T0, values={"loss": 1.5})]))
    plant(place / "media", victim)
    named = places(victim, 2) + places(victim, 3)
    evil = {
        f"{kind}{number}": {"_type": f"trackio.{kind}", "file_path": path, "_value": [{"a": {"file_path": path}}]}
        for kind in ("image", "audio", "video", "html", "table")
        for number, path in enumerate(named)
    }
    (database,) = place.rglob("*.db")
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE metrics SET metrics = ?", (json.dumps({"loss": 1.5, **evil}),))
    connection.close()
    data = trackers.load("trackio:digits")
    assert data.metrics(["loss"])["loss"].to_pylist() == [1.5]
    check(data, victim, tmp_path)


@pytest.mark.parametrize("size", [0, 5, 1 << 40])
@pytest.mark.parametrize("kind", ["holes", "pipe", "link to a pipe", "made up"])
def test_file_of_an_artifact_that_has_no_end_is_not_read(kind: str, size: int, tmp_path: Path) -> None:
    """A file of holes, a pipe or a file of the system costs no time, whatever length was logged."""
    source = tmp_path / "model.pt"
    if kind == "holes":
        source.touch()
        os.truncate(source, 1 << 40)
    elif kind == "made up":
        source.symlink_to("/proc/self/pagemap")
    else:
        pipe = tmp_path / "pipe" if "link" in kind else source
        os.mkfifo(pipe)
        if pipe != source:
            source.symlink_to(pipe)
    staged = file.StagedArtifacts(tmp_path / "staged", [tmp_path])
    entry = {"path": "model.pt", "local_path": str(source), "digest": "0", "size": size}
    assert not staged._stage(entry, tmp_path / "staged")


def test_file_of_an_artifact_is_the_one_that_was_hashed(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns a file that a .wandb file names may replace it by a link once its digest was found to be right."""
    source = tmp_path / "model.pt"
    source.write_text("other")
    real = base64.b64encode

    def swap(content: bytes) -> bytes:
        source.unlink()
        source.symlink_to(victim)
        return real(content)

    monkeypatch.setattr(file.base64, "b64encode", swap)
    digest = real(hashlib.md5(b"other").digest()).decode()
    staged = file.StagedArtifacts(tmp_path / "staged", [tmp_path])
    assert staged._stage({"path": "model.pt", "local_path": str(source), "digest": digest}, tmp_path / "staged")
    assert (tmp_path / "staged/model.pt").read_text() == "other"


@pytest.mark.parametrize("kind", ["socket", "pipe", "link round in circles", "folder", "long name", "no text"])
def test_file_of_an_artifact_that_cannot_be_opened_is_missing(kind: str, tmp_path: Path) -> None:
    """It is named as one that isn't there; what stands beside it is read."""
    path = tmp_path / "odd"
    local = {"long name": "a" * 5000, "no text": "a\0b"}.get(kind, str(path))
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            os.chdir(tmp_path)
            listening.bind("odd")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link round in circles":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    staged = file.StagedArtifacts(tmp_path / "staged", [tmp_path])
    assert not staged._stage({"path": "odd", "local_path": local, "digest": "x"}, tmp_path / "staged")


def test_file_of_an_artifact_that_may_not_be_read_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file of another account, on which root can't be tried."""
    (tmp_path / "a").write_text("x")
    real = os.open

    def refuses(path: Any, *rest: Any, **how: Any) -> int:
        if str(path) == str(tmp_path / "a"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *rest, **how)

    monkeypatch.setattr(file.os, "open", refuses)
    staged = file.StagedArtifacts(tmp_path / "staged", [tmp_path])
    assert not staged._stage({"path": "a", "local_path": "a", "digest": "x"}, tmp_path / "staged")
