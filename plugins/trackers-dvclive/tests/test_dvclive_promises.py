"""What every tracker and source must stand, with DVCLive's folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dvclive_store import read_dvclive

from tests import again
from tests.readers.test_local import Place
from trackers.journal.run_directory import RunDirectory
from trackers.records import Config, Metrics, Summary, Text
from trackers.testing import Limits, check_tracker, checks
from trackers.tracker import RunInfo


def held(info: RunInfo, out: Path) -> Any:
    """All of a folder: what it says, and each file's content but the tracker's own."""
    (folder,) = (out / "dvclive").iterdir()
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    del found[".trackers.jsonl"]
    return read_dvclive(info, directory=out / "dvclive"), {key: found[key].read_bytes() for key in found}


def results(run: RunDirectory) -> dict[str, object]:
    """What of an edit the documents have."""
    text = (run.path / "dvclive" / "metrics.json").read_text()
    assert "second" not in text
    return {"results": 0.5 if "0.5" in text else None}


PLACE = Place(
    "dvclive",
    Limits(time_resolution_s=0.0005),
    lambda info: str(info.path("dvclive")),
    attributes=(),
    accepts=frozenset({Config, Metrics, Summary, Text}),
    media=("image",),
    artifact=False,
    alerts=False,
)
globals().update(
    again.of_tracker("dvclive", {"DVCLIVE_DIR": "dvclive"}, held, (results, ("results",)), appended=True),
    **again.of_round_trip("dvclive", PLACE),
    **again.of_reader("dvclive"),
)


@pytest.mark.parametrize("check", checks())
def test_dvclive_keeps_promise(check: str, tmp_path: Path) -> None:
    """The folder holds each record once, to the millisecond, as DVCLive writes it."""
    limits = Limits(time_resolution_s=0.0005, statuses=None)
    check_tracker("dvclive", read_dvclive, directory=tmp_path / "runs", limits=limits, checks=[check])


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in a folder's files, this package's or the client's."""
    again.fuzzed("dvclive", tmp_path / "seeds")
