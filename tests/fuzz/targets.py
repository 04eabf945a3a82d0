"""What is fuzzed: by name, the source that a directory of damaged files is read as, and how the files are damaged."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz import answers, mutate, planted, plugged
from trackers.errors import NotFound

TEXT = (mutate.blind, mutate.fields)
JSON = (mutate.blind, mutate.json_file, mutate.json_in_lines)


class Target(NamedTuple):
    """files: patterns of those that are damaged, separated by blanks. ways: how; whole: likewise, of a file on the
    disk. read: everything that is done with them. alone: one of them, without the others of its folder.
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
    from trackers.cli import runs as keys
    from trackers.readers import run_data

    found = run_data.load_all(source, root)
    for data in found:
        data.metrics().to_pandas()
        data.metrics(long=True)
        data.system()
        json.dumps(keys._names_of(data))
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


def mostly_copied(scheme: str, pattern: str) -> Callable[[Path], object]:
    """Reads each file of a directory as a copy does, and one directory of ten in all other ways, which takes longer."""

    def read(place: Path) -> None:
        files = [path for path in sorted(place.iterdir()) if path.is_file()]
        sum_of = zlib.crc32(b"".join(path.read_bytes() for path in files))
        for path in sorted(place.glob(pattern)):
            fetched(f"{scheme}:{path}", place)
            if sum_of % 10 == 0:
                everything(f"{scheme}:{path}")

    return read


def _trackio(place: Path) -> None:
    import trackio.utils
    from trackio import sqlite_storage

    trackio.utils.TRACKIO_DIR = sqlite_storage.TRACKIO_DIR = place
    everything("trackio:digits")


FRESH_CLIENTS = 20
"""MLflow's client is built anew for each so many databases: that takes as long as reading one."""
_clients = itertools.count()


def _mlflow(place: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking._tracking_service import utils

    engines: dict[str, Any] = getattr(SqlAlchemyStore, "_engine_map", {})  # MLflow 2 shares none
    for engine in engines.values():  # or the first of all databases is read again and again
        engine.dispose()
    if next(_clients) % FRESH_CLIENTS == 0 or not engines:
        engines.clear()
        utils._tracking_store_registry._get_store_with_resolved_uri.cache_clear()
    everything(f"mlflow:{place}/mlflow.db#digits")


def _mlflow_store(place: Path) -> None:
    everything(f"mlflow:{place}/mlruns#digits")


def _mlflow_files(place: Path) -> None:
    import sqlite3

    from trackers.readers.boundary import TolerantReader
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
    spared = TolerantReader(SourceRun(source="mlflow-files", id="0"))
    for artifact in ArtifactReader(None, Run, f"sqlite:///{place}/mlflow.db", None).records(0.0):
        list(spared.read(artifact))


def _run(place: Path) -> None:
    from trackers.analysis.run_list import listing, overview, rejected
    from trackers.journal.run_directory import find_runs

    root = place / "runs"
    listed = listing(root)
    assert len(listed.lines) + len(listed.problems) >= 1
    for run in find_runs(root):
        with contextlib.suppress(NotFound):
            overview(run).to_dict()
        for name in run.deliveries():
            rejected(run, name)
    everything(str(root), root)


def _mlflow_rest(place: Path) -> None:
    def read(source: str) -> None:
        fetched(source, place)

    files = any(path.name.startswith("artifacts") for path in changed_files(place, "*"))  # each takes some milliseconds
    answers.read_mlflow(place, read if files else everything)


def _wandb(place: Path) -> None:
    from wandb.sdk.artifacts import artifact_file_cache

    artifact_file_cache._get_artifact_file_cache = None
    with answers.wandb_answers(place):
        everything("wandb:someone/digits")
        fetched("wandb:someone/digits", place)


def _wandb_cache(place: Path) -> None:
    """A damaged cache counts as none: what the server has is read all the same."""
    from trackers.readers.wandb.fetch import RunCache

    cache = RunCache(*WANDB_CACHE)
    shutil.rmtree(cache.path, ignore_errors=True)
    shutil.copytree(place, cache.path)
    cache = RunCache(*WANDB_CACHE)
    rows = cache.rows
    list(cache.history())
    list(cache.events())
    cache.add([{"_step": max(cache.last, 0) + 1, "a": 1}])
    again = RunCache(*WANDB_CACHE)
    assert again.rows == rows + 1
    again.clear()


def _reads_cache(place: Path) -> None:
    """Likewise of what was read of any source."""
    from trackers.readers.cache import Cache

    cache = Cache(READS_CACHE)
    shutil.rmtree(cache.path, ignore_errors=True)
    shutil.copytree(place, cache.path)
    cache.state()
    found = cache.load()
    if found is not None:
        _use(found.blocks, found.others)
        cache.append({"version": "2"}, found.count, found.blocks, found.others)
    cache.replace({"version": "3"}, 0, [], [])


def _use(blocks: list[Any], others: list[Any]) -> None:
    """What is done with the content of a cache."""
    from trackers import records
    from trackers.readers import frames

    names = [name for block in blocks for name in block.names]
    frames.series(blocks)
    frames.wide(blocks, names, by_time=False)
    frames.long_table(blocks, names)
    for record in others:
        records.encode(record)


def _copied(place: Path) -> Path:
    """The runs once more, for what changes them."""
    copy = place / "again"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place / "runs", copy / "runs")
    return copy


def _lease(place: Path) -> None:
    """Leases of a run: read, asked for, held, given back, and shown."""
    from trackers.analysis.run_list import listing
    from trackers.journal.lease import Lease
    from trackers.journal.run_directory import find_runs

    listing(place / "runs")
    for run in find_runs(_copied(place) / "runs"):
        paths = [run.path / "relay.lease", *(run.delivery / f"{name}.lease" for name in run.deliveries())]
        for path in paths:
            lease = Lease(path)
            str(lease.holder())
            for _ in range(2):
                lease.acquire()
            lease.beat(1.0)
            lease.release()


def _deliver(place: Path) -> None:
    """Deliver a run once more to the trackers whose files here, or what was kept of the delivery, are damaged."""
    from trackers.journal.lease import Lease
    from trackers.journal.run_directory import RunDirectory
    from trackers.relay.delivery.delivery import Delivery, Stop

    copy = _copied(place)
    run = RunDirectory(next(copy.glob("runs/*/[!.]*")))
    for name in _damaged(place):
        lease = Lease(run.delivery / f"{name}.lease")
        lease.acquire()
        said: list[str] = []
        work = Delivery(run, name, say=said.append, tell=said.append, alone=False)
        with contextlib.suppress(Stop):
            for _ in range(STEPS):
                pause = work.step()
                if pause is None or work.account.failures:
                    break
            work.close()
        assert all("\n" not in line and len(line) < 2000 for line in said), said
        lease.release()
    assert {path.name for path in place.iterdir()} == {"runs", "again"}
    assert [path.name for path in copy.iterdir()] == ["runs"]


def _damaged(place: Path) -> list[str]:
    """The trackers, one of whose files differs from the undamaged ones; json where none does."""
    names = {next((name for name in DELIVERED if name in str(path.relative_to(path.parents[-4]))), "csv")
             for path in changed_files(place, KEPT)}  # fmt: skip
    return sorted(names) or ["json"]


def changed_files(place: Path, patterns: str) -> list[Path]:
    """The files that differ from the undamaged ones."""
    whole = place.parent / "whole"
    found = {path.relative_to(whole) for pattern in patterns.split() for path in whole.glob(pattern) if path.is_file()}
    return sorted(path for path in found if (place / path).read_bytes() != (whole / path).read_bytes())


def _archive(place: Path) -> None:
    """An archived run: listed, read, and restored."""
    from trackers.analysis.run_list import listing
    from trackers.journal.run_directory import RunDirectory
    from trackers.retention.archive import read_manifest, restore

    listing(place / "runs")
    copy = _copied(place)
    run = RunDirectory(next(copy.glob("runs/*/[!.]*")))
    before = {path.name for path in place.iterdir()}
    try:
        read_manifest(run)
        restore(run)
    finally:
        assert {path.name for path in place.iterdir()} == before
        assert [path.name for path in copy.iterdir()] == ["runs"]


DELIVERED = ("json", "csv", "progress", "benchmark", "tensorboard", *plugged.trackers())
KEPT = " ".join(
    f"runs/*/*/{pattern}"
    for pattern in (
        *(f"delivery/{name}.{end}" for name in DELIVERED for end in ("json", "order", "rejected.jsonl")),
        "json/*", "session/*", "benchmark/*", "*.csv", "progress.txt",
    )
)  # fmt: skip
STEPS = 60
WANDB_CACHE = ("api.wandb.ai/someone/digits/abcd1234", "2026-01-01T00:00:00")
READS_CACHE = "run json:seed.json"

TARGETS = {
    "json": Target("json", "*.json", JSON, of_files("json", "*.json", copied=True)),
    "benchmark": Target("benchmark", "*.json", JSON, of_files("json", "*.json")),
    "csv": Target("csv", "*.csv", TEXT, of_files("csv", "metrics.csv")),
    "tables": Target("tables", "*.csv", (*TEXT, mutate.repacked), mostly_copied("csv", "*.csv"), alone=True),
    "table-settings": Target("settings", "*.yaml", TEXT, mostly_copied("csv", "*.csv")),
    "lines": Target("lines", "*.json*", (*JSON, mutate.repacked), mostly_copied("json", "*.json*"), alone=True),
    "hf": Target("hf", "*.json", JSON, of_files("hf", "*.json")),
    "tb": Target("tb", "*", (mutate.blind, mutate.event_file), of_files("tb", "*tfevents*", copied=True)),
    "wandb-file": Target("wandb-file", "*.wandb", (mutate.blind, mutate.wandb_records),
                         of_files("wandb-file", "*.wandb", copied=True)),
    "trackio": Target("trackio", "*.db", (), _trackio, whole=mutate.sqlite),
    "mlflow": Target("mlflow", "*.db", (), _mlflow, whole=mutate.sqlite),
    "mlflow-files": Target("mlflow-files", "mlruns/**/*.json*", (mutate.blind, mutate.json_file), _mlflow_files),
    "mlflow-store": Target("mlflow-store", "mlruns/*/*.yaml mlruns/*/*/*.yaml mlruns/*/*/*/*", TEXT, _mlflow_store),
    "run.json": Target("run", "runs/*/*/run.json", JSON, _run),
    "journal": Target("run", "runs/*/*/streams/*", JSON, _run),
    "delivery": Target("delivery", "runs/*/*/delivery/*.json", JSON, _run),
    "packed": Target("packed", "runs/*/*/streams/*.zst", (mutate.packed,), _run),
    "archive": Target("archive", "runs/*/*/archive.json", JSON, _archive),
    "lease": Target("lease", "runs/*/*/relay.lease runs/*/*/delivery/*.lease*", JSON, _lease),
    "deliver": Target("delivery", KEPT, (*JSON, mutate.fields), _deliver),
    "mlflow-rest": Target("mlflow-rest", "*", JSON, _mlflow_rest),
    "wandb": Target("wandb", "*.json", (mutate.json_file,), _wandb),
    "wandb-files": Target("wandb", "fetched-* download-* history.json", (mutate.blind, mutate.json_file), _wandb),
    "wandb-cache": Target("wandb-cache", "*", JSON, _wandb_cache),
    "reads-cache": Target("reads-cache", "*", JSON, _reads_cache),
    "kconfig": Target("kconfig", "Kconfig parts/* .config defconfigs/*",
                      (mutate.blind, mutate.fields, *[planted.kconfig_lines] * 4), planted.read_kconfig),
    "yaml": Target("yaml", "*.yaml", (*TEXT, planted.yaml_aliases, planted.yaml_tags, *[planted.yaml_values] * 3),
                   planted.read_yaml, alone=True),
    "bombs": Target("bombs", "*", (mutate.blind, planted.claims, planted.claims), planted.read_bombs, alone=True),
}  # fmt: skip
for _name in plugged.modules():
    TARGETS |= plugged.targets(_name)
USUAL = tuple(TARGETS)
"""What is fuzzed where nothing is named."""
for _name, _module in plugged.modules().items():
    TARGETS |= getattr(_module, "parts", dict)()


def inputs(name: str, seeds: Path, place: Path, seed: int, first: int = 0) -> Iterator[str]:
    """Fill a directory with a target's files, one or two of them damaged; what was done, for a report. For ever.

    Args:
        first: the number of the first input; each is the same whatever comes before it.
    """
    target = TARGETS[name]
    source = seeds / target.folder
    found = {path for pattern in target.files.split() for path in source.glob(pattern) if path.is_file()}
    known = sorted(path.relative_to(source) for path in found)
    contents = {path: (source / path).read_bytes() for path in known}
    there = {path.name for path in source.iterdir()}
    touched: list[Path] = []
    place.mkdir()
    if not target.alone:
        shutil.copytree(source, place, dirs_exist_ok=True)
    for number in itertools.count(first):
        dice = random.Random(f"{name} {seed} {number}")
        for path in touched:
            (place / path).unlink(missing_ok=True)
            if not target.alone:
                (place / path).write_bytes(contents[path])
        for left in os.listdir(place):
            if left not in there:
                _remove(place / left)
        touched = dice.sample(known, 1 if target.alone else min(len(known), dice.choice((1, 1, 1, 2))))
        done = []
        for path in touched:
            if target.whole is not None:
                target.whole(place / path, dice)
                continue
            way = dice.choice(target.ways)
            try:
                changed = way(contents[path], dice)
            except (RecursionError, ValueError):  # nested too deeply for Python to write, or in itself
                changed = contents[path]
            if changed == contents[path]:  # or JSON was to be changed where there is none
                changed = mutate.blind(contents[path], dice)
            (place / path).unlink(missing_ok=True)  # a new file, as a program's would be: nothing that is open changes
            (place / path).write_bytes(changed)
            done.append(f"{path.name} by {way.__name__}")
        yield f"{name} {seed} {number}: {', '.join(done)}"


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
