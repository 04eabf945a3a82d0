"""Other engines read a lake: Spark with several executors gives DuckDB's rows, delta-rs and Polars know the tables."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import polars
import pytest
from lake_support import held
from test_lake_sql import QUERIES
from trackers_lake import into_lake
from trackers_lake.schema import COLUMNS
from trackers_lake.tables import Lake

import trackers
from tests.analysis.support import write_run
from trackers.testing.driver import python_path

CLUSTER = "local-cluster[2,1,1024]"
LAKE = "lake"
ODD = "it's a [lake]* #1 %20 {x}"
MORE = (
    "select run, name, count(*) as n, max(value) as high from metrics group by run, name order by run, name",
    "select kind, count(*) as n from events group by kind order by kind",
    "select m.run, m.step, m.value, c.number from metrics m join config c on m.run = c.run and c.name = 'lr' "
    "where m.name = 'loss' order by m.run, m.step",
)


def filled(place: str) -> None:
    """A lake of three runs in several commits: a run replaced, one removed, files joined in one table."""
    for number, (project, run_id) in enumerate((("p", "a"), ("q", "a"), ("q", "b"), ("q", "gone"))):
        rows: list[Any] = [(step, step, {"loss": 1.0 / (step + 1)}) for step in range(4)]
        rows += [(None, 5, {"system.cpu": 50.0}), (4, 6, {"loss": math.nan, "big": 2**60, "top": math.inf, "ä'\\": 1})]
        write_run(run_id, rows, project=project, config={"lr": 0.1 * number, "flag": True}, summary={"best": number},
                  tags=["x", "y"])  # fmt: skip
        into_lake.add([f"runs/{project}"], place)
    write_run("b", [(0, 0, {"loss": 7.0})], project="q", config={"lr": 1.0})
    into_lake.add(["runs/q"], place)
    lake = Lake(place)
    lake.remove([("q", "gone")])
    lake.compact("metrics")


def plain(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.items()} for row in rows]


def environment() -> dict[str, str]:
    return {**os.environ, **python_path()}


ASK = """
import json, sys
from pyspark.sql import SparkSession
from trackers_lake.spark import _started
from trackers.analysis.sql import sql
session = _started(sys.argv[2])
queries = json.load(open("queries.json"))
for query in queries:
    rows = sql(query, [sys.argv[1]], engine="spark").to_pylist()
    print(json.dumps([{name: str(value) for name, value in row.items()} for row in rows]))
session.stop()
"""


def on_spark(queries: list[str], source: str, master: str) -> list[list[dict[str, str]]]:
    """Answers of Spark, in a process of its own that ends its JVM."""
    Path("queries.json").write_text(json.dumps(queries))
    done = subprocess.run([sys.executable, "-c", ASK, source, master], check=True, capture_output=True, text=True,
                          env=environment(), timeout=900)  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.fixture
def lake() -> str:
    """The source, at a place whose name has signs that are patterns to some."""
    filled(ODD)
    return f"lake:{ODD}"


@pytest.mark.timeout(900)
def test_spark_gives_the_rows_of_duckdb(lake: str) -> None:
    """The same queries on two executors: names, order and every value."""
    queries = [*QUERIES, *MORE]
    for query, found in zip(queries, on_spark(queries, lake, CLUSTER), strict=True):
        assert found == plain(trackers.sql(query, [lake]).to_pylist()), query


@pytest.mark.timeout(300)
def test_spark_is_asked_for_some_runs(lake: str) -> None:
    """A project's runs alone."""
    query = "select distinct run from metrics order by run"
    assert on_spark([query], f"{lake}#q", "local[1]") == [[{"run": "a"}, {"run": "b"}]]


REACHES = """
import sys
from pathlib import Path
from trackers_lake.spark import _started
from trackers.analysis.sql import sql
from trackers.errors import UsageError
session = _started("local[1]")
session.sql("create temp view own as select 1 as a")
for query in (
    "select * from csv.`/etc/passwd`", "select * from text.`/etc/passwd` join runs", "select * from parquet.`x`",
    "with a as (select * from csv.`/etc/passwd`) select * from a", "select (select max(_c0) from csv.`/etc/passwd`)",
    "select * from runs where name in (select value from text.`/etc/passwd`)", "from csv.`/etc/passwd` |> where true",
    "select * from runs join lateral (select * from text.`/etc/passwd`) on true", "table csv.`/etc/passwd`",
    "select * from identifier('csv.`/etc/passwd`')", "select * from identifier('csv.' || '`/etc/passwd`')",
    "select * from own", "select * from default.runs", "select transform(run) using 'touch ran' as (x) from runs",
    "select reflect('java.lang.System', 'getenv', 'HOME')", "select java_method('java.lang.System', 'getenv', 'HOME')",
    "select max(1) filter (where reflect('java.lang.System', 'getenv', 'HOME') = 'x') from runs",
    "select identifier('ref' || 'lect')('java.lang.System', 'getenv', 'HOME')", "select xpath_string('<a/>', 'a')",
    "insert overwrite directory 'out' using csv select 1", "create table x using csv location 'out' as select 1",
    "set a = b", "add jar 'x.jar'", "describe runs", "explain select 1", "execute immediate 'select 1'",
    "cache table runs", "drop view own", "select * from nosuch_table_function(1)", "refresh 'file:///etc'",
    "select max(run) over w from runs window w as (partition by reflect('java.lang.System', 'getenv', 'HOME'))",
    "select max(run) over w from runs window v as (partition by (select max(value) from text.`/etc/passwd`)), w as v",
    "select from_avro(x'00', 'x', map('avroSchemaUrl', '/etc/passwd'))",
    "select from_protobuf(x'00', 'M', '/etc/passwd')", "with own as (select * from own) select * from own",
    "select * from (with own as (select 1) select * from own) cross join own", "with Own as (select 1) select 1",
):
    try:
        found = sql(query, [sys.argv[1]], engine="spark")
    except UsageError as error:
        assert len(str(error).splitlines()) == 1, error
    else:
        print("ran:", query, found.to_pylist()[:2])
print("home:", sql("select '${env:HOME}' as a", [sys.argv[1]], engine="spark").to_pylist())
assert not Path("ran").exists() and not Path("out").exists()
for query in (
    "with a as (select run, value from metrics), b as (select * from a) select * from b where value > 0",
    "select name, sum(value) over (partition by run order by step) from metrics", "values (1), (2)",
    "select run, count(*) from metrics group by all having count(*) > 1 order by 1 limit 3 offset 1",
    "select * from (select 1 as a) x union all select 2 except select 3", "select explode(array(1, 2)) from runs",
    "select * from runs lateral view explode(tags) as tag", "select * from range(3)", "from runs |> limit 1",
    "select * from (select run, name from metrics) pivot (count(*) for name in ('loss'))",
    "select distinct run from runs where run in (select run from runs)",
    "select max(step) over w from metrics window w as (partition by run order by step)",
    "select * from runs where exists (select 1 from config where config.run = runs.run)",
):
    sql(query, [sys.argv[1]], engine="spark")
session.stop()
"""


@pytest.mark.timeout(600)
def test_spark_is_confined_to_the_tables(lake: str) -> None:
    """Other files, programs, Java's methods, the environment, other views: each refused in a line, by the plan."""
    done = subprocess.run([sys.executable, "-c", REACHES, lake], capture_output=True, text=True, env=environment(),
                          timeout=590)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(("ran:", "home:"))] == [
        "home: [{'a': '${env:HOME}'}]"
    ]


@pytest.mark.timeout(300)
def test_what_spark_cannot_do_is_one_line(lake: str) -> None:
    """A query that is wrong, by the command, which starts Spark and ends it."""
    command = [sys.executable, "-m", "trackers", "sql", "select nosuch from runs", lake, "--engine", "spark",
               "--master", "local[1]"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=290)
    assert done.returncode == 2
    [said] = [line for line in done.stderr.splitlines() if line.startswith("trackers: ")]
    assert "nosuch" in said


def test_delta_rs_and_polars_know_the_tables() -> None:
    """The reference of the format in Rust: columns, versions, rows, also from a checkpoint alone."""
    filled(LAKE)
    for table in COLUMNS:
        own = Lake(LAKE).snapshot(table)
        theirs = deltalake.DeltaTable(f"{LAKE}/{table}")
        assert theirs.version() == own.version
        assert [field.name for field in theirs.schema().fields] == [name for name, _ in COLUMNS[table]]
        assert sorted(Path(uri).name for uri in theirs.file_uris()) == sorted(own.files)
    for version in range(Lake(LAKE).snapshot("metrics").version):
        Path(LAKE, "metrics/_delta_log", f"{version:020d}.json").unlink()
    found = polars.scan_delta(f"{LAKE}/metrics").group_by("project", "run").len().collect()
    assert {(row["project"], row["run"]): row["len"] for row in found.to_dicts()} == held(LAKE)
    mean = polars.scan_delta(f"{LAKE}/metrics").filter(polars.col("name") == "loss").select(polars.col("step").max())
    assert mean.collect().item() == 4


def test_what_delta_rs_writes_is_read() -> None:
    """Another writer joins the files, whose entries then say nothing of runs: they are looked at."""
    filled(LAKE)
    before = held(LAKE)
    deltalake.DeltaTable(f"{LAKE}/metrics").optimize.z_order(["name", "run"])
    assert held(LAKE) == before
    assert Lake(LAKE).fingerprints("metrics") == dict.fromkeys(before, "")
    write_run("b", [(0, 0, {"loss": 8.0})], project="q", config={"lr": 1.0})
    into_lake.add(["runs/q"], LAKE)
    query = "select value from metrics where run = 'b'"
    assert trackers.sql(query, [f"lake:{LAKE}"]).to_pylist() == [{"value": 8.0}]
    assert len(deltalake.DeltaTable(f"{LAKE}/metrics").to_pyarrow_table()) == sum(held(LAKE).values())


NUMBERS = (
    "select project, run, count(*) as n, min(value) as low from metrics where name = 'loss' and step < 4 "
    "group by project, run order by project, run",
    "select project, run, value from metrics where name in ('big', 'top') order by project, run, value",
    "select project, run, status, steps from runs order by project, run",
)
AS_TEXT = "set output_format_json_quote_denormals = 1, output_format_json_quote_64bit_integers = 0; "


def with_clickhouse(query: str) -> list[dict[str, Any]]:
    """ClickHouse in this process. It reads below the working directory only."""
    import chdb

    for table in ("metrics", "runs"):
        query = query.replace(f"from {table} ", f"from deltaLakeLocal('{os.getcwd()}/{LAKE}/{table}') ")
    return [json.loads(line) for line in str(chdb.query(AS_TEXT + query, "JSONEachRow")).splitlines()]


def with_daft(query: str) -> list[dict[str, Any]]:
    """Daft."""
    import daft

    tables = {table: daft.read_deltalake(f"{LAKE}/{table}") for table in ("metrics", "runs")}
    found: list[dict[str, Any]] = daft.sql(query, **tables).to_pylist()
    return found


def with_datafusion(query: str) -> list[dict[str, Any]]:
    """DataFusion, by the table provider of delta-rs."""
    import datafusion

    context = datafusion.SessionContext()
    for table in ("metrics", "runs"):
        context.register_table(table, deltalake.DeltaTable(f"{LAKE}/{table}"))
    return list(context.sql(query).to_pylist())


def with_polars(query: str) -> list[dict[str, Any]]:
    """Polars' SQL."""
    tables = {table: polars.scan_delta(f"{LAKE}/{table}") for table in ("metrics", "runs")}
    return list(polars.SQLContext(tables).execute(query).collect().to_dicts())


@pytest.mark.parametrize("engine", [with_clickhouse, with_daft, with_datafusion, with_polars])
def test_other_engines_give_the_same_rows(engine: Any) -> None:
    """By the tables alone: runs that were replaced, removed and joined, infinities, and integers beyond 2^53."""
    filled(LAKE)
    keys = [("p", "a"), ("q", "a"), ("q", "b")]
    low, more, runs = (engine(query) for query in NUMBERS)
    assert [(row["project"], row["run"], row["n"], row["low"]) for row in low] == [
        (*keys[0], 4, 0.25), (*keys[1], 4, 0.25), (*keys[2], 1, 7.0),
    ]  # fmt: skip
    values = [(row["project"], row["run"], float(row["value"])) for row in more]
    assert values == [(*key, value) for key in keys[:2] for value in (float(2**60), math.inf)]
    assert [(row["project"], row["run"], row["steps"]) for row in runs] == [(*keys[0], 4), (*keys[1], 4), (*keys[2], 0)]
