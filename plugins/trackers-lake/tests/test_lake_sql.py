"""SQL over a lake gives the rows that it gives over the directories of the same runs, and reads nothing else."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from trackers_lake import into_lake
from trackers_lake import sql as lake_sql
from trackers_lake.schema import COLUMNS
from trackers_lake.tables import Lake

import trackers
from tests.analysis.support import write_run
from trackers.analysis import sql
from trackers.errors import NotFound, UsageError

QUERIES = (
    "select * from runs order by run",
    "select * from metrics order by all",
    "select * from system order by all",
    "select * from config order by all",
    "select * from summary order by all",
    "select run, name, min(value) as low, count(*) as n from metrics where step > 1 group by all order by all",
    "select r.project, c.number, max(m.value) as high from runs r join config c using (run) join metrics m using (run) "
    "where c.name = 'lr' and m.name = 'loss' and not isnan(m.value) group by all order by all",
)


@pytest.fixture
def runs() -> None:
    """Runs of two projects, one id in both."""
    for number, (project, run_id) in enumerate((("p", "a"), ("q", "a"), ("q", "b"))):
        rows: list[Any] = [(step, step, {"loss": 1.0 / (step + 1)}) for step in range(4)]
        rows += [(None, 5, {"system.cpu": 50.0}), (4, 6, {"loss": math.nan, "big": 2**60, "top": math.inf})]
        write_run(run_id, rows, project=project, config={"lr": 0.1 * number, "flag": True}, summary={"best": number},
                  tags=["x", "y"])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("place", ["lake", "it's a [lake]* #1 %20"])
def test_rows_are_those_over_the_directories(runs: None, query: str, place: str) -> None:
    """Names, types, order of columns and every value, wherever the lake lies."""
    into_lake.add(["runs"], place)
    over_runs, over_lake = trackers.sql(query, ["runs"]), trackers.sql(query, [f"lake:{place}"])
    assert over_lake.column_names == over_runs.column_names
    assert repr(over_lake.to_pylist()) == repr(over_runs.to_pylist())


@pytest.mark.heavy
def test_some_runs_are_asked_alone(runs: None) -> None:
    """A project, a run, several of them: what is joined with is theirs, and names are as short as they can be."""
    into_lake.add(["runs"], "lake")
    ask = "select distinct run from metrics order by 1"
    assert trackers.sql(ask, ["lake:lake#q"]).to_pylist() == [{"run": "a"}, {"run": "b"}]
    assert trackers.sql(ask, ["lake:lake#p/a"]).to_pylist() == [{"run": "a"}]
    assert trackers.sql(ask, ["lake:lake#p/a", "lake:lake#a"]).to_pylist() == [{"run": "p/a"}, {"run": "q/a"}]
    with pytest.raises(NotFound, match="did you mean 'q/b'"):
        trackers.sql(ask, ["lake:lake#q/bb"])
    with pytest.raises(UsageError, match="several lakes"):
        trackers.sql(ask, ["lake:lake", "lake:other"])


@pytest.mark.slow
def test_events_have_what_is_no_number(runs: None) -> None:
    """All other records, as the journal has them."""
    into_lake.add(["runs"], "lake")
    found = trackers.sql("select kind, record from events where run = 'b' order by time, kind", ["lake:lake"])
    assert set(found["kind"].to_pylist()) == {"start", "config", "summary", "finish"}
    assert '"status":"finished"' in found.to_pandas().set_index("kind").loc["finish", "record"]


@pytest.mark.slow
def test_no_other_file_can_be_read(runs: None, tmp_path: Path) -> None:
    """A query reads the lake's files through its tables, and no other file."""
    into_lake.add(["runs"], "lake")
    Path("secret.csv").write_text("a\n1\n")
    for query in ("select * from 'secret.csv'", f"select * from read_text('{tmp_path}/secret.csv')",
                  "copy (select 1) to 'out.csv'", "install httpfs"):  # fmt: skip
        with pytest.raises(UsageError):
            trackers.sql(query, ["lake:lake"])
    assert not Path("out.csv").exists()


WRITES = (
    "copy (select 1 as a) to '{file}' (use_tmp_file false)",
    "copy (select 1 as a) to '{file}' (format csv, use_tmp_file false)",
    "explain analyze copy (select 1 as a) to '{file}' (use_tmp_file false)",
    "explain /**/ analyze -- x\n copy (select 1 as a) to '{file}' (use_tmp_file false)",
    "select 1; copy (select 1 as a) to '{file}' (use_tmp_file false)",
    "/* select */ copy (pivot (select 1 as a) on a) to '{file}' (use_tmp_file false)",
    "prepare p as copy (select 1 as a) to '{file}' (use_tmp_file false); execute p",
    "attach '{file}' as other", "export database '{file}'", "create persistent secret s (type http)",
    "call pragma_version()", "pragma database_list", "vacuum", "use memory",
)  # fmt: skip


@pytest.mark.slow
def test_files_of_a_lake_are_not_written_to(runs: None) -> None:
    """DuckDB may open them, and would write to them: only statements that ask, or make tables in memory, are run."""
    into_lake.add(["runs"], "lake")
    before = {path: path.read_bytes() for path in Path("lake").rglob("*") if path.is_file()}
    file = next(path.resolve() for path in before if path.suffix == ".parquet" and "metrics" in path.parts)
    for query in WRITES:
        with pytest.raises(UsageError, match=r"^sql: "):
            trackers.sql(f"{query.format(file=file)}; select count(*) from metrics", ["lake:lake"])
        with pytest.raises(UsageError, match=r"^sql: "):
            trackers.sql(f"{query.format(file=file)} -- metrics", ["lake:lake"])
    assert {path: path.read_bytes() for path in Path("lake").rglob("*") if path.is_file()} == before


ASKS = (
    "show tables", "describe runs", "summarize metrics", "-- a\n/* b */ select 1", "(select 1)", "from runs",
    "table runs", "values (1)", "with a as (select 1) select * from a", "explain select 1",
    "explain analyze select * from runs",
    "create temp table t as select 1 as a; insert into t values (2); update t set a = 3; delete from t; drop table t",
    "create or replace macro f(x) as x + 1; select f(1)", "pivot (select 1 as a, 2 as b) on a using sum(b)",
)  # fmt: skip


@pytest.mark.heavy
def test_statements_that_ask_are_run(runs: None) -> None:
    """All of SQL that reads the tables, or works on tables in memory."""
    for query in ASKS:
        trackers.sql(query, ["runs"])


@pytest.mark.heavy
def test_lake_and_directories_can_be_asked_together(runs: None) -> None:
    """Beside other sources a lake's runs are read as theirs are."""
    into_lake.add(["runs/p"], "lake")
    found = trackers.sql("select run, count(*) as n from metrics group by 1 order by 1", ["lake:lake", "runs/q"])
    assert [row["n"] for row in found.to_pylist()] == [7, 7, 7]


@pytest.mark.slow
def test_shown_columns_are_those_of_a_directory(runs: None) -> None:
    """The tables of both have one list of columns."""
    for table in sql.TABLES:
        described = trackers.sql(f"describe {table}").to_pandas()["column_name"].tolist()
        assert described == ["run", *lake_sql.SHOWN[table]]


@pytest.mark.heavy
def test_columns_that_all_files_lack_are_empty(runs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake of an older release has fewer columns; its rows are as they would be with them."""
    with monkeypatch.context() as patch:
        patch.setitem(into_lake.COLUMNS, "runs", tuple(one for one in into_lake.COLUMNS["runs"] if one[0] != "notes"))
        into_lake.add(["runs"], "lake")
        assert "notes" not in [name for name, _ in Lake("lake").snapshot("runs").columns]
    into_lake.add(["runs/p"], "lake", replace=True)
    write_run("new", [(0, 0, {"loss": 1.0})])
    found = trackers.sql("select run, notes from runs order by run", ["lake:lake"]).to_pylist()
    assert found == [{"run": run, "notes": None} for run in ("b", "p/a", "q/a")]
    into_lake.add(["runs/digits"], "lake")
    assert [name for name, _ in Lake("lake").snapshot("runs").columns] == [
        *(name for name, _ in into_lake.COLUMNS["runs"] if name != "notes"), "notes",
    ]  # fmt: skip
    assert len(trackers.sql("select notes from runs", ["lake:lake"])) == 4


@pytest.mark.slow
def test_only_what_a_query_names_is_read(runs: None) -> None:
    """Tables are named in any letters, between any signs; the others are there, and empty, and cost nothing."""
    into_lake.add(["runs"], "lake")
    for table in COLUMNS:
        if table != "metrics":
            for file in Path("lake", table).glob("*.parquet"):
                if table != "runs":  # which runs there are is always read
                    file.write_bytes(b"damaged")
    for query in ('select count(*) as n from "METRICS"', "from(select*from Metrics)select count(*) as n"):
        assert trackers.sql(query, ["lake:lake"]).to_pylist() == [{"n": 21}]
    assert trackers.sql("show tables", ["lake:lake"]).num_rows >= len(COLUMNS)


def test_views_of_all_tables_are_filled_without_a_query(runs: None) -> None:
    """As for whoever joins them by hand."""
    into_lake.add(["runs"], "lake")
    assert all(view.files for view in lake_sql.LakeViews(["lake:lake"]).views())


def test_query_that_does_not_fit_names_the_engine_that_can(runs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB writes nothing to disk here: of a lake, Spark can be asked."""
    into_lake.add(["runs"], "lake")
    monkeypatch.setattr(duckdb, "connect", partial(duckdb.connect, config={"memory_limit": "16MB"}))
    query = "select max(n) from (select row_number() over (order by md5(i::text)) as n from range(1000000) t(i)), runs"
    with pytest.raises(UsageError, match="more memory than this machine leaves it: engine spark puts on disk"):
        trackers.sql(query, ["lake:lake"])
    with pytest.raises(UsageError, match=r"more memory than this machine leaves it$"):
        trackers.sql(query, ["runs"])
