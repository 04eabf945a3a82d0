"""What our trackers wrote comes back from the local readers: the same records, up to the vendors' documented limits."""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers import T0, Driver, run_info, stream
from trackers.backends import registry
from trackers.readers import registry as sources
from trackers.records import (
    Alert,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Info,
    Media,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.testing import Limits, ReaderError, check_reader
from trackers.testing.checks import one_of_each
from trackers.testing.readers import read_back
from trackers.tracker import RunInfo

ALL = ("name", "group", "tags", "status")


@dataclasses.dataclass
class Place:
    """One tracker's destination in a test: where its reader finds a run, what it keeps and what it changes."""

    scheme: str
    limits: Limits
    where: Callable[[RunInfo], str]
    attributes: tuple[str, ...] = ALL
    accepts: frozenset[type[Record]] = frozenset({Config, Metrics, Summary, Text, Info})
    media: tuple[str, ...] = ("image", "histogram", "table")
    artifact: bool = True  # with its file
    alerts: bool = True  # and the environment


def json_log(info: RunInfo) -> str:
    """The log that the JSON tracker wrote for a run."""
    (found,) = [path for path in Path(info.directory).glob("*.json") if "training_iterations" in path.read_text()]
    return str(found)


DOUBLES = Limits(integers="float", big_integers="float")
PLACES = {
    "tensorboard": Place(
        "tb",
        dataclasses.replace(DOUBLES, float32=True),
        lambda info: str(info.path("tensorboard")),
        attributes=("group", "status"),
        media=("image", "histogram"),
        artifact=False,
    ),
    "mlflow": Place(
        "mlflow",
        dataclasses.replace(DOUBLES, infinity="max_float", time_resolution_s=0.0005),
        lambda info: f"{info.options['MLFLOW_TRACKING_URI']}#{info.project}/{info.id}",
    ),
    "trackio": Place("trackio", Limits(big_integers="float"), lambda info: f"{info.project}/{info.id}"),
    "json": Place("json", Limits(), json_log),
    "csv": Place(
        "csv",
        Limits(),
        lambda info: str(info.path("metrics.csv")),
        attributes=("status",),
        accepts=frozenset({Metrics, Summary, Text}),
        media=(),
        artifact=False,
        alerts=False,
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options of all runs: one MLflow database, which takes seconds to make."""
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"}


def delivered(tracker: str, directory: Path, store: dict[str, str], records: list[Record], **fields: Any) -> RunInfo:
    """A run in a tracker's destination."""
    info = run_info(directory, **{"options": store, "id": uuid.uuid4().hex[:8], **fields})
    Driver(registry.load(tracker), info).deliver(records)
    return info


def check(tracker: str, info: RunInfo, records: list[Record], **changes: Any) -> Any:
    """The reader gives back these records."""
    place = PLACES[tracker]
    options: dict[str, Any] = {
        "limits": place.limits,
        "accepts": place.accepts,
        "attributes": place.attributes,
        "missing": f"{info.options['MLFLOW_TRACKING_URI']}#none" if tracker == "mlflow" else "none",
    }
    return check_reader(sources.load(place.scheme), place.where(info), info, records, **{**options, **changes})


def a_run() -> list[Record]:
    """Two cadences, names that vendors refuse, NaN and infinity, a text, a result; it failed."""
    records: list[Record] = [
        Start(time=T0, pid=1),
        Config(time=T0, values={"lr": 0.001, "model": {"depth": 4, "window": [1, 2]}, "name": "é"}),
    ]
    for step in range(40):
        row = {"train_loss": 1 / (step + 1), "timing(s)/gen": float(step), "n": step}
        records.append(Metrics(step=step, time=T0 + step, values=row))
        if step % 10 == 0:
            bad = math.nan if step else math.inf
            records.append(Metrics(step=step, time=T0 + step + 0.25, values={"val/acc@1": bad, "val_loss": 0.5}))
    records.append(Text(step=39, time=T0 + 40, values={"note": "größer\nas two lines"}))
    records.append(Summary(time=T0 + 41, values={"best": 0.5}))
    return records


ENDING = Finish(time=T0 + 1000, status="finished", exit_code=0)  # as the driver closes


@pytest.mark.parametrize("tracker", PLACES)
def test_reader_gives_back_what_its_tracker_wrote(tracker: str, tmp_path: Path, store: dict[str, str]) -> None:
    """Metrics, configuration, results, texts and the end come back as they were, and the contract is kept."""
    records = [*a_run(), ENDING]
    info = delivered(tracker, tmp_path / "run", store, stream(records), group="ablation", notes="why")
    run = check(tracker, info, records)
    if PLACES[tracker].attributes == ALL:
        assert (run.id, run.project, run.notes) == (info.id, "digits", "why")


@pytest.mark.parametrize("tracker", PLACES)
def test_results_come_back_whatever_their_names(tracker: str, tmp_path: Path, store: dict[str, str]) -> None:
    """Also those that are called as what a log's summary reckons by itself, or says of the end."""
    results = {"final_train_loss": 0.5, "total_iterations": 7, "avg_time_ms": 2.5, "status": "converged", "reason": "-"}
    metrics = Metrics(step=3, time=T0, values={"train_loss": 0.25})
    records = [metrics, Summary(time=T0 + 1, values={**results, "best_val_loss": 0.125}), ENDING]
    check(tracker, delivered(tracker, tmp_path / "run", store, stream(records)), records)


def test_json_log_has_its_times_in_another_time_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its local times are those of the machine that wrote it, also where they are read with a part of the file."""
    metrics = [Metrics(step=step, time=T0 + step, values={"train_loss": 0.5, "val/acc": 0.25}) for step in range(3)]
    records = [*metrics, Text(step=2, time=T0 + 3, values={"note": "x"}), ENDING]
    for written, read in (("Asia/Tokyo", "America/New_York"), ("UTC", "Asia/Kathmandu"), ("Asia/Tokyo", "Asia/Tokyo")):
        monkeypatch.setenv("TZ", written)
        time.tzset()
        info = delivered("json", tmp_path / written / read, {}, stream(records))
        monkeypatch.setenv("TZ", read)
        time.tzset()
        check("json", info, records)
        (run,) = sources.load("json")().runs(json_log(info))
        assert run.created == pytest.approx(info.created)
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("tracker", PLACES)
def test_reader_sees_a_rewind(tracker: str, tmp_path: Path, store: dict[str, str]) -> None:
    """Steps that a second attempt went back over are read as the second attempt left them."""
    first: list[Record] = [Metrics(step=step, time=T0 + step, values={"loss": 1.0}) for step in range(10)]
    second: list[Record] = [Metrics(step=step, time=T0 + 100 + step, values={"loss": 2.0}) for step in range(5, 8)]
    records = [Start(time=T0), *first, Start(time=T0 + 100, attempt=2, from_step=4), *second, ENDING]
    info = delivered(tracker, tmp_path / "run", store, stream(records))
    check(tracker, info, [*first[:5], *second, ENDING])


@pytest.mark.parametrize("tracker", PLACES)
def test_reader_gives_back_media_and_files(tracker: str, tmp_path: Path, store: dict[str, str]) -> None:
    """Media the vendor keeps come back with their content, and so do artifacts, alerts and the environment."""
    place = PLACES[tracker]
    (tmp_path / "run").mkdir()
    records = [*one_of_each(tmp_path / "run"), ENDING]
    info = delivered(tracker, tmp_path / "run", store, stream(records))
    (tmp_path / "files").mkdir()
    reader = sources.load(place.scheme)()
    (run,) = reader.runs(place.where(info))
    found = list(reader.read(run, files=tmp_path / "files"))
    media = [record for record in found if isinstance(record, Media)]
    assert {record.type for record in media} == set(place.media)
    for record in media:
        for item in record.items:
            if record.type == "image":
                assert Path(run.directory, item.file).read_bytes().startswith(b"\x89PNG")
            elif record.type == "histogram":
                assert item.data["edges"] == [0.0, 0.5, 1.0, 1.5]
                assert [float(count) for count in item.data["counts"]] == [1, 2, 1]
            else:
                assert item.data == {"columns": ["prompt", "text"], "rows": [["a", "b"], ["c", "d"]]}
    if tracker == "json":
        assert [record.name for record in found if isinstance(record, ArtifactRecord)] == ["checkpoint"]
    elif place.artifact:
        (artifact,) = [record for record in found if isinstance(record, ArtifactRecord)]
        assert (artifact.name, artifact.type, artifact.metadata) == ("checkpoint", "model", {"loss": 0.5})
        assert Path(run.directory, artifact.files[0].file).read_bytes() == bytes(range(256))
    if place.alerts:
        (alert,) = [record for record in found if isinstance(record, Alert)]
        assert (alert.title, alert.text, alert.level) == ("slow", "half the usual rate", "WARN")
        (environment,) = [record for record in found if isinstance(record, Environment)]
        assert environment.values["packages"] == {"trackers-relay": "0.1.0"}


NAMES = st.sampled_from(
    ["loss", "val_loss", "lr", "a@1", "timing(s)/gen", "a//b", "step", "time", "größe", "__x", "x y"]
)
NUMBERS = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70), st.booleans(), st.sampled_from([1.7e308, 5e-324, 2**53 + 1, 0.1])
)
ROWS = st.lists(st.tuples(st.integers(0, 6), st.dictionaries(NAMES, NUMBERS, min_size=1, max_size=4)), max_size=12)


def one_kind(row: tuple[int, dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """A row without its training values, if it has an evaluation's."""
    step, values = row
    return step, {"val_loss": values["val_loss"]} if "val_loss" in values else values


@pytest.mark.slow
@pytest.mark.parametrize("tracker", PLACES)
def test_random_runs_round_trip(tracker: str, tmp_path: Path, store: dict[str, str]) -> None:
    """Whatever is logged comes back from each tracker's destination, up to the limits of ``docs/copies.md``."""
    count = 0

    @settings(max_examples=8 if tracker == "mlflow" else 15, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(ROWS)
    def round_trip(rows: list[tuple[int, dict[str, Any]]]) -> None:
        nonlocal count
        count += 1
        if tracker == "json":  # the training JSON log has one row a step, and keeps training apart from evaluations
            rows = [(number, row) for number, (_, row) in enumerate(map(one_kind, rows))]
        records: list[Record] = [
            Metrics(step=step, time=T0 + number / 4, values=row) for number, (step, row) in enumerate(rows)
        ]
        records = [Start(time=T0), *records, ENDING]
        info = delivered(tracker, tmp_path / f"run-{count}", store, stream(records))
        check(tracker, info, records)
        shutil.rmtree(tmp_path / f"run-{count}")

    round_trip()


def test_kit_sees_a_reader_that_loses_something(tmp_path: Path, store: dict[str, str]) -> None:
    """A value that is missing, a run that can't be named alone and a missing NotFound are each told."""
    records = [*a_run(), ENDING]
    info = delivered("trackio", tmp_path / "run", store, stream(records))
    with pytest.raises(ReaderError, match="metric 'n': expected 41 points, found 40"):
        check("trackio", info, [*records[:-1], Metrics(step=40, time=T0 + 40, values={"n": 40}), ENDING])
    with pytest.raises(ReaderError, match="must be NotFound"):
        check("trackio", info, records, missing="digits")

    class Forgetful(sources.load("trackio")):  # type: ignore[misc]
        def read(self, run: Any, *, files: Path | None = None) -> Any:
            return (record for record in super().read(run, files=files) if not isinstance(record, Text))

    with pytest.raises(ReaderError, match="text 'note'"):
        check_reader(Forgetful, f"digits/{info.id}", info, records)


@pytest.mark.parametrize("tracker", PLACES)
def test_running_run_is_read_as_far_as_it_got(tracker: str, tmp_path: Path, store: dict[str, str]) -> None:
    """A run whose end wasn't told has no Finish, and what was delivered of it is there."""
    place = PLACES[tracker]
    info = run_info(tmp_path / tracker, options=store, id=f"run-{tracker}")
    driver = Driver(registry.load(tracker), info)
    driver.open()
    driver.write(stream(a_run()))
    if tracker == "json":
        driver.tracker._save(None)  # type: ignore[union-attr]
    reader = sources.load(place.scheme)()
    (run,) = reader.runs(place.where(info))
    stored = read_back(reader, run)
    assert stored.status == "running"
    assert len(stored.metrics["n"]) == 40


OF_PLACES = (
    test_reader_gives_back_what_its_tracker_wrote,
    test_reader_sees_a_rewind,
    test_reader_gives_back_media_and_files,
    test_random_runs_round_trip,
    test_running_run_is_read_as_far_as_it_got,
)
"""What each tracker and its reader must stand together, of plug-ins, too."""
