"""A lake in a bucket of moto's server: S3's own conditional requests under several writers, and a server that fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lake_support import held, points
from test_lake_catalogue import append, kept, listed, marked, resumed, send, trained
from test_lake_tables import CROWD
from trackers_lake import into_lake
from trackers_lake.catalogue import Catalogue
from trackers_lake.tables import Lake

import trackers
from tests import ROOT
from tests.analysis.support import T0, write_run
from tests.object_storage.support import BucketServer
from trackers.errors import NotFound, Unavailable
from trackers.object_storage import removal
from trackers.object_storage import store as stores
from trackers.object_storage.store import Store
from trackers.records import Info
from trackers.testing.driver import python_path

WHERE = "s3://bucket/a lake"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BucketServer]:
    found = BucketServer()
    found.start()
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    try:
        yield found
    finally:
        found.stop()


def test_runs_go_into_a_bucket_and_are_read_there(server: BucketServer) -> None:
    """Added, asked by SQL, loaded, compared, removed: what a directory does, a bucket does."""
    for number in range(3):
        rows = [(step, step, {"loss": 1 / (step + 1) + number, "n": step}) for step in range(5)]
        write_run(f"r{number}", rows, config={"lr": number}, summary={"best": number})
    assert len(into_lake.add(["runs"], WHERE).added) == 3
    queries = ("select * from metrics order by all", "select * from runs order by run",
               "select run, name, min(value) from metrics where name = 'n' group by all order by all")  # fmt: skip
    for query in queries:
        over_lake = trackers.sql(query, [f"lake:{WHERE}"]).to_pylist()
        assert repr(over_lake) == repr(trackers.sql(query, ["runs"]).to_pylist())
    back = trackers.load(f"lake:{WHERE}#digits/r1")
    assert back.metrics().to_pandas()["loss"].tolist() == [1 / (step + 1) + 1 for step in range(5)]
    lake = Lake(WHERE)
    lake.remove([("digits", "r1")])
    lake.compact("metrics")
    lake.vacuum(0)
    assert held(WHERE) == {("digits", "r0"): 10, ("digits", "r2"): 10}


def test_writers_at_once_in_a_bucket_lose_and_double_nothing(server: BucketServer) -> None:
    """Of several commits of one version, the server takes one."""
    Lake(WHERE, make=True)
    working = [
        subprocess.Popen([sys.executable, "-c", CROWD, WHERE, name], cwd=ROOT, env=python_path()) for name in "abc"
    ]
    assert [one.wait(300) for one in working] == [0, 0, 0]
    expected = {("p", f"{name}{number}"): 6 for name in "abc" for number in range(8)}
    assert held(WHERE) == {**expected, ("p", "shared"): 8}


def test_catalogue_of_runs_in_a_bucket(server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By S3's own conditions, and with several rounds at once: lists are what the runs say, whatever changes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    where = "s3://bucket/runs of many"
    runs = {name: trained(name, where) for name in ("resumed", "edited", "removed", "stays")}
    for run in runs.values():
        send(run)
    code = f"from trackers_lake.catalogue import Catalogue; Catalogue({where!r}).gather()"
    rounds = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=python_path()) for _ in range(3)]
    assert [one.wait(300) for one in rounds] == [0, 0, 0]
    assert kept(where) == {*runs}
    resumed(runs["resumed"], 2, 6)
    append(runs["edited"], 1, Info(time=T0 + 9, tags=["good"]), writer="edits-0")
    for name in ("resumed", "edited"):
        send(runs[name])
    removal.remove(Store(where), "digits/removed")
    send(trained("new", where))
    assert marked(where) == {"resumed", "edited", "removed"}
    for _ in range(2):
        seen = listed(where)
        assert seen.pop("resumed")[0] != "finished"
        assert seen == {"edited": ("finished", 1 / 3, ["good"]), "stays": ("finished", 1 / 3, []),
                        "new": ("finished", 1 / 3, [])}  # fmt: skip
        Catalogue(where).gather()
    assert kept(where) == {"edited", "stays", "new"}


def test_server_that_is_away_is_said_and_nothing_is_half(server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage ends in one line; what was there is there."""
    monkeypatch.setattr(stores, "RETRY_S", 0.1)
    lake = Lake(WHERE, make=True)
    lake.put("metrics", points(("p", "a"), 3), {("p", "a"): "m"})
    server.process.terminate()  # type: ignore[union-attr]
    server.process.wait()  # type: ignore[union-attr]
    with pytest.raises(Unavailable) as caught:
        lake.put("metrics", points(("p", "b"), 3), {("p", "b"): "m"})
    assert "\n" not in str(caught.value)


def test_bucket_that_has_no_lake(server: BucketServer) -> None:
    """It is said how to make one."""
    with pytest.raises(NotFound, match="trackers lake add RUNS"):
        Lake("s3://bucket/nothing")
