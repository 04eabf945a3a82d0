"""SwanLab's offline runs, read by SwanLab's own messages and, in an environment of its own, by its own client."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from swanlab_protocol import record_class
from swanlab_store import read_swanlab
from trackers_swanlab import run_files as form
from trackers_swanlab.tracker import SwanlabTracker

import trackers
from tests import ROOT, stores
from tests.helpers import T0, Driver, deliver_over_a_lost_rewind, run_info, stream
from trackers.formats import leveldb_log
from trackers.records import (
    Alert,
    Define,
    Finish,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.testing import check_confined
from trackers.testing.checks import one_of_each
from trackers.tracker import Status

NAMES = st.text(st.sampled_from("_./ax") | st.characters(codec="utf-8", min_codepoint=32), min_size=1, max_size=12)


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(SwanlabTracker, run_info(tmp_path / "run", **fields))


def run_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "run/swanlab").glob("run-*/run-*.swanlab")
    return path


def found(tmp_path: Path) -> list[Any]:
    """The records, as SwanLab's own messages."""
    return [record_class().FromString(content) for content in stores.leveldb_records(run_file(tmp_path))]


def scalars(tmp_path: Path) -> list[tuple[str, int, float]]:
    items = [record.scalar for record in found(tmp_path) if record.WhichOneof("record_type") == "scalar"]
    return [(item.key, item.step, item.value.number) for item in items]


def test_rewind_drops_superseded_values(tmp_path: Path) -> None:
    """An attempt from a checkpoint replaces later values and texts; the machine's samples stay, in their section."""
    first: list[Record] = [Metrics(step=step, time=T0, values={"a": step}) for step in range(5)]
    first += [Text(step=4, time=T0, values={"note": "gone"}), Metrics(time=T0, values={"system.cpu": 7.0})]
    second = [Start(time=T0, attempt=2, from_step=2), Metrics(step=3, time=T0, values={"a": 30, "final/best": 0.5})]
    run = driver(tmp_path)
    run.deliver(stream([*first, *second]))
    assert scalars(tmp_path) == [
        *(("a", step, float(step)) for step in range(3)), ("__swanlab__.cpu", 0, 7.0), ("a", 3, 30.0),
        ("final/best", 3, 0.5),
    ]  # fmt: skip
    assert read_swanlab(run.info).texts == {}
    columns = {record.column.column_key: record.column.section_type for record in found(tmp_path)}
    assert columns["__swanlab__.cpu"] == form.SYSTEM_SECTION


def test_kill_between_a_rewind_and_the_commit(tmp_path: Path) -> None:
    """A file that was written anew, and grew beyond the committed length, isn't taken for the committed one."""
    deliver_over_a_lost_rewind(lambda: driver(tmp_path))
    assert scalars(tmp_path) == [("a", 0, 0.0), ("a", 1, 1.0), *(("a", step, -float(step)) for step in range(2, 40))]


def test_later_name_and_tags_are_the_runs(tmp_path: Path) -> None:
    """The first record has the newest name, tags, notes and group; what was logged before stays."""
    run = driver(tmp_path, tags=["old"])
    run.deliver(stream([
        Metrics(step=0, time=T0, values={"a": 1}),
        Info(time=T0, name="better", tags=["new"], notes="two\nlines", group="sweep"),
        Metrics(step=1, time=T0, values={"a": 2}),
    ]))  # fmt: skip
    start = found(tmp_path)[0].start
    assert (start.name, list(start.tags), start.description, start.group) == ("better", ["new"], "two\nlines", "sweep")
    assert scalars(tmp_path) == [("a", 0, 1.0), ("a", 1, 2.0)]


def test_run_that_goes_on_after_its_end_has_one_end(tmp_path: Path) -> None:
    """Results and status lie there once, and say how the run ended last."""
    records = [Metrics(step=0, time=T0, values={"a": 1}), Summary(time=T0, values={"best": 3, "note": "x"})]
    run = driver(tmp_path)
    run.deliver(stream(records), status=Status("failed", 3, T0 + 1, "out of memory"))
    assert found(tmp_path)[-1].finish.error == "failed (exit code 3): out of memory"
    run.deliver(stream([*records, Metrics(step=1, time=T0, values={"final/best": 2.5})]))
    kinds = [record.WhichOneof("record_type") for record in found(tmp_path)]
    assert kinds.count("finish") == 1
    assert found(tmp_path)[-1].finish.state == form.FINISHED
    assert read_swanlab(run.info).summary == {"final/best": 2.5}
    assert read_swanlab(run.info).texts == {"final/note": [(1, "x")]}


def test_step_metric_is_the_columns_x_axis(tmp_path: Path) -> None:
    """A metric with a step metric is drawn over it; a hidden one is hidden; a name of two kinds has two columns."""
    driver(tmp_path).deliver(stream([
        Define(time=T0, name="val/*", step_metric="epoch"),
        Define(time=T0, name="secret", hidden=True),
        Metrics(step=1, time=T0, values={"val/loss": 1.0, "epoch": 1, "secret": 2}),
        Text(step=1, time=T0, values={"epoch": "first"}),
    ]))  # fmt: skip
    columns = {record.column.column_key: record.column for record in found(tmp_path) if record.HasField("column")}
    assert columns["val/loss"].x_axis == "epoch"
    assert columns["val/loss"].section_name == "val"
    assert not columns["epoch"].HasField("x_axis")
    assert columns["secret"].hidden
    assert columns["epoch/text"].column_type == form.TEXT


def test_media_alerts_and_artifacts_have_their_places(tmp_path: Path) -> None:
    """A table and a histogram are charts, a file of an artifact is saved, an alert is a line of the log."""
    info = run_info(tmp_path / "run")
    records = [
        *one_of_each(tmp_path / "run"),
        Media(step=1, time=T0, name="clip", type="video", items=[MediaFile(format="mp4", file="media/weights.bin")]),
        Alert(time=T0, title="diverged", text="loss is NaN", level="ERROR"),
    ]
    Driver(SwanlabTracker, info).deliver(stream(records))
    by_kind: dict[str, list[Any]] = {}
    for record in found(tmp_path):
        kind = record.WhichOneof("record_type")
        by_kind.setdefault(kind, []).append(getattr(record, kind))
    media = {item.key: item for item in by_kind["media"]}
    folder = run_file(tmp_path).parent / "media"
    table = json.loads((folder / "echarts" / media["samples"].value.items[0].filename).read_text())
    assert table["rowData"] == [{"prompt": "a", "text": "b"}, {"prompt": "c", "text": "d"}]
    assert [item.caption for item in media["images"].value.items] == ["a dot", "a dot"]
    assert "media/weights.bin" in (folder / "text" / media["clip"].value.items[0].filename).read_text()
    assert [(line.line, line.level) for line in by_kind["log"]] == [
        ("WARN: slow: half the usual rate", 0), ("ERROR: diverged: loss is NaN", 1),
    ]  # fmt: skip
    assert [save.name for save in by_kind["save"]] == ["config", "checkpoint/weights.bin"]


def test_directory_elsewhere_holds_artifacts_too(tmp_path: Path) -> None:
    """A directory of SWANLAB_LOG_DIR needs nothing of the run's, which may be pruned."""
    info = run_info(tmp_path / "run", options={"SWANLAB_LOG_DIR": str(tmp_path / "swanlog")})
    Driver(SwanlabTracker, info).deliver(stream(one_of_each(tmp_path / "run")))
    (directory,) = (tmp_path / "swanlog").iterdir()
    records = map(record_class().FromString, stores.leveldb_records(next(directory.glob("*.swanlab"))))
    saved = [Path(record.save.source_path) for record in records if record.HasField("save")]
    assert saved == [directory / "files/config.yaml", directory / "files/checkpoint/weights.bin"]
    assert saved[1].read_bytes() == bytes(range(256))
    assert not [path.name for path in directory.rglob("*tmp*")]


def test_file_outside_the_run_is_no_artifact(tmp_path: Path) -> None:
    """What ``swanlab sync`` would upload must lie in the run's directory, through no link."""
    check_confined(SwanlabTracker, directory=tmp_path)


@pytest.mark.heavy
@given(st.lists(NAMES, unique=True, max_size=8))
@settings(deadline=None)
def test_names_are_taken_and_come_back(names: list[str]) -> None:
    """SwanLab's rules hold for each stored name, no two meet, and the logged one is found again."""
    stored = [form.stored_name(name) for name in names]
    assert len(set(stored)) == len(names)
    for name, kept in zip(names, stored, strict=True):
        assert kept[0] not in "./"
        assert kept[-1] not in "./"
        assert not kept.startswith(form.SYSTEM_PREFIX)
        if not any(c < " " or c == "\x7f" for c in name):
            assert form.logged_name(kept) == name


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=8) | st.just("k" * 3000), TREES, max_size=4))
@settings(deadline=None)
def test_configuration_is_yaml(config: dict[str, Any]) -> None:
    """PyYAML, with which SwanLab's client reads it, finds every key, number and text as it was."""
    loaded = yaml.safe_load(form.config_text(config))
    assert {name: entry["value"] for name, entry in loaded.items()} == _without_infinities(config)


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_infinities(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_infinities(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def test_damaged_file_is_read_around_the_damage(tmp_path: Path) -> None:
    """One changed bit costs one value, which the note says; the run's end is found behind it."""
    records: list[Record] = [Metrics(step=step, time=T0, values={"a": step}) for step in range(50)]
    driver(tmp_path).deliver(stream([*records, Finish(time=T0, status="finished")]))
    path = run_file(tmp_path)
    whole = trackers.load(f"swanlab:{path}")
    assert whole.run.note == ""
    content = bytearray(path.read_bytes())
    ends = [end for _, end in leveldb_log.scan(path, form.MAGIC, form.SUFFIX)]
    content[ends[30] - 1] ^= 4
    path.write_bytes(content)
    run = trackers.load(f"swanlab:{path}").run
    assert (run.status, whole.run.status) == ("finished", "finished")
    assert f"is damaged at byte {ends[29]:,}: {ends[30] - ends[29]:,} bytes are left out" in run.note


@pytest.mark.slow
def test_no_client_is_needed(tmp_path: Path) -> None:
    """A delivery loads neither swanlab nor protobuf nor NumPy."""
    code = (
        "import sys; from pathlib import Path; from tests.helpers import *\n"
        "from trackers_swanlab.tracker import SwanlabTracker\n"
        f"Driver(SwanlabTracker, run_info(Path({str(tmp_path / 'run')!r}))).deliver(training(3))\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'swanlab', 'numpy', 'google', 'yaml'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
