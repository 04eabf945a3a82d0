"""What listing a lake in a store costs, and that a list says what reading the runs whole says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trackers_lake import into_lake, location, tables
from trackers_lake.tables import Lake
from typer.testing import CliRunner

from tests.analysis.support import write_run
from trackers.analysis import source_list
from trackers.cli.app import app
from trackers.object_storage.store import Listed, Store
from trackers.readers.registry import open_source


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read of a store: a directory that is taken for one elsewhere."""
    names: list[str] = []
    chunks, objects = Store.chunks, Store.objects

    def get(store: Store, name: str, most: int) -> Iterator[bytes]:
        names.append(name)
        return chunks(store, name, most)

    def listed(store: Store, below: str = "", after: str = "") -> Iterator[Listed]:
        names.append(f"{below}/")
        return objects(store, below, after)

    monkeypatch.setattr(Store, "chunks", get)
    monkeypatch.setattr(Store, "objects", listed)
    for method in ("part", "exists"):  # a request more for each
        real = getattr(Store, method)
        monkeypatch.setattr(
            Store,
            method,
            lambda store, name, *rest, real=real, method=method: (
                names.append(f"{method} {name}") or real(store, name, *rest)
            ),
        )
    monkeypatch.setattr(location, "local_path", lambda where: None)
    return names


def grow(count: int, steps: int = 3) -> None:
    """So many runs, of which every fourth goes on."""
    for number in range(count):
        rows = [(step, step, {"loss": 1 / (step + 1) + number, "gpu/0/power_w": 9.0}) for step in range(steps)]
        write_run(
            f"r{number:03d}", rows, status="running" if number % 4 == 3 else "finished",
            config={"lr": 0.1 * number}, summary={"acc": number / 100},
        )  # fmt: skip


@pytest.mark.parametrize("command", ["ls lake:lake -n 5", "best lake:lake --metric final/acc", "compare lake:lake"])
def test_list_asks_for_no_run(asked: list[str], command: str) -> None:
    """For the table of runs alone: its log and its files, whether runs go on or have ended."""
    counts = []
    for count in (24, 60):
        grow(count)
        into_lake.add(["runs"], "lake")
        asked.clear()
        done = CliRunner().invoke(app, command.split())
        assert done.exit_code == 0, done.exception
        assert f"0.{count - 1}" in done.stdout
        assert {name.partition("/")[0] for name in asked} == {"lake.json", "runs"}
        counts.append(len(asked))
    assert max(counts) <= 10


def test_list_asks_for_no_run_that_a_nodes_writer_puts_in(asked: list[str]) -> None:
    """A writer that lives from round to round keeps what lists show of few runs, too, while they go on."""
    lake, looks = Lake("lake", make=True), {}
    for steps in (3, 5):
        grow(8, steps)
        into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
        asked.clear()
        done = CliRunner().invoke(app, ["ls", "lake:lake"])
        assert done.exit_code == 0, done.exception
        assert f"{1 / steps + 7:g}"[:4] in done.stdout  # the last value of a run that goes on
        assert {name.partition("/")[0] for name in asked} == {"lake.json", "runs"}


@pytest.mark.usefixtures("asked")
def test_list_is_what_the_runs_say() -> None:
    """But for files, texts and attempts, which nobody lists: --json reads all of each run."""
    grow(21)
    into_lake.add(["runs"], "lake")
    quick = {view.info.id: view for view in source_list.overviews(["lake:lake"], print)}
    whole = {view.info.id: view for view in source_list.overviews(["lake:lake"], print, whole=True)}
    assert [*quick] == [*whole]
    assert len(quick) == 21
    for name, view in quick.items():
        other = whole[name]
        assert (view.last, view.steps, view.step, view.results, view.status.name) == (
            other.last, other.steps, other.step, other.results, other.status.name,
        )  # fmt: skip
        assert view.info.config == other.info.config
        assert (view.info.created, view.info.tags, view.info.name) == (other.info.created, other.info.tags, name)


def test_many_additions_leave_few_files_and_commits_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of many runs joins those of the table of runs, and sums its log up; one of few leaves that to others."""
    monkeypatch.setattr(into_lake, "AT_ONCE", 3)
    for steps in range(2, 14):
        grow(6, steps)
        into_lake.add(["runs"], "lake")
        base = Lake("lake").snapshot("runs")
        assert len(base.files) <= into_lake.MANY_HEADS
        assert base.version - base.since <= tables.LOGS_OF_RUNS
    reader, runs = open_source("lake:lake")
    assert {run.id: len(list(reader.read(run))) > 12 for run in runs} == {f"r{number:03d}": True for number in range(6)}
    assert len(list(Path("lake/runs/_delta_log").glob("*.checkpoint.parquet"))) > 1
