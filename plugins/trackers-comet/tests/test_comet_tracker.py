"""Comet's archives, read as ZIP and JSON; its own client reads them in ``test_comet_client.py``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from comet_store import read_comet
from trackers_comet.tracker import CometTracker

from tests.helpers import T0, Driver, deliver_over_a_lost_rewind, run_info, stream
from trackers.records import Info, Metrics, Record, Start, Summary, Text
from trackers.testing import check_confined
from trackers.testing.checks import one_of_each
from trackers.tracker import Status


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(CometTracker, run_info(tmp_path / "run", **fields))


def archive(directory: Path) -> dict[str, bytes]:
    """The files of the one archive below a directory."""
    (path,) = directory.rglob("*.zip")
    with zipfile.ZipFile(path) as opened:
        assert opened.testzip() is None
        return {name: opened.read(name) for name in opened.namelist()}


def messages(directory: Path) -> list[Any]:
    return [json.loads(line) for line in archive(directory)["messages.json"].splitlines()]


def values(tmp_path: Path) -> list[tuple[str, int | None, Any]]:
    found = [message["payload"]["metric"] for message in messages(tmp_path) if message["type"] == "metric_msg"]
    return [(metric["metricName"], metric["step"], metric["metricValue"]) for metric in found]


def test_rewind_drops_superseded_values(tmp_path: Path) -> None:
    """An attempt from a checkpoint replaces later values and texts, and their files; the machine's samples stay."""
    first: list[Record] = [Metrics(step=step, time=T0, values={"a": step}) for step in range(5)]
    first += [Text(step=4, time=T0, values={"note": "gone"}), Metrics(time=T0, values={"system.cpu": 7.0})]
    second = [Start(time=T0, attempt=2, from_step=2), Metrics(step=3, time=T0, values={"a": 30})]
    driver(tmp_path).deliver(stream([*first, *second]))
    assert values(tmp_path) == [*(("a", step, step) for step in range(3)), ("sys.cpu", None, 7.0), ("a", 3, 30)]
    assert set(archive(tmp_path)) == {"experiment.json", "messages.json"}


def test_kill_between_a_rewind_and_the_commit(tmp_path: Path) -> None:
    """Messages that were written anew, and grew beyond the committed length, aren't taken for the committed ones."""
    deliver_over_a_lost_rewind(lambda: driver(tmp_path))
    assert values(tmp_path) == [("a", 0, 0), ("a", 1, 1), *(("a", step, -step) for step in range(2, 40))]


def test_run_that_goes_on_after_its_end_has_one_archive(tmp_path: Path) -> None:
    """It has the newest name, tags, results and status; that of a run as it was isn't made again."""
    run = driver(tmp_path, tags=["old"])
    records = [Metrics(step=0, time=T0, values={"a": 1}), Summary(time=T0, values={"best": 3})]
    run.deliver(stream(records), status=Status("failed", 3, T0 + 1, "out of memory"))
    about = json.loads(archive(tmp_path)["experiment.json"])
    assert about["customer_error_message"] == "failed (exit code 3): out of memory"
    more = [Info(time=T0, name="better", tags=["new"]), Metrics(step=1, time=T0, values={"final/best": 2.5})]
    run.deliver(stream([*records, *more]))
    stored = read_comet(run.info)
    assert (stored.name, stored.tags, stored.status) == ("better", ["new"], "finished")
    assert stored.summary == {"final/best": 2.5}
    (path,) = tmp_path.rglob("*.zip")
    made = path.stat()
    run.deliver(stream([*records, *more]))
    assert path.stat() == made
    path.write_bytes(path.read_bytes()[:-9])
    run.open()
    (damaged,) = run.tracker.verify().damaged
    assert damaged.startswith(str(path))


def test_energy_is_no_metric(tmp_path: Path) -> None:
    """It stands among Comet's other values: nobody asked for it as a result. The reader of the archive has it."""
    run = driver(tmp_path)
    run.deliver(stream([Summary(time=T0, values={"best": 0.5, "energy/total_kwh": 2.5})]))
    assert values(tmp_path) == [("final/best", None, 0.5)]
    assert read_comet(run.info).summary == {"final/best": 0.5, "final/energy/total_kwh": 2.5}


def test_directory_elsewhere_holds_files_too(tmp_path: Path) -> None:
    """An archive holds media and the files of artifacts, under the types that Comet has for them."""
    info = run_info(tmp_path / "run", options={"COMET_OFFLINE_DIRECTORY": str(tmp_path / "comet")})
    Driver(CometTracker, info).deliver(stream(one_of_each(tmp_path / "run")))
    files = archive(tmp_path / "comet")
    uploads = [found["payload"] for found in messages(tmp_path / "comet") if found["type"] == "file_upload"]
    by_type: dict[str, list[bytes]] = {}
    for upload in uploads:
        by_type.setdefault(upload["upload_type"], []).append(files[upload["file_path"]])
    assert by_type["model-element"] == [bytes(range(256))]
    assert [content[:4] for content in by_type["visualization"]] == [b"\x89PNG"] * 2
    assert b"prompt,text\na,b\nc,d\n" in by_type["asset"]
    assert by_type["text-sample"] == ["größer\nas two lines".encode()]
    assert not (tmp_path / "run/comet").exists()


def test_file_outside_the_run_is_no_artifact(tmp_path: Path) -> None:
    """What ``comet upload`` would send must lie in the run's directory, through no link."""
    check_confined(CometTracker, directory=tmp_path)
