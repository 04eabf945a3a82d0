"""The source ``lake:``: what is asked for, and commands that read it like any other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trackers_lake import into_lake
from trackers_lake.reader import LakeReader, split

import trackers
from tests.analysis.support import write_run
from trackers.analysis import collect
from trackers.errors import NotFound, UsageError
from trackers.readers import registry
from trackers.readers.run_data import RunData


@pytest.fixture
def lake() -> str:
    """A lake of three runs, whose records have several shapes."""
    for number in range(3):
        rows: list[Any] = []
        for step in range(6):
            rows.append((step, step, {"loss": 1 / (step + 1) + number, "n": step}))
            if step % 2:
                rows.append((step, step + 0.1, {"val": step / 2, "loss": math.nan}))
        write_run(f"r{number}", rows, config={"lr": 10.0**-number}, summary={"best": number})
    into_lake.add(["runs"], "lake")
    return "lake:lake"


def test_facts_of_a_lake_are_those_of_its_runs(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons get what was put in with a run, without its numbers; of another version, they make it from them."""
    own = {run.id: run for run in collect.gather(["runs"]).runs}
    for version in (collect.FACTS_VERSION, "other"):
        monkeypatch.setattr(collect, "FACTS_VERSION", version)
        found = collect.gather([lake]).runs
        assert sorted(run.source.partition("#")[2] for run in found) == ["digits/r0", "digits/r1", "digits/r2"]
        for run in found:
            run.source = own[run.id].source
            assert msgspec.msgpack.encode(run) == msgspec.msgpack.encode(own[run.id])


def test_facts_need_no_numbers(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of metrics is opened for them."""
    monkeypatch.setattr(LakeReader, "columns", None)
    assert len(collect.gather([lake]).runs) == 3


def test_records_have_their_shapes_back(lake: str) -> None:
    """Records are those that were logged: with their own names, in their order."""
    reader, [run] = registry.open_source(f"{lake}#r1")
    back = [record for record in reader.read(run) if isinstance(record, trackers.records.Metrics)]
    own = registry.open_source("run:r1")
    logged = [record for record in own[0].read(own[1][0]) if isinstance(record, trackers.records.Metrics)]
    assert repr([(one.step, one.time, dict(sorted(one.values.items()))) for one in back]) == repr(
        [(one.step, one.time, dict(sorted(one.values.items()))) for one in logged]
    )


def test_what_is_asked_for(lake: str) -> None:
    """All, a project, a run by id or both, a pattern; what isn't there is named, with what is near."""
    for wanted, count in (("", 3), ("#digits", 3), ("#r1", 1), ("#digits/r1", 1), ("#r[12]", 2), ("#digits/*", 3)):
        assert len(registry.open_source(lake + wanted)[1]) == count, wanted
    with pytest.raises(NotFound, match="did you mean 'digits/r1'"):
        registry.open_source(f"{lake}#digits/r11")
    with pytest.raises(NotFound, match="no lake in"):
        registry.open_source("lake:nowhere")
    with pytest.raises(UsageError, match="needs a place"):
        registry.open_source("lake:")


def test_a_directory_may_have_a_number_sign(tmp_path: Path) -> None:
    """What is a directory is the lake's place, and what follows is the run."""
    (tmp_path / "a#b").mkdir()
    assert split(f"{tmp_path}/a#b") == (f"{tmp_path}/a#b", "")
    assert split(f"{tmp_path}/a#b#p/r") == (f"{tmp_path}/a#b", "p/r")
    assert split("s3://bucket/lake#p/r") == ("s3://bucket/lake", "p/r")


@pytest.mark.heavy
def test_version_tells_whether_a_run_has_changed(lake: str) -> None:
    """It is another once the run was put in again, and the same after files were joined."""
    from trackers_lake.tables import Lake

    before = {run.id: LakeReader().version(run) for run in registry.open_source(lake)[1]}
    write_run("r1", [(0, 0, {"loss": 7.0})])
    into_lake.add(["runs"], "lake")
    for table in ("metrics", "runs"):
        Lake("lake").compact(table)
    after = {run.id: LakeReader().version(run) for run in registry.open_source(lake)[1]}
    assert after["r1"] != before["r1"]
    reader, [run] = registry.open_source(f"{lake}#r1")
    assert RunData(reader, run).metrics().to_pandas()["loss"].tolist() == [7.0]
