"""Aim's store, written with Aim's client and read without it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aim
import pytest
from trackers_aim.tracker import AimTracker

from tests.helpers import T0, Driver, arrays, deliver_over_a_lost_rewind, run_info, stream
from trackers.errors import NotFound
from trackers.readers import registry
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.testing import Limits, Point, Stored, check_confined, check_tracker, checks
from trackers.testing.checks import one_of_each
from trackers.testing.driver import python_path
from trackers.tracker import RunInfo


def read(info: RunInfo, state: Mapping[str, Any] | None = None) -> Stored:
    """The one run of a store, by the reader that knows Aim's database alone."""
    reader, (run,) = registry.open_source(f"aim:{info.option('AIM_DIR') or info.path('aim')}")
    stored = Stored(summary={}, config={}, texts={}, name=run.name, tags=run.tags, group=run.group, status=run.status)
    assert stored.summary is not None
    assert stored.texts is not None
    for record in reader.read(run):
        if isinstance(record, Config):
            stored.config = record.values
        elif isinstance(record, Summary):
            stored.summary = record.values
        elif isinstance(record, Metrics):
            for name, value in record.values.items():
                stored.metrics.setdefault(name, []).append(Point(record.step, value, record.time))
        elif isinstance(record, Text):
            for name, text in record.values.items():
                stored.texts.setdefault(name, []).append((record.step, text))
    for points in stored.metrics.values():
        points.sort(key=lambda point: -1 if point.step is None else point.step)
    return stored


@pytest.mark.processes
@pytest.mark.parametrize("check", checks())
def test_aim_keeps_promise(check: str, tmp_path: Path) -> None:
    """The store holds the last value of each step, with its own time; integers above 64 bits are doubles."""
    limits = Limits(repeated="last", order="step", big_integers="float")
    check_tracker("aim", read, directory=tmp_path / "runs", limits=limits, checks=[check])


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(AimTracker, run_info(tmp_path / "run", **fields))


def everything(tmp_path: Path, records: list[Record], *, files: bool = False) -> list[Record]:
    """Deliver a run; what the reader finds of it."""
    driver(tmp_path).deliver(stream(records))
    reader, (run,) = registry.open_source(f"aim:{tmp_path / 'run/aim'}")
    (tmp_path / "files").mkdir(exist_ok=True)
    return list(reader.read(run, files=tmp_path / "files"))


def test_rewind_drops_superseded_values(tmp_path: Path) -> None:
    """An attempt from a checkpoint replaces later values and texts, for Aim too; the machine's samples stay."""
    first: list[Record] = [Metrics(step=step, time=T0, values={"a": step}) for step in range(5)]
    first += [Metrics(step=4, time=T0, values={"gone": 1.5}), Text(step=4, time=T0, values={"note": "gone"})]
    first += [Text(step=1, time=T0, values={"kept": "x"}), Text(step=4, time=T0, values={"kept": "gone"})]
    first += [Metrics(time=T0, values={"system.cpu": 7.0, "system.gpu.0.temp": 60.0})]
    driver(tmp_path).deliver(
        stream([*first, Start(time=T0, attempt=2, from_step=2), Metrics(step=3, time=T0, values={"a": 30})])
    )
    stored = read(driver(tmp_path).info)
    points = {name: [(point.step, point.value) for point in found] for name, found in stored.metrics.items()}
    assert points == {
        "a": [(0, 0), (1, 1), (2, 2), (3, 30)], "system.cpu": [(None, 7.0)], "system.gpu.0.temp": [(None, 60.0)],
    }  # fmt: skip
    assert stored.texts == {"kept": [(1, "x")]}
    (name,) = (path.name for path in (tmp_path / "run/aim/.aim/meta/chunks").iterdir())
    command = [Path(sys.executable).parent / "aim", "storage", "--repo", tmp_path / "run/aim", "reindex", "-y"]
    subprocess.run(command, check=True, capture_output=True)  # as `aim up` does
    run = aim.Run(name, repo=str(tmp_path / "run/aim"), read_only=True)
    (metric,) = [metric for metric in run.metrics() if metric.name == "a"]
    assert (steps := metric.data.items_list())[0] == [0, 1, 2, 3]
    assert list(steps[1][0]) == [0, 1, 2, 30]
    about = run.meta_run_tree.collect("traces")
    (known,) = [names["a"] for names in about.values() if "a" in names]
    assert (known["last"], known["last_step"], known["max"], known["min"]) == (30, 3, 30, 0)
    assert {metric.name for metric in run.metrics()} == {"a", "__system__cpu", "__system__gpu_temp"}


def test_kill_between_a_rewind_and_the_commit(tmp_path: Path) -> None:
    """What was written after a rewind, and not committed, is there once."""
    deliver_over_a_lost_rewind(lambda: driver(tmp_path))
    found = [(point.step, point.value) for point in read(driver(tmp_path).info).metrics["a"]]
    assert found == [(0, 0), (1, 1), *((step, -step) for step in range(2, 40))]


def python(code: str, *words: object) -> str:
    """What a program of its own prints: Aim's client remembers stores and runs as long as a process lives."""
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=python_path(), timeout=60).stdout


def test_store_that_is_lost_is_filled_anew(tmp_path: Path) -> None:
    """The next process finds no run, and asks for all of it."""
    run = driver(tmp_path)
    records = [Metrics(step=step, time=T0 + step, values={"a": step}) for step in range(9)]
    first = (
        "import sys, json\n"
        "from pathlib import Path\n"
        "from test_aim_tracker import *\n"
        "run = driver(Path(sys.argv[1]))\n"
        "run.deliver(stream(Metrics(step=step, time=T0 + step, values={'a': step}) for step in range(9)))\n"
        "print(json.dumps([run.state, run.tracker._hash]))\n"
    )
    then = "import sys, aim; assert aim.Repo.from_path(sys.argv[1]).delete_run(sys.argv[2])"

    run.state, name = json.loads(python(first, tmp_path).splitlines()[-1])
    run.cursor = len(records)
    python(then, tmp_path / "run/aim", name)
    with pytest.raises(NotFound):
        registry.open_source(f"aim:{tmp_path / 'run/aim'}")
    run.deliver(stream(records))
    assert len(read(run.info).metrics["a"]) == 9


def test_runs_of_one_store_keep_apart(tmp_path: Path) -> None:
    """``AIM_DIR`` holds the runs of many; each has its own name, times, tags and notes, and the newest ones."""
    options = {"AIM_DIR": str(tmp_path / "store")}
    for number in range(2):
        info = run_info(tmp_path / f"{number}", id=f"{number}", name=f"run {number}", options=options, notes="old")
        records = [Metrics(step=0, time=T0, values={"a": number}), Info(time=T0, tags=["b"], notes="new")]
        Driver(AimTracker, info).deliver(stream(records))
    reader, runs = registry.open_source(f"aim:{tmp_path / 'store'}")
    found = sorted((run.name, run.project, run.tags, run.notes, round(run.created, 3)) for run in runs)
    assert found == [(f"run {number}", "digits", ["b"], "new", T0) for number in range(2)]
    ends = [list(reader.read(run))[-1] for run in runs]
    assert [end.time for end in ends] == [T0 + 1000] * 2
    assert not (tmp_path / "0/aim").exists()


def test_edits_outlast_the_next_opening(tmp_path: Path) -> None:
    """A finished run is edited twice: what the first edit said stays, though the run's identity says something else."""
    run = Driver(AimTracker, run_info(tmp_path / "run", tags=["draft"], notes="old", group="g"))
    records = [
        Metrics(step=0, time=T0, values={"a": 1.0}),
        Info(time=T0, name="new", tags=["b"], notes="later", group="g2"),
        Info(time=T0, tags=["c"]),
    ]
    for count in (1, 2, 3):
        run.deliver(stream(records[:count]))
    _, (found,) = registry.open_source(f"aim:{tmp_path / 'run/aim'}")
    assert (found.name, found.tags, found.notes, found.group) == ("new", ["c"], "later", "g2")


def test_store_whose_index_somebody_holds(tmp_path: Path) -> None:
    """`aim up` locks the index while it fills it: other processes write runs meanwhile."""
    options = {"AIM_DIR": str(tmp_path / "store")}
    deliver = (
        "import sys\n"
        "from test_aim_tracker import *\n"
        "place, name, store = Path(sys.argv[1]), sys.argv[2], {'AIM_DIR': sys.argv[3]}\n"
        "run = Driver(AimTracker, run_info(place / name, id=name, options=store))\n"
        "run.deliver(stream([Metrics(step=0, time=T0, values={'a': 1})]))\n"
    )
    hold = (
        "import sys, aimrocks\n"
        "held = aimrocks.DB(sys.argv[1], aimrocks.Options(create_if_missing=True))\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    python(deliver, tmp_path, "first", options["AIM_DIR"])
    command = [sys.executable, "-c", hold, str(tmp_path / "store/.aim/meta/index")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        python(deliver, tmp_path, "second", options["AIM_DIR"])
        holder.communicate("")
    assert len(registry.open_source(f"aim:{tmp_path / 'store'}")[1]) == 2


def test_record_of_each_kind(tmp_path: Path) -> None:
    """Images and histograms are Aim's, tables are text; an artifact's file lies in the store; alerts are in its log."""
    (tmp_path / "run").mkdir()
    uneven = MediaFile(format="json", data={"counts": [1, 2], "edges": [0.0, 1.0, 5.0]})
    bucket = ArtifactFile(path="x", uri="s3://bucket/x")
    records = [*one_of_each(tmp_path / "run"), *arrays(tmp_path / "run")]
    records += [Media(step=1, time=T0, name="odd", type="histogram", items=[uneven])]
    records += [ArtifactRecord(time=T0, name="far", files=[bucket])]
    records += [Metrics(step=1, time=T0, values={"note": 3})]
    found = everything(tmp_path, records)
    media = {one.name: one for one in found if isinstance(one, Media)}
    assert {name: one.type for name, one in media.items()} == {
        "images": "image", "weights": "histogram", "image": "image", "audio": "audio",
    }  # fmt: skip
    assert [item.caption for item in media["images"].items] == ["a dot", "a dot"]
    assert media["weights"].items[0].data == {"counts": [1, 2, 1], "edges": [0.0, 0.5, 1.0, 1.5]}
    assert (media["audio"].step, media["audio"].items[0].format) == (3, "wav")
    texts = {name: text for one in found if isinstance(one, Text) for name, text in one.values.items()}
    assert texts == {
        "note": "größer\nas two lines", "samples": "prompt,text\na,b\nc,d\n", "html": "<p>x</p>",
        "odd": '{"counts": [1.0, 2.0], "edges": [0.0, 1.0, 5.0]}',
    }  # fmt: skip
    assert [one.values for one in found if isinstance(one, Metrics)] == [{"note (number)": 3}]
    artifacts = {one.name: one.files[0] for one in found if isinstance(one, ArtifactRecord)}
    assert artifacts["far"].uri == "s3://bucket/x"
    path = artifacts["checkpoint"].uri.removeprefix("file://")
    assert Path(path).read_bytes() == bytes(range(256))
    assert [(one.title, one.level) for one in found if isinstance(one, Alert)] == [
        ("slow: half the usual rate", "WARN"),
    ]  # fmt: skip
    (environment,) = [one.values for one in found if isinstance(one, Environment)]
    assert environment["packages"] == {"trackers-relay": "0.1.0"}


def test_nothing_reaches_a_network(tmp_path: Path) -> None:
    """From the import of Aim to the end of a run, no connection is made and no name is looked up."""
    code = (
        "import sys, socket\n"
        "def refuse(*words, **more):\n"
        "    print('network', words, flush=True)\n"
        "    raise OSError('no network')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse\n"
        "from test_aim_tracker import *\n"
        "run = driver(Path(sys.argv[1]))\n"
        "run.deliver(stream(one_of_each(Path(sys.argv[1]) / 'run')))\n"
        "print('delivered')\n"
    )
    assert python(code, tmp_path) == "delivered\n"


def test_file_outside_the_run_is_no_artifact(tmp_path: Path) -> None:
    """What the store keeps must lie in the run's directory, through no link."""
    check_confined(AimTracker, directory=tmp_path)
