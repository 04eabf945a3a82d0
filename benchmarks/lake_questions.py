"""Twenty questions to a lake of 10,000 runs and 100 million numbers: DuckDB, DataFusion, and Spark on two executors.

Each question is one text of SQL for all engines; Spark runs it on a standalone master with two workers, and on a
``local-cluster``. The answers are compared value by value with DuckDB's. Then some of them where an engine has a
quarter of the memory that the question takes: what is written to disk meanwhile, and which engine gives up.

Needs what ``make lake-check`` installs, and Java 17:
``PYTHONPATH=build/plugins .venv-lake/bin/python -m benchmarks lake_questions``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

import msgspec
from trackers_lake import schema
from trackers_lake.schema import COLUMNS
from trackers_lake.sql import RAW, LakeViews, on_duckdb
from trackers_lake.tables import Lake

import trackers
from benchmarks.common import Figure, main
from benchmarks.lake import fill, made

Rows = list[dict[str, Any]]


class Question(NamedTuple):
    """name: of few words. sql: for all engines. summed: columns into which floats were summed, in whatever order."""

    name: str
    sql: str
    summed: tuple[str, ...] = ()


QUESTIONS = (
    Question("lowest loss of each run", """
        select run, min(value) as low, count(*) as n from metrics where name = 'train/loss'
        group by run order by low, run limit 20"""),
    Question("all values by metric", """
        select name, count(*) as n, min(value) as low, max(value) as high, avg(value) as mean from metrics
        group by name order by name""", ("mean",)),
    Question("percentiles of a metric", """
        select percentile_cont(0.5) within group (order by value) as half,
               percentile_cont(0.99) within group (order by value) as slow
        from metrics where name = 'perf/step_s'""", ("half", "slow")),
    Question("percentiles of all metrics", """
        select name, percentile_cont(0.9) within group (order by value) as high from metrics
        group by name order by name""", ("high",)),
    Question("runs of uneven speed", """
        select run, stddev(value) as uneven from metrics where name = 'perf/step_s'
        group by run order by uneven desc, run limit 20""", ("uneven",)),
    Question("mean of the end by setting", """
        select c.number as lr, count(*) as n, avg(m.value) as mean from metrics m
        join config c on m.run = c.run and c.name = 'lr' join runs r on m.run = r.run
        where m.name = 'val/accuracy' and m.step >= 0.9e0 * r.steps group by c.number order by lr""", ("mean",)),
    Question("median by setting", """
        select c.number as lr, median(m.value) as middle from metrics m
        join config c on m.run = c.run and c.name = 'lr' where m.name = 'val/accuracy'
        group by c.number order by lr""", ("middle",)),
    Question("last value of each run", """
        select run, max_by(value, step) as last from metrics where name = 'val/accuracy'
        group by run order by last desc, run limit 20"""),
    Question("step that reaches a goal", """
        with reached as (select run, min(step) as step from metrics where name = 'train/loss' and value < 2.2e0
                         group by run)
        select c.number as lr, count(*) as runs, min(reached.step) as first, max(reached.step) as last,
               avg(reached.step) as mean
        from reached join config c on reached.run = c.run and c.name = 'lr' group by c.number order by lr"""),
    Question("moving mean", """
        with smooth as (select run, avg(value) over (partition by run order by step rows between 9 preceding and
                        current row) as value from metrics where name = 'val/accuracy')
        select run, max(value) as best from smooth group by run order by best desc, run limit 20""", ("best",)),
    Question("largest jumps", """
        with jumps as (select run, step, value - lag(value) over (partition by run order by step) as jump
                       from metrics where name = 'train/loss')
        select run, step, jump from jumps where jump is not null order by jump desc, run, step limit 20"""),
    Question("best three of each setting", """
        with ends as (select run, max_by(value, step) as last from metrics where name = 'val/accuracy' group by run),
             ranked as (select c.number as lr, ends.run, ends.last, row_number() over (partition by c.number
                        order by ends.last desc, ends.run) as place
                        from ends join config c on ends.run = c.run and c.name = 'lr')
        select lr, place, run, last from ranked where place <= 3 order by lr, place"""),
    Question("two metrics joined", """
        select count(*) as n, corr(a.value, b.value) as related, max(a.value + b.value) as most
        from metrics a join metrics b on a.run = b.run and a.step = b.step
        where a.name = 'train/loss' and b.name = 'train/grad_norm'""", ("related",)),
    Question("metrics side by side", """
        select run, max(case when name = 'train/loss' then value end) as loss,
               max(case when name = 'val/accuracy' then value end) as accuracy,
               max(case when name = 'train/tokens' then value end) as tokens
        from metrics where step = 50 group by run order by accuracy desc, run limit 20"""),
    Question("speed of all by minutes", """
        select cast(floor((time - 1763688000e0) / 600e0) as bigint) as slot, count(distinct run) as runs,
               sum(value) as tokens from metrics where name = 'perf/tokens_per_s'
        group by cast(floor((time - 1763688000e0) / 600e0) as bigint) order by slot""", ("tokens",)),
    Question("runs of low use", """
        select run, avg(case when value < 92e0 then 1e0 else 0e0 end) as share from metrics
        where name = 'gpu/utilisation' group by run having avg(case when value < 92e0 then 1e0 else 0e0 end) > 0.05e0
        order by share desc, run limit 20"""),
    Question("distinct values", """
        select name, count(distinct value) as n from metrics where name in ('gpu/memory_gb', 'train/loss')
        group by name order by name"""),
    Question("results beside the lowest", """
        with low as (select run, min(value) as value from metrics where name = 'train/loss' group by run)
        select s.run, s.number as best, low.value as low from summary s join low on s.run = low.run
        where s.name = 'final/best' and not exists (select 1 from runs r where r.run = s.run and r.status = 'failed')
        order by s.number - low.value desc, s.run limit 20"""),
    Question("events by the hour", """
        select date_trunc('hour', r.created) as hour, e.kind, count(*) as n,
               count(*) filter (where array_contains(r.tags, 'baseline')) as baseline
        from events e join runs r on e.run = r.run group by date_trunc('hour', r.created), e.kind
        order by hour, e.kind"""),
    Question("changes of all metrics", """
        with steps as (select name, value - lag(value) over (partition by run, name order by step) as change
                       from metrics)
        select name, count(*) as n, count(*) filter (where change > 0e0) as rises, max(change) as most from steps
        group by name order by name"""),
)  # fmt: skip
DIALECTS: dict[str, dict[str, str]] = {
    "duckdb": {},
    "spark": {},
    "datafusion": {"max_by(value, step)": "last_value(value order by step)"},
}
"""What an engine calls otherwise: a text of the questions, and the engine's."""
LARGE = ("percentiles of all metrics", "two metrics joined", "distinct values", "changes of all metrics")
"""Questions that are asked with little memory."""
LESS = 4
"""How many times as much as it has a question takes, then."""
EXECUTORS, DEFAULT_MB, LEAST_MB = 2, 1024, 480
SPARK_S = 3600.0


def filled(place: Path, runs: int, steps: int) -> str:
    """A lake of so many runs; some have a tag."""
    tagged = (
        run._replace(run=msgspec.structs.replace(run.run, tags=["baseline"])) if number % 7 == 0 else run
        for number, run in enumerate(made(range(runs), steps))
    )
    fill(Lake(place, make=True), tagged)
    return f"lake:{place.absolute()}"


def text(question: Question, engine: str) -> str:
    """A question as an engine takes it."""
    query = " ".join(question.sql.split())
    for ours, theirs in DIALECTS[engine].items():
        query = query.replace(ours, theirs)
    return query


def differences(found: Rows, expected: Rows, summed: Sequence[str]) -> int:
    """How many values of rows are others than they should be: sums of floats by more than their order explains."""
    if len(found) != len(expected) or any(
        list(one) != list(other) for one, other in zip(found, expected, strict=False)
    ):
        return max(len(found), len(expected), 1)
    return sum(
        not _same(row[name], other[name], name in summed)
        for row, other in zip(found, expected, strict=True) for name in other
    )  # fmt: skip


def _same(one: Any, other: Any, is_sum: bool) -> bool:
    if isinstance(other, float) and isinstance(one, float):
        close = is_sum and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
        return close or one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other) or str(one) == str(other)


def by_duckdb(source: str, question: Question) -> Rows:
    """As ``trackers sql`` asks."""
    return trackers.sql(text(question, "duckdb"), [source]).to_pylist()


def by_datafusion(source: str, question: Question, most_bytes: int = 0) -> Rows:
    """DataFusion, which has the tables from delta-rs. most_bytes: of memory; 0: as much as there is."""
    import datafusion
    import deltalake

    runtime = datafusion.RuntimeEnvBuilder()
    if most_bytes:
        runtime = runtime.with_disk_manager_os().with_fair_spill_pool(most_bytes)
    context = datafusion.SessionContext(runtime=runtime)
    views = LakeViews([source])
    for view in views.views():
        if view.files:
            assert views.lake.folder is not None
            context.register_table(f"{RAW}{view.table}", deltalake.DeltaTable(str(views.lake.folder / view.table)))
        else:
            context.from_arrow(schema.arrow_schema(COLUMNS[view.table]).empty_table(), f"{RAW}{view.table}")
        context.sql(f"create view {view.table} as {view.query}")
    return list(context.sql(text(question, "datafusion")).to_pylist())


class Limited(NamedTuple):
    """A question with little memory. seconds: None where the engine gave up. memory, disk: most bytes at a time."""

    seconds: float | None
    memory: int = 0
    disk: int = 0
    error: str = ""


def duckdb_with(source: str, question: Question, most_bytes: int = 0, folder: str = "") -> Limited:
    """DuckDB.

    Args:
        most_bytes: of memory; 0: its own limit. folder: for what it can't hold; "": none, as in ``trackers sql``.
    """
    import duckdb

    with duckdb.connect(":memory:") as connection, tempfile.TemporaryDirectory() as place:
        profile = Path(place, "profile.json")
        connection.execute(f"set temp_directory = '{folder}'")
        if most_bytes:
            connection.execute(f"set memory_limit = '{most_bytes // 2**20}MiB'")
        on_duckdb(connection, LakeViews([source]))
        connection.execute("set enable_profiling = 'json'")
        connection.execute(f"set profiling_output = '{profile}'")
        began = time.perf_counter()
        try:
            connection.execute(text(question, "duckdb")).fetchall()
        except duckdb.Error as error:
            return Limited(None, error=str(error).splitlines()[0])
        took = time.perf_counter() - began
        said = json.loads(profile.read_text())["system"]
        return Limited(took, said["peak_buffer_memory"], said["peak_temp_dir_size"])


class Answer(NamedTuple):
    """Of Spark. rows: as texts where JSON has no such value; None where it gave up. spilled: bytes that executors wrote
    since they had no room for them, as they lay in memory, and on disk."""

    seconds: float
    rows: Rows | None
    spilled: tuple[int, int] = (0, 0)


def by_spark(source: str, master: str, questions: Sequence[Question], memory_mb: int = DEFAULT_MB) -> list[Answer]:
    """All questions in one session of a process of its own, and what its event log says of each."""
    with tempfile.TemporaryDirectory(prefix="trackers-events-") as log:
        command = [sys.executable, __file__, "--spark", source, master, str(memory_mb), log,
                   *(question.name for question in questions)]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SPARK_S)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
        spilled = _spilled(Path(log))
        return [Answer(one["seconds"], one["rows"], (spilled[question.name, 0], spilled[question.name, 1]))
                for one, question in zip(found, questions, strict=True)]  # fmt: skip


def _spilled(log: Path) -> Counter[tuple[str, int]]:
    """Bytes by question, in memory (0) and on disk (1), that a session's event log names."""
    stages: dict[int, str] = {}
    found: Counter[tuple[str, int]] = Counter()
    for path in log.rglob("*"):
        for line in path.read_text().splitlines() if path.is_file() else ():
            event = json.loads(line)
            if event.get("Event") == "SparkListenerJobStart":
                name = event.get("Properties", {}).get("spark.job.description", "")
                stages.update(dict.fromkeys(event["Stage IDs"], name))
            elif event.get("Event") == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                name = stages.get(event["Stage ID"], "")
                found[name, 0] += event["Task Metrics"]["Memory Bytes Spilled"]
                found[name, 1] += event["Task Metrics"]["Disk Bytes Spilled"]
    return found


def ask_spark(source: str, master: str, memory_mb: str, log: str, *names: str) -> None:
    """What that process does: each question by ``trackers.sql``, in a session that writes an event log."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": f"{memory_mb}m", "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{log}",
        "spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false",
    }  # fmt: skip
    builder = SparkSession.builder.appName("twenty questions").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    asked = {question.name: question for question in QUESTIONS}
    for name in names:
        session.sparkContext.setJobDescription(name)
        began = time.perf_counter()
        try:
            rows = trackers.sql(text(asked[name], "spark"), [source], engine="spark").to_pylist()
        except Exception as error:  # executors that ran out of memory: the next question gets new ones
            print(f"{name}: Spark: {str(error)[:500]}", file=sys.stderr)
            rows = None
        took = time.perf_counter() - began
        print(json.dumps({"seconds": took, "rows": rows}, default=str), flush=True)
    session.stop()


@contextlib.contextmanager
def standalone(memory_mb: int = DEFAULT_MB) -> Iterator[str]:
    """The address of a master of Spark's own cluster manager, with two workers of a core each."""
    import pyspark

    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    home = Path(pyspark.__file__).parent
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    running: list[subprocess.Popen[bytes]] = []

    def start(main: str, log: Path, sign: str, *more: str) -> None:
        with log.open("wb") as file:
            running.append(subprocess.Popen(
                [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1",
                 "--webui-port", "0", *more],
                stdout=file, stderr=file, env={**environment, "SPARK_HOME": str(home)},
            ))  # fmt: skip
        until = time.monotonic() + 120
        while sign not in (said := log.read_text(errors="replace")):
            if time.monotonic() > until or running[-1].poll() is not None:
                raise RuntimeError(f"Spark's {main} didn't start: {said[-500:]}")
            time.sleep(0.2)

    with tempfile.TemporaryDirectory(prefix="trackers-spark-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        try:
            start("master.Master", place / "master.log", "ALIVE", "--port", str(port))
            for number in range(EXECUTORS):
                start("worker.Worker", place / f"worker{number}.log", "Successfully registered", "--cores", "1",
                      "--memory", f"{memory_mb}m", "--work-dir", str(place / f"work{number}"),
                      f"spark://127.0.0.1:{port}")  # fmt: skip
            yield f"spark://127.0.0.1:{port}"
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait(30)


def local_cluster(memory_mb: int = DEFAULT_MB) -> str:
    """Spark's address of a cluster of two executors that it starts itself."""
    return f"local-cluster[{EXECUTORS},1,{memory_mb}]"


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    runs, steps = (100, 200) if quick else (10_000, 1000)
    source = filled(Path("lake"), runs, steps)
    expected, figures = in_this_process(source)
    figures += on_spark(source, expected)
    order = {question.name: at for at, question in enumerate(QUESTIONS)}
    figures.sort(key=lambda figure: order.get(figure.name.partition(":")[0], len(order)))
    for question in QUESTIONS:
        if question.name in LARGE:
            figures += with_little_memory(source, question, expected[question.name])
    return figures


def in_this_process(source: str) -> tuple[dict[str, Rows], list[Figure]]:
    """All questions to DuckDB and DataFusion; DuckDB's answers."""
    expected: dict[str, Rows] = {}
    figures: list[Figure] = []
    for name, ask in (("DuckDB", by_duckdb), ("DataFusion", by_datafusion)):
        figures += _each(name, expected, lambda question, ask=ask: _timed(ask, source, question))  # type: ignore[misc]
    return expected, figures


def on_spark(source: str, expected: dict[str, Rows]) -> list[Figure]:
    """All questions to Spark, on both kinds of cluster."""
    with standalone() as master:
        answers = dict(zip(QUESTIONS, by_spark(source, master, QUESTIONS), strict=True))
    figures = _each("Spark, a master and two workers", expected, answers.__getitem__)
    answers = dict(zip(QUESTIONS, by_spark(source, local_cluster(), QUESTIONS), strict=True))
    return [*figures, *_each("Spark, local-cluster", expected, answers.__getitem__)]


def _timed(ask: Callable[[str, Question], Rows], source: str, question: Question) -> Answer:
    began = time.perf_counter()
    rows = ask(source, question)
    return Answer(time.perf_counter() - began, rows)


def _each(engine: str, expected: dict[str, Rows], ask: Callable[[Question], Answer]) -> list[Figure]:
    """Seconds of each question, those of all, and values that aren't DuckDB's, whose answers are kept."""
    found, wrong, spilled = [], 0, 0
    for question in QUESTIONS:
        answer = ask(question)
        spilled += answer.spilled[1]
        if answer.rows is None:
            found.append(Figure(f"{question.name}: {engine}: gave up", 1))
            continue
        wrong += differences(answer.rows, expected.setdefault(question.name, answer.rows), question.summed)
        found.append(Figure(f"{question.name}: {engine}", answer.seconds, "s"))
    answered = [figure for figure in found if figure.unit == "s"]
    all_of = "all twenty" if len(answered) == len(QUESTIONS) else f"{len(answered)} of twenty"
    figures = [*found, Figure(f"{all_of}: {engine}", sum(figure.value for figure in answered), "s")]
    if spilled:
        figures.append(Figure(f"{all_of}: {engine}: spilled to disk", spilled / 1e9, "GB"))
    return [*figures, Figure(f"values that differ: {engine}", wrong, at_most=0)]


def with_little_memory(source: str, question: Question, expected: Rows) -> list[Figure]:
    """A question where there is a quarter of the memory that it takes in DuckDB."""
    name = f"{question.name}, memory for a quarter"
    free = duckdb_with(source, question)
    limit = free.memory // LESS
    figures = [Figure(f"{question.name}: memory that it takes in DuckDB", free.memory / 1e9, "GB")]
    with tempfile.TemporaryDirectory() as folder:
        figures += _limited(f"{name}: DuckDB without a directory", duckdb_with(source, question, limit))
        figures += _limited(f"{name}: DuckDB", duckdb_with(source, question, limit, folder))
    began = time.perf_counter()
    try:
        rows = by_datafusion(source, question, limit)
    except Exception as error:
        figures += _limited(f"{name}: DataFusion", Limited(None, error=str(error)))
    else:
        figures.append(Figure(f"{name}: DataFusion", time.perf_counter() - began, "s"))
        figures.append(Figure(f"{name}: DataFusion: values that differ", differences(rows, expected, question.summed)))
    memory_mb = max(limit // EXECUTORS // 2**20, LEAST_MB)
    with standalone(memory_mb) as master:
        (answer,) = by_spark(source, master, [question], memory_mb)
    if answer.rows is None:
        return [*figures, Figure(f"{name}: Spark, two executors: gave up", 1)]
    return [
        *figures,
        Figure(f"{name}: Spark, two executors", answer.seconds, "s"),
        Figure(f"{name}: Spark: memory of both", memory_mb * EXECUTORS * 2**20 / 1e9, "GB"),
        Figure(f"{name}: Spark: spilled, as it lay in memory", answer.spilled[0] / 1e9, "GB"),
        Figure(f"{name}: Spark: spilled to disk", answer.spilled[1] / 1e9, "GB"),
        Figure(f"{name}: Spark: values that differ", differences(answer.rows, expected, question.summed), at_most=0),
    ]


def _limited(name: str, found: Limited) -> list[Figure]:
    if found.seconds is None:
        print(f"{name}: {' '.join(found.error.split())[:300]}", file=sys.stderr)
        return [Figure(f"{name}: gave up", 1)]
    return [Figure(name, found.seconds, "s"), Figure(f"{name}: spilled to disk", found.disk / 1e9, "GB")]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--spark"]:
        ask_spark(*sys.argv[2:])
    else:
        main(measure, __doc__ or "")
