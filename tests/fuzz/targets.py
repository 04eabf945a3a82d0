"""What is fuzzed: by name, the source that a directory of damaged files is read as, and how the files are damaged."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import mutate
from trackers.errors import NotFound


class Target(NamedTuple):
    """files: pattern of those that are damaged. ways: how; whole: likewise, of a file on the disk. read: everything
    that is done with them. alone: one of them, without the others of its folder.
    """

    folder: str
    files: str
    ways: tuple[mutate.Mutation, ...]
    read: Callable[[Path], object]
    alone: bool = False
    whole: Callable[[Path, random.Random], None] | None = None


def everything(source: str, root: Path | None = None) -> int:
    """Read all runs of a source in every way in which commands do; how many there are."""
    from trackers import records
    from trackers.analysis.run_stats import facts
    from trackers.cli import keys
    from trackers.readers import run_data

    found = run_data.load_all(source, root)
    for data in found:
        data.metrics().to_pandas()
        data.metrics(long=True)
        data.system()
        json.dumps(keys._run(data))
        for record in data.records():
            records.encode(record)
        facts(data.run, data.blocks(), data.records(), data.status)
        json.dumps(records.name_floats(data.config))
        list(records.flatten(data.config))
    return len(found)


def fetched(source: str, place: Path) -> None:
    """Read all runs of a source with their files, as a copy does."""
    from trackers import records
    from trackers.readers import registry

    reader, runs = registry.open_source(source)
    for run in runs:
        folder = place / "fetched"
        folder.mkdir(exist_ok=True)
        for record in reader.read(run, files=folder):
            records.encode(record)


def of_files(scheme: str, pattern: str, *, copied: bool = False) -> Callable[[Path], object]:
    """Reads each file of a directory as a source."""

    def read(place: Path) -> None:
        for path in sorted(place.glob(pattern)):
            everything(f"{scheme}:{path}")
            if copied:
                fetched(f"{scheme}:{path}", place)

    return read


def _trackio(place: Path) -> None:
    import trackio.utils
    from trackio import sqlite_storage

    trackio.utils.TRACKIO_DIR = sqlite_storage.TRACKIO_DIR = place
    everything("trackio:digits")


def _mlflow(place: Path) -> None:
    everything(f"mlflow:{place}/mlflow.db#digits")


def _mlflow_files(place: Path) -> None:
    import sqlite3

    from trackers.readers.boundary import Spared
    from trackers.readers.mlflow.artifacts import ArtifactReader
    from trackers.readers.reader import SourceRun

    with contextlib.closing(sqlite3.connect(place / "mlflow.db")) as database:
        tags = dict(database.execute("SELECT key, value FROM tags"))

    class Run:
        class info:
            artifact_uri = str(next(place.glob("mlruns/*/*/artifacts")))
            run_id = Path(artifact_uri).parent.name

        class data:
            pass

    Run.data.tags = tags  # type: ignore[attr-defined]
    spared = Spared(SourceRun(source="mlflow-files", id="0"))
    for artifact in ArtifactReader(None, Run, f"sqlite:///{place}/mlflow.db", None).records(0.0):
        list(spared.read(artifact))


def _run(place: Path) -> None:
    from trackers.analysis.run_list import listing
    from trackers.analysis.run_overview import overview, rejected
    from trackers.journal.run_directory import find_runs

    root = place / "runs"
    assert len(listing(root).lines) + len(listing(root).lost) >= 1
    for run in find_runs(root):
        with contextlib.suppress(NotFound):
            overview(run).to_dict()
        for name in run.deliveries():
            rejected(run, name)
    everything(str(root), root)


TEXT = (mutate.blind, mutate.fields)
JSON = (mutate.blind, mutate.json_file, mutate.json_in_lines)

TARGETS = {
    "json": Target("json", "*.json", JSON, of_files("json", "*.json", copied=True)),
    "benchmark": Target("benchmark", "*.json", JSON, of_files("json", "*.json")),
    "csv": Target("csv", "*.csv", TEXT, of_files("csv", "metrics.csv")),
    "hf": Target("hf", "*.json", JSON, of_files("hf", "*.json")),
    "session": Target("session", "*.json", JSON, of_files("session", "*.json")),
    "log": Target("log", "*.log", (*TEXT, mutate.zipped), of_files("log", "*.log"), alone=True),
    "tb": Target("tb", "*", (mutate.blind, mutate.event_file), of_files("tb", "*tfevents*", copied=True)),
    "wandb-file": Target("wandb-file", "*.wandb", (mutate.blind, mutate.wandb_records),
                         of_files("wandb-file", "*.wandb", copied=True)),
    "trackio": Target("trackio", "*.db", (), _trackio, whole=mutate.sqlite),
    "mlflow": Target("mlflow", "*.db", (), _mlflow, whole=mutate.sqlite),
    "mlflow-files": Target("mlflow-files", "mlruns/**/*.json*", (mutate.blind, mutate.json_file), _mlflow_files),
    "run.json": Target("run", "runs/*/*/run.json", JSON, _run),
    "journal": Target("run", "runs/*/*/streams/*", JSON, _run),
    "delivery": Target("run", "runs/*/*/delivery/*.json", JSON, _run),
    "packed": Target("packed", "runs/*/*/streams/*.zst", (mutate.blind,), _run),
}  # fmt: skip


def inputs(name: str, seeds: Path, place: Path, seed: int) -> Iterator[str]:
    """Fill a directory with a target's files, one or two of them damaged; what was done, for a report. For ever."""
    target = TARGETS[name]
    source = seeds / target.folder
    known = sorted(path.relative_to(source) for path in source.glob(target.files) if path.is_file())
    number = 0
    touched: list[Path] = []
    place.mkdir()
    if not target.alone:
        shutil.copytree(source, place, dirs_exist_ok=True)
    while True:
        dice = random.Random(f"{name} {seed} {number}")
        for path in touched:
            (place / path).unlink(missing_ok=True)
            if not target.alone:
                shutil.copyfile(source / path, place / path)
        for path in place.iterdir():
            if not (source / path.name).exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        touched = dice.sample(known, 1 if target.alone else min(len(known), dice.choice((1, 1, 1, 2))))
        if target.alone:
            shutil.copyfile(source / touched[0], place / touched[0])
        done = []
        for path in touched:
            if target.whole is not None:
                target.whole(place / path, dice)
            else:
                way = dice.choice(target.ways)
                content = (place / path).read_bytes()
                try:
                    changed = way(content, dice)
                except (RecursionError, ValueError):  # nested too deeply for Python to write, or in itself
                    changed = mutate.blind(content, dice)
                (place / path).write_bytes(changed)
                done.append(f"{path.name} by {way.__name__}")
        yield f"{name} {seed} {number}: {', '.join(done)}"
        number += 1
