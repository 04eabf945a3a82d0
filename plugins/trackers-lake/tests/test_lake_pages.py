"""A lake where any source is taken: docs/lake.md, the live page, SQL as over runs, damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest
from trackers_lake import into_lake
from trackers_lake.into_lake import add
from trackers_lake.tables import Lake

import trackers
from tests import ROOT, again
from tests.analysis.support import write_run
from tests.backends import test_contract
from tests.e2e import test_docs
from tests.fakes.counting_s3 import KINDS, CountingS3
from tests.ui.support import site, until
from tests.ui.test_answers import curve
from trackers.backends import registry
from trackers.ui import catalogue

test_page_does_what_it_shows = again.with_values(test_docs.test_page_does_what_it_shows, [ROOT / "docs/lake.md"])
test_built_in_trackers_add_no_member = again.with_values(test_contract.test_built_in_trackers_add_no_member, ["lake"])


def test_others_may_write_to_it() -> None:
    """A lake that others write to stays theirs to write to: it follows the umask."""
    assert registry.precheck("lake").common


def test_results_have_the_name_that_they_have_everywhere() -> None:
    """``final/best``; a query for the name of earlier releases has an answer as well."""
    for number in range(2):
        write_run(f"r{number}", [(0, 0, {"loss": 1.0})], summary={"best": 0.5 + number})
    add(["runs"], "lake")
    names = "select name, number from summary where run = 'r0'"
    for query in (names, "select name, number from summary where name = 'best' order by number"):
        found = trackers.sql(query).to_pylist()
        assert found
        assert trackers.sql(query, ["lake:lake"]).to_pylist() == found


@pytest.mark.heavy
def test_lake_is_shown(tmp_path: Path) -> None:
    """A lake's runs, which have no directory here: rows, settings and curves."""
    for number in range(2):
        write_run(f"r{number}", [(step, step, {"loss": 1.0 + number}) for step in range(3)], root="elsewhere")
    add(["elsewhere"], tmp_path / "lake")
    with site(f"lake:{tmp_path}/lake", runs=2) as found:
        until(lambda: all(row["last"] for row in found.rows()))
        (one,) = [row for row in found.rows() if row["source"].endswith("#digits/r1")]
        assert curve(found, one["key"])["y"] == [2.0, 2.0, 2.0]
        assert found.ask("run", run=one["key"])["row"]["step"] == 2


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in a lake's tables and their logs."""
    again.fuzzed("lake", tmp_path / "seeds")


@pytest.mark.heavy
def test_table_asks_for_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page over a lake in a bucket shows each run's settings, results and last values by the table of runs alone,
    and asks for what is new alone from then on; the curves of one run are read when it is opened."""
    monkeypatch.setattr(catalogue, "SCAN_S", 0.2)
    monkeypatch.setattr(catalogue, "SHARE", 1)
    with CountingS3() as server:
        for name, value in server.variables().items():
            monkeypatch.setenv(name, value)
        for number in range(30):
            write_run(f"r{number:02d}", [(step, step, {"loss": 1.0 + step, "gpu/0/power_w": 9.0}) for step in range(3)],
                      config={"lr": {"base": 0.1 * number}}, summary={"acc": number / 30},
                      status="finished" if number % 3 else "running")  # fmt: skip
        lake, looks = Lake("s3://bucket/lake", make=True), {}
        into_lake.fill(lake, [*into_lake.candidates("runs", None)][:5], looks=looks)  # as a node's writer does
        add(["runs"], "s3://bucket/lake")
        before = server.counts()["test"]
        with site("lake:s3://bucket/lake", runs=30) as found:
            until(lambda: all(row["last"] for row in found.rows()))
            rows = {row["id"]: row for row in found.rows()}
            asked = server.counts()["test"] - before
            assert sum(asked[kind] for kind in KINDS) <= 20
            assert (rows["r07"]["config"], rows["r07"]["result"]) == ({"lr.base": 0.1 * 7}, {"acc": 7 / 30})
            assert (rows["r07"]["last"]["loss"], rows["r07"]["step"], rows["r07"]["time"] > rows["r07"]["created"]) == (
                3.0, 2, True)  # fmt: skip
            first = server.counts()["test"]
            until(lambda: (server.counts()["test"] - first)["HEAD"] > 12)
            assert (server.counts()["test"] - first)["out"] == 0
            assert curve(found, rows["r07"]["key"])["y"] == [1.0, 2.0, 3.0]
            write_run("r30", [(0, 0, {"loss": 7.0})])
            add(["runs/digits/r30"], "s3://bucket/lake")
            until(lambda: any(row["id"] == "r30" and row["last"] for row in found.rows()))
