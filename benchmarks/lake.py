"""A lake of 10,000 runs and 100 million numbers: how quickly it fills, how large it is, how long questions take.

The numbers are those of a training at full precision: a loss and a gradient norm in single precision, a learning rate
of a cosine, an epoch, a count of tokens, two speeds in double precision, a memory, a utilisation, an accuracy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec
import numpy as np
from trackers_lake import into_lake
from trackers_lake.delta import DeltaTable
from trackers_lake.journals import Content
from trackers_lake.tables import Lake

import trackers
from benchmarks.analysis import age, timed
from benchmarks.common import Figure, main
from tests.fakes.wandb_reads import ENTITY, HeldRun
from tests.fakes.wandb_server import WandbServer
from trackers import records
from trackers.journal.run_directory import RunDirectory
from trackers.object_storage.store import Store
from trackers.readers import registry
from trackers.readers.columns import FLOAT, Block
from trackers.readers.reader import SourceRun
from trackers.records import Config, Finish, Metrics, Record, Start, Summary
from trackers.tracker import RunInfo

T0 = 1_763_688_000.0
NAMES = ("train/loss", "train/grad_norm", "train/lr", "train/epoch", "train/tokens", "perf/step_s",
         "perf/tokens_per_s", "gpu/memory_gb", "gpu/utilisation", "val/accuracy")  # fmt: skip
BYTES_PER_VALUE, GROUP_BY_S = 3.0, 2.0
WRITTEN_PER_KEPT, EDIT_S = 3.0, 0.3
ONE_METRIC = "select run, min(value) as low from metrics where name = 'train/loss' group by run order by low limit 3"
ALL_METRICS = "select name, count(*), avg(value) from metrics group by name"


def block(number: int, steps: int) -> Block:
    """A run's numbers."""
    source = np.random.default_rng(number)
    step = np.arange(steps)
    took = 0.25 + source.normal(0, 0.003, steps)
    columns = (
        (2 + 3 / np.sqrt(step + 1) + source.normal(0, 0.05, steps)).astype(np.float32),
        np.abs(source.normal(1, 0.3, steps)).astype(np.float32),
        3e-4 * 0.5 * (1 + np.cos(np.pi * step / steps)), step / 250, step * 524288.0, took, 524288 / took,
        np.round(40 + source.normal(0, 0.05, steps), 1), np.round(source.normal(95, 2, steps)),
        np.round(1 - 1 / np.sqrt(step + 2) + source.normal(0, 0.01, steps), 4),
    )  # fmt: skip
    values = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    return Block(NAMES, (FLOAT,) * len(NAMES), step, step, T0 + number + np.cumsum(took), values)


def others(number: int) -> list[Record]:
    """A run's other records."""
    config = {"lr": 10.0 ** -(number % 5), "seed": number, "model": {"depth": 4, "width": 512}}
    return [Start(time=T0, rank=0, pid=1), Config(time=T0, values=config),
            Summary(time=T0 + 300, values={"final/best": number / 7}),
            Finish(time=T0 + 300, status="finished", exit_code=0)]  # fmt: skip


def content(numbers: Block, more: list[Record]) -> Content:
    """A run as its source is read."""
    return Content([numbers], more, range(len(more)))


def fill(lake: Lake, runs: Iterable[into_lake.Candidate]) -> None:
    """Put runs in, all of them."""
    if problems := into_lake.fill(lake, list(runs)).problems:
        raise RuntimeError(f"{len(problems):,} runs were left out: {problems[0]}")


def made(numbers: range, steps: int) -> Iterator[into_lake.Candidate]:
    """Runs that were never written anywhere."""
    for number in numbers:
        run = SourceRun(source=f"made:{number}", id=f"{number * 7919 % 99991:05x}{number:05d}", name=f"run {number}",
                        project="digits", created=T0 + number, status="finished")  # fmt: skip
        yield into_lake.Candidate(run, "1", lambda number=number: content(block(number, steps), others(number)))  # type: ignore[misc]


def write(root: Path, numbers: range, steps: int) -> None:
    """The same runs as training leaves them on disk."""
    for number in numbers:
        directory = RunDirectory(root / "digits" / f"run{number:05d}")
        directory.make()
        directory.write_info(RunInfo(id=directory.path.name, name=f"run {number}", project="digits",
                                     created=T0 + number, trackers=["json"]))  # fmt: skip
        start, *rest = others(number)
        found = block(number, steps)
        rows = [Metrics(step=step, time=moment, values=dict(zip(NAMES, values, strict=True)))
                for step, moment, values in zip(found.steps.tolist(), found.times.tolist(), found.values.tolist(),
                                                strict=True)]  # fmt: skip
        lines = map(records.encode, [start, *rest[:1], *rows, *rest[1:]])
        (directory.streams / "rank-0.1.jsonl").write_bytes(b"".join(lines))


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def best_of(work: Callable[[], object], times: int = 3) -> float:
    """Seconds of the quickest."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def processor_s(work: Callable[[], object]) -> float:
    """Seconds of processors that it takes, which other programs on the machine don't change much."""
    before = time.process_time()
    work()
    return time.process_time() - before


def asked(lake: Path) -> dict[str, float]:
    """Seconds that questions take."""
    source = f"lake:{lake}"
    run = registry.open_source(source)[1][0]
    one = f"select * from metrics where run = '{run.id}'"  # noqa: S608
    return {
        "one metric of all runs": best_of(lambda: trackers.sql(ONE_METRIC, [source])),
        "all metrics of all runs": best_of(lambda: trackers.sql(ALL_METRICS, [source])),
        "all of one run, in SQL": best_of(lambda: trackers.sql(one, [source])),
        "all of one run, loaded": best_of(lambda: trackers.load(run.source)),
        "trackers best": timed("best", source, "--metric", "train/loss").wall_s,
    }


def mlflow(runs: int, steps: int) -> list[Figure]:
    """The same question to MLflow's store on SQLite: by its own client, run by run, and by SQL on its table."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{Path('mlflow.db').absolute()}")
    experiment = client.create_experiment("digits")
    ids = [client.create_run(experiment).info.run_id for _ in range(runs)]
    with sqlite3.connect("mlflow.db") as store:
        for number, run in enumerate(ids):
            found = block(number, steps)
            rows = ((name, float(value), int(moment * 1000), run, int(step), 0)
                    for step, moment, values in zip(found.steps, found.times, found.values, strict=True)
                    for name, value in zip(NAMES, values, strict=True))  # fmt: skip
            store.executemany(
                "insert into metrics (key, value, timestamp, run_uuid, step, is_nan) values (?, ?, ?, ?, ?, ?)", rows
            )
    values = runs * steps * len(NAMES)

    def paged() -> None:
        for run in ids:
            min(point.value for point in client.get_metric_history(run, "train/loss"))

    def query() -> None:
        with sqlite3.connect("mlflow.db") as store:
            store.execute("select run_uuid, min(value) from metrics where key = 'train/loss' group by 1").fetchall()

    return [
        Figure(f"MLflow on SQLite, {values:,} numbers: bytes per value", Path("mlflow.db").stat().st_size / values,
               "B"),
        Figure(f"MLflow's client: one metric of {runs:,} runs", best_of(paged, 1), "s"),
        Figure(f"SQL on MLflow's table: one metric of {runs:,} runs", best_of(query, 1), "s"),
    ]  # fmt: skip


def wandb(runs: int, steps: int) -> list[Figure]:
    """The same question to W&B's own client, run by run; a stand-in for W&B's server answers on loopback.

    So what is measured is the client, and the requests that it needs; a real server answers from farther away.
    """
    with WandbServer() as server:
        os.environ.update(WANDB_BASE_URL=server.url, WANDB_API_KEY="k" * 40, WANDB_SILENT="true")
        import wandb as client

        for number in range(runs):
            found = block(number, steps)
            rows = [{"_step": int(step), "_timestamp": float(moment), **dict(zip(NAMES, values, strict=True))}
                    for step, moment, values in zip(found.steps, found.times, found.values.tolist(),
                                                    strict=True)]  # fmt: skip
            name = f"run{number:05d}"
            server.store.runs[name] = HeldRun(name, ENTITY, "digits", complete=True, exit_code=0, rows=rows)
        api = client.Api(timeout=60)
        before = len(server.requests)

        def keyed() -> None:
            for run in api.runs(f"{ENTITY}/digits", per_page=1000):
                lows = [row["train/loss"] for row in run.scan_history(keys=["train/loss"])]
                if len(lows) < steps - 1:  # with keys, the client leaves the last row out
                    raise RuntimeError(f"{len(lows):,} of {steps:,} rows came")
                min(lows)

        took = best_of(keyed, 1)
        asked_for = len(server.requests) - before
    return [
        Figure(f"W&B's client, one metric of {runs:,} runs", took, "s"),
        Figure(f"requests to W&B's server for one metric of {runs:,} runs", asked_for),
    ]


@contextlib.contextmanager
def counted_bytes() -> Iterator[list[int]]:
    """The lengths of all that is written to stores meanwhile."""
    written: list[int] = []
    real = Store.put, Store.create

    def put(store: Store, name: str, content: Any) -> str:
        written.append(len(content))
        return real[0](store, name, content)

    def create(store: Store, name: str, content: bytes) -> bool:
        written.append(len(content))
        return real[1](store, name, content)

    Store.put, Store.create = put, create  # type: ignore[method-assign]
    try:
        yield written
    finally:
        Store.put, Store.create = real  # type: ignore[method-assign]


def growing(times: int, steps: int) -> list[Figure]:
    """A run that is put in again and again while it trains, and once at its end: what is written for what is kept."""
    place, whole = Path("growing"), block(1, times * steps)
    with counted_bytes() as written:
        for part in range(1, times + 1):
            rows = slice(part * steps)
            so_far = whole._replace(
                **{name: getattr(whole, name)[rows] for name in ("rows", "steps", "times", "values")}
            )
            status, more = ("running", others(1)[:2]) if part < times else ("finished", others(1))
            run = SourceRun(source="made:1", id="r1", name="run 1", project="digits", created=T0 + 1, status=status)
            fill(Lake(place, make=True), [into_lake.Candidate(run, f"{part}", lambda: content(so_far, more))])  # noqa: B023
    lake = Lake(place)
    kept = sum(file.size for table in lake.tables for file in lake.snapshot(table).files.values())
    return [Figure(f"a run put in {times} times as it grew: bytes written for each one kept", sum(written) / kept,
                   at_most=WRITTEN_PER_KEPT)]  # fmt: skip


def edited(place: Path, steps: int) -> list[Figure]:
    """One more tag of one run of many."""
    one = next(made(range(5, 6), steps))
    run = msgspec.structs.replace(one.run, tags=["best"])
    with counted_bytes() as written:
        took = processor_s(lambda: fill(Lake(place), [one._replace(run=run, version="2")]))
    return [
        Figure("one edited tag: processor time", took, "s", at_most=EDIT_S),
        Figure("one edited tag: bytes written", sum(written) / 1e6, "MB"),
    ]


def beside(theirs: list[Figure], runs: int, steps: int) -> list[Figure]:
    """What others need for one metric of all runs, and how many times as long as a lake of the same runs that is."""
    place = Path("same-runs")
    fill(Lake(place, make=True), made(range(runs), steps))
    ours = best_of(lambda: trackers.sql(ONE_METRIC, [f"lake:{place}"]))
    found = [Figure(f"a lake of the same: one metric of {runs:,} runs", ours, "s"), *theirs]
    for figure in theirs:
        if figure.unit == "s":
            found.append(Figure(f"{figure.name}: times that of the lake", figure.value / ours))
    return found


def at_once(writers: int, rounds: int) -> list[Figure]:
    """Runs that train at once, each put in again and again without a pause by the tracker's way."""
    place, met = Path("live"), [0, 0]
    real = DeltaTable.commit

    def commit(table: DeltaTable, *given: Any, **named: Any) -> bool:
        done = real(table, *given, **named)
        met[not done] += 1
        return done

    def live(number: int) -> None:
        for part in range(1, rounds + 1):
            status = "running" if part < rounds else "finished"
            run = SourceRun(source=f"made:{number}", id=f"r{number}", name=f"run {number}", project="digits",
                            created=T0 + number, status=status)  # fmt: skip
            load = partial(content, block(number, 100 * part), others(number))
            fill(Lake(place), [into_lake.Candidate(run, f"{part}", load)])

    Lake(place, make=True)
    DeltaTable.commit = commit  # type: ignore[method-assign]
    began = time.perf_counter()
    try:
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(live, range(writers)))
    finally:
        DeltaTable.commit = real  # type: ignore[method-assign]
    took = time.perf_counter() - began
    rows = sum(file.rows or 0 for file in Lake(place).snapshot("metrics").files.values())
    if rows != writers * rounds * 100 * len(NAMES):
        raise RuntimeError(f"{rows:,} rows are there")
    return [
        Figure(f"{writers} writers at once: runs put in", writers * rounds / took, "runs/s"),
        Figure(f"{writers} writers at once: commits that others were quicker than", met[1] / met[0], "a commit"),
    ]


def measure(quick: bool) -> list[Figure]:
    """The figures; a hundredth of the runs for a try."""
    runs, written, steps, theirs = (100, 20, 1000, 10) if quick else (10_000, 500, 1000, 200)
    write(Path("runs"), range(written), steps)
    age(Path("runs"))
    journals = size(Path("runs"))
    first = timed("lake", "add", "runs", "from-runs")
    again = timed("lake", "add", "runs", "from-runs")
    if "runs: 0 added" not in again.output:
        raise RuntimeError(f"the second time it added something: {again.output}")
    shutil.rmtree("runs")
    shutil.rmtree("from-runs")
    values = written * steps * len(NAMES)
    figures = [
        Figure(f"trackers lake add, {written:,} runs on disk", values / first.wall_s / 1e6, "M values/s"),
        Figure("their journals: bytes per value", journals / values, "B"),
        Figure("the same command once more, nothing new", again.wall_s, "s"),
        Figure("the first time: processor time", values / first.processor_s / 1e6, "M values/s"),
        Figure("its memory", first.peak_mb, "MB"),
    ]
    tenth, place = runs // 10, Path("lake")
    took = best_of(lambda: fill(Lake(place, make=True), made(range(tenth), steps)), 1)
    smaller = asked(place)
    took += best_of(lambda: fill(Lake(place), made(range(tenth, runs), steps)), 1)
    values = runs * steps * len(NAMES)
    larger = asked(place)
    figures += [
        Figure(f"rows of {runs:,} runs and {values:,} numbers put in", values / took / 1e6, "M values/s"),
        Figure("metrics: bytes per value", size(place / "metrics") / values, "B", at_most=BYTES_PER_VALUE),
        Figure("all tables: bytes per value", size(place) / values, "B", at_most=BYTES_PER_VALUE),
    ]
    for name, seconds in larger.items():
        bound = GROUP_BY_S if name.endswith("of all runs") else None
        figures.append(Figure(f"{name}, {runs:,} runs", seconds, "s", at_most=bound))
        figures.append(Figure(f"{name}: times that of {tenth:,} runs", seconds / smaller[name]))
    source = f"lake:{place}"
    for name, query in (("one metric", ONE_METRIC), ("all metrics", ALL_METRICS)):
        took = min(processor_s(lambda query=query: trackers.sql(query, [source])) for _ in range(3))  # type: ignore[misc]
        figures.append(Figure(f"{name} of all runs, {runs:,} runs: processor time", took, "s"))
    figures += edited(place, steps)
    figures += growing(30 if quick else 300, 300)
    figures += at_once(16, 3 if quick else 10)
    return [*figures, *beside([*mlflow(theirs, steps), *wandb(theirs, steps)], theirs, steps)]


if __name__ == "__main__":
    main(measure, __doc__ or "")
