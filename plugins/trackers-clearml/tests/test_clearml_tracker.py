"""ClearML's offline sessions, read as ZIP and JSON; its own client imports them in ``test_clearml_client.py``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from clearml_store import read_clearml
from hypothesis import given
from hypothesis import strategies as st
from trackers_clearml import events
from trackers_clearml.tracker import ClearmlTracker

from tests.helpers import T0, Driver, arrays, deliver_over_a_lost_rewind, run_info, stream
from trackers.records import ArtifactFile, ArtifactRecord, Info, Metrics, Record, Start, Summary, Text
from trackers.testing import check_confined
from trackers.testing.checks import one_of_each
from trackers.tracker import Status

NAMES = st.text(st.sampled_from("/a:") | st.characters(codec="utf-8"), min_size=1, max_size=8)


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(ClearmlTracker, run_info(tmp_path / "run", **fields))


def archive(directory: Path) -> dict[str, bytes]:
    """The files of the one archive below a directory."""
    (path,) = directory.rglob("*.zip")
    with zipfile.ZipFile(path) as opened:
        assert opened.testzip() is None
        return {name: opened.read(name) for name in opened.namelist()}


def requests(directory: Path) -> list[Any]:
    return [json.loads(line) for line in archive(directory)["metrics.jsonl"].splitlines()]


def values(directory: Path) -> list[tuple[str, int, Any]]:
    found = [event for request in requests(directory) for event in request if event["type"] == events.SCALAR]
    return [(event["variant"], event["iter"], event["value"]) for event in found]


def test_rewind_drops_superseded_values(tmp_path: Path) -> None:
    """An attempt from a checkpoint replaces later values and texts, and their files; the machine's samples stay."""
    first: list[Record] = [Metrics(step=step, time=T0, values={"a": step}) for step in range(5)]
    first += [Text(step=4, time=T0, values={"note": "gone"}), Metrics(time=T0, values={"system.cpu": 7.0})]
    second = [Start(time=T0, attempt=2, from_step=2), Metrics(step=3, time=T0, values={"a": 30})]
    driver(tmp_path).deliver(stream([*first, *second]))
    assert values(tmp_path) == [*(("a", step, step) for step in range(3)), ("cpu", 0, 7.0), ("a", 3, 30)]
    assert set(archive(tmp_path)) == {"task.json", "metrics.jsonl"}


def test_kill_between_a_rewind_and_the_commit(tmp_path: Path) -> None:
    """Lines that were written anew, and grew beyond the committed length, aren't taken for the committed ones."""
    deliver_over_a_lost_rewind(lambda: driver(tmp_path))
    assert values(tmp_path) == [("a", 0, 0), ("a", 1, 1), *(("a", step, -step) for step in range(2, 40))]


def test_run_that_goes_on_after_its_end_has_one_archive(tmp_path: Path) -> None:
    """It has the newest name, tags, results and status; that of a run as it was isn't made again."""
    run = driver(tmp_path, tags=["old"])
    records = [Metrics(step=0, time=T0, values={"a": 1}), Summary(time=T0, values={"best": 3})]
    run.deliver(stream(records), status=Status("failed", 3, T0 + 1, "out of memory"))
    assert requests(tmp_path)[-1][-1]["msg"] == "failed (exit code 3): out of memory"
    more = [Info(time=T0, name="better", tags=["new"]), Metrics(step=1, time=T0, values={"final/best": 2.5})]
    run.deliver(stream([*records, *more]))
    stored = read_clearml(run.info)
    assert (stored.name, stored.tags, stored.status, stored.summary) == ("better", ["new"], "finished", {"best": 2.5})
    (path,) = tmp_path.rglob("*.zip")
    made = path.stat()
    run.deliver(stream([*records, *more]))
    assert path.stat() == made
    path.write_bytes(path.read_bytes()[:-9])
    run.open()
    assert run.tracker is not None
    (damaged,) = run.tracker.verify().damaged
    assert damaged.startswith(str(path))


@pytest.mark.heavy
def test_requests_have_a_bounded_number_of_events(tmp_path: Path) -> None:
    """The client sends a line as one request: at most 500 events, and about a megabyte."""
    driver(tmp_path).deliver(stream(Metrics(step=step, time=T0, values={"a": step}) for step in range(1200)))
    assert [len(request) for request in requests(tmp_path)] == [500, 500, 200]
    long = [Metrics(step=step, time=T0, values={"n" * 300_000: step}) for step in range(5)]
    driver(tmp_path / "long").deliver(stream(long))
    assert [len(request) for request in requests(tmp_path / "long")] == [1] * 5


def test_not_finite_and_unasked_results_are_properties(tmp_path: Path) -> None:
    """ClearML's scalars are finite: the properties of the task have other results, and energy, by their names."""
    results = {"loss": float("inf"), "word": "x", "best": 0.5, "energy/total_kwh": 2.5}
    driver(tmp_path).deliver(stream([Summary(time=T0, values=results)]))
    properties = json.loads(archive(tmp_path)["task.json"])["hyperparams"]["properties"]
    assert {name: entry["value"] for name, entry in properties.items() if name.startswith("final/")} == {
        "final/loss": "Infinity", "final/word": "x", "final/energy/total_kwh": "2.5",
    }  # fmt: skip
    assert values(tmp_path) == [("best", events.SUMMARY_STEP, 0.5)]


def test_directory_elsewhere_holds_files_too(tmp_path: Path) -> None:
    """An archive holds texts, media and the files of artifacts, where the events and the task say."""
    info = run_info(tmp_path / "run", options={"CLEARML_OFFLINE_DIR": str(tmp_path / "clearml")})
    two = [ArtifactFile(path=f"../{name}", file="media/weights.bin") for name in "xy"]
    records = [*one_of_each(tmp_path / "run"), ArtifactRecord(time=T0, name="pair", files=two)]
    Driver(ClearmlTracker, info).deliver(stream(records))
    files = archive(tmp_path / "clearml")
    samples = [
        event for request in requests(tmp_path / "clearml") for event in request if event["type"] == events.SAMPLE
    ]
    assert sorted(files[f"data/{sample['key']}"][:4] for sample in samples) == [
        "größer".encode()[:4], b"\x89PNG", b"\x89PNG",
    ]  # fmt: skip
    task = json.loads(files["task.json"])
    uris = {entry["key"]: entry["uri"] for entry in task["execution"]["artifacts"]}
    assert set(uris) == {"checkpoint", "pair/x", "pair/y"}
    inside = {name: uri.removeprefix(f"{task['offline_folder']}/") for name, uri in uris.items()}
    assert files[inside["pair/x"]] == bytes(range(256))
    assert not (tmp_path / "run/clearml").exists()


def test_media_are_files_that_a_browser_shows(tmp_path: Path) -> None:
    """Arrays become PNG, WAV and GIF; a page and a picture stay as they are."""
    (tmp_path / "run").mkdir()
    driver(tmp_path).deliver(stream(arrays(tmp_path / "run")))
    suffixes = {name.rpartition(".")[2]: content for name, content in archive(tmp_path).items() if "/metrics/" in name}
    assert {suffix: content[:4] for suffix, content in suffixes.items()} == {
        "png": b"\x89PNG", "wav": b"RIFF", "gif": b"GIF8", "html": b"<p>x",
    }  # fmt: skip


def test_file_outside_the_run_is_no_artifact(tmp_path: Path) -> None:
    """What the import would send must lie in the run's directory, through no link."""
    check_confined(ClearmlTracker, directory=tmp_path)


@pytest.mark.heavy
@given(NAMES, NAMES)
def test_names_have_titles_of_their_own(one: str, other: str) -> None:
    """No two names have the same title and series."""
    assert (events.title(one) == events.title(other)) == (one == other)
    assert events.title("train/loss") == ("train", "loss")
