"""``trackers sql``: the documented tables, the right numbers, and nothing but those tables."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import trackers
from tests.analysis.support import write_run
from tests.helpers import T0
from trackers.analysis import sql
from trackers.cli.app import app
from trackers.errors import MissingPackage, NotFound, UsageError


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def runs() -> list[Path]:
    """Two runs with metrics at two cadences, a NaN, samples without a step, settings of all kinds and results."""
    found = []
    for number in range(2):
        rows: list[Any] = [(step, step, {"loss": 1.0 / (step + 1), **({"val": 2.0 * step} if step % 2 else {})})
                           for step in range(4)]  # fmt: skip
        rows += [(None, 5, {"system.cpu": 50.0}), (4, 6, {"loss": math.nan})]
        config = {"lr": 0.1 * (number + 1), "opt": "adam", "flag": True, "model": {"depth": 4}}
        found.append(write_run(f"r{number}", rows, config=config, summary={"best": 0.5 + number}, tags=["a", "b"],
                               group="g"))  # fmt: skip
    return found


@pytest.mark.heavy
def test_documented_schema_is_the_real_one(runs: list[Path]) -> None:
    """The columns in the module's text and in --help are those of the tables, in that order."""
    for table in sql.TABLES:
        described = trackers.sql(f"describe {table}").to_pandas()
        columns = described["column_name"].tolist()
        assert sql.__doc__ is not None
        text = " ".join(sql.__doc__.split())
        row = text.partition(f" {table} run, ")[2]
        for column in columns[1:]:
            assert column in row
        help_text = " ".join((run_cli("sql", "--help").stdout).replace("│", " ").split())
        assert all(column in help_text for column in columns)
    assert set(trackers.sql("show tables").to_pandas()["name"]) == set(sql.TABLES)


def test_tables_that_a_query_does_not_name_have_the_same_columns(runs: list[Path]) -> None:
    """They are empty, and cost nothing; what the query names is all there."""
    assert sql.runs_table([], []).schema == pa.schema(sql._runs_fields())
    assert sql.values_table([], []).schema == pa.schema(sql._values_fields())
    assert trackers.sql("select count(*) as n from Runs").to_pylist() == [{"n": len(runs)}]
    assert trackers.sql('select run, count(*) as n from "metrics" group by all order by run').num_rows == len(runs)


@pytest.mark.slow
def test_query_of_kept_numbers_loads_no_pandas(runs: list[Path]) -> None:
    """Loading it takes longer than a query over ten thousand runs."""
    for run in runs:
        for path in [*run.rglob("*"), run]:
            os.utime(path, (T0, T0))
    query = "select name, count(*) as n, max(step) as last from metrics group by name order by name"
    first = trackers.sql(query).to_pylist()
    code = (
        "import sys, trackers\n"
        f"assert trackers.sql({query!r}).to_pylist() == {first!r}\n"
        "assert 'pandas' not in sys.modules, 'pandas was loaded'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_metrics_are_those_of_the_raw_journal(runs: list[Path]) -> None:
    """Every value with its step and time, and what has no step in system, as pandas reads the journal's lines."""
    lines = [json.loads(line) for run in runs for line in (run / "streams/rank-0.1.jsonl").read_text().splitlines()]
    raw = pd.DataFrame(
        [(name, line.get("step"), line["time"], float(value)) for line in lines if line["kind"] == "metrics"
         for name, value in line["values"].items()],
        columns=["name", "step", "time", "value"],
    )  # fmt: skip
    found = trackers.sql("select name, step, time, value from metrics").to_pandas()
    order = ["name", "time", "value"]
    stepped = raw[raw["step"].notna()].astype({"step": "int64"})
    pd.testing.assert_frame_equal(
        found.sort_values(order).reset_index(drop=True),
        stepped.sort_values(order).reset_index(drop=True),
        check_dtype=False,
        check_categorical=False,
    )
    assert trackers.sql("select run, name, value from system order by run").to_pylist() == [
        {"run": "r0", "name": "system.cpu", "value": 50.0},
        {"run": "r1", "name": "system.cpu", "value": 50.0},
    ]


def test_tables_join(runs: list[Path]) -> None:
    """Settings, results and metrics of a run meet by ``run``; numbers and texts are both there."""
    query = """
        select r.name, c.number as lr, s.number as best, min(m.value) filter (not isnan(m.value)) as low
        from runs r join config c using (run) join summary s using (run) join metrics m using (run)
        where c.name = 'lr' and s.name = 'final/best' and m.name = 'loss' group by all order by lr
    """
    assert trackers.sql(query).to_pylist() == [
        {"name": "r0", "lr": 0.1, "best": 0.5, "low": 0.25},
        {"name": "r1", "lr": 0.2, "best": 1.5, "low": 0.25},
    ]
    settings = trackers.sql("select name, value, number from config where run = 'r0' order by name").to_pylist()
    assert [(row["name"], row["value"], row["number"]) for row in settings] == [
        ("flag", "true", None), ("lr", "0.1", 0.1), ("model.depth", "4", 4.0), ("opt", "adam", None),
    ]  # fmt: skip


def test_results_have_the_name_that_they_have_everywhere(runs: list[Path]) -> None:
    """``final/best``; a query for the name of earlier releases has an answer as well."""
    names = "select name, number from summary where run = 'r0'"
    assert trackers.sql(names).to_pylist() == [{"name": "final/best", "number": 0.5}]
    for name in ("final/best", "best"):
        found = trackers.sql(f"select number from summary where name = '{name}' order by number")
        assert found.to_pylist() == [{"number": 0.5}, {"number": 1.5}]


def test_runs_table(runs: list[Path]) -> None:
    """Identity, status, steps and speed of each run; one that shares its id is named with its project."""
    row = trackers.sql("select * exclude (source, created) from runs where run = 'r0'").to_pylist()[0]
    assert (row["status"], row["steps"], row["tags"], row["group_name"]) == ("finished", 4, ["a", "b"], "g")
    # The spans to steps 1 and 3 hold an evaluation; the others alone would be 2 / 4, below the wall clock.
    assert row["steps_per_s"] == pytest.approx(4 / 6)
    write_run("r0", [(0, 0, {"loss": 1.0})], project="other")
    names = trackers.sql("select run from runs order by run").to_pandas()["run"].tolist()
    assert names == ["digits/r0", "other/r0", "r1"]


@pytest.mark.heavy
def test_sources_are_chosen(runs: list[Path], tmp_path: Path) -> None:
    """Only the runs named, of whatever kind; all runs where none is."""
    (tmp_path / "log.json").write_text(
        '{"run_name": "a", "training_iterations": [{"iter": 0, "loss": 3.0}], "config": {"lr": 1}}'
    )
    query = "select name, value from metrics where name = 'loss'"
    assert trackers.sql(query, [tmp_path / "log.json"]).to_pylist() == [{"name": "loss", "value": 3.0}]
    assert len(trackers.sql("select * from runs", ["r0"])) == 1
    assert len(trackers.sql("select * from runs", ["r0", "json:log.json"])) == 2


@pytest.mark.heavy
@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('{file}')",
        "select * from read_csv('{file}')",
        "select * from '{file}'",
        "select * from glob('/etc/*')",
        "copy runs to '{out}'",
        "copy runs from '{file}'",
        "attach '{out}'",
        "export database '{out}'",
        "install httpfs",
        "update extensions",
        "load httpfs",
        "set enable_external_access = true",
        "reset enable_external_access",
        "set temp_directory = '{out}'",
        "select * from secret_table",
        "create persistent secret s (type s3)",
    ],
)
def test_query_reaches_no_file_and_no_variable(runs: list[Path], tmp_path: Path, query: str) -> None:
    """Reading, writing, attaching, installing, variables of Python, and opening the lock are all refused."""
    secret_table = pd.DataFrame({"a": [1]})
    (tmp_path / "secret.csv").write_text("a\n1\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"^sql: "):
        trackers.sql(query.format(file=tmp_path / "secret.csv", out=tmp_path / "out"))
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and "home" not in path.parts] == []
    assert len(secret_table) == 1


@pytest.mark.heavy
def test_query_changes_nothing(runs: list[Path]) -> None:
    """A query may make tables of its own, in memory, for as long as it runs; the next one has the runs again."""
    assert trackers.sql("create table t as select 1 as a; select a from t").to_pylist() == [{"a": 1}]
    trackers.sql("drop view runs")
    assert len(trackers.sql("select * from runs")) == 2


@pytest.mark.heavy
def test_output_formats(runs: list[Path]) -> None:
    """The same rows as a table, CSV, Markdown, LaTeX and JSON; lists, times and NaN included."""
    query = (
        "select run, tags, created, cast('nan' as double) as x, cast(1.50 as decimal(4, 2)) as d from runs order by run"
    )
    for form in ("table", "markdown", "latex"):
        done = run_cli("sql", query, "--format", form)
        assert done.exit_code == 0, done.output
        assert "a, b" in done.stdout
    (first, _) = csv.DictReader(io.StringIO(run_cli("sql", query, "--format", "csv").stdout))
    assert (first["run"], first["x"], first["d"]) == ("r0", "NaN", "1.5")
    assert json.loads(run_cli("sql", query, "--json").stdout)[0]["created"].startswith("2025-11-21T01:20:00")
    assert run_cli("sql", "create table t (a int)").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["selec 1"], UsageError, "syntax error"),
        (["select nothing from runs"], UsageError, "nothing"),
        (["select 1", "nowhere"], NotFound, "no run 'nowhere'"),
        (["select 1", "--format", "pdf"], UsageError, "unknown format 'pdf'"),
        ([""], UsageError, "sql: "),
    ],
)
def test_bad_input_is_one_line(runs: list[Path], arguments: list[str], error: type[Exception], said: str) -> None:
    """A query that can't be run is one line with the database's words and the tables there are."""
    done = run_cli("sql", *arguments)
    assert isinstance(done.exception, error), done.output
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_missing_duckdb_names_the_extra(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without duckdb and pyarrow one line names both, and the extra that brings them."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = r"sql needs the duckdb and pyarrow packages: pip install 'trackers-relay\[analysis\]'"
    with pytest.raises(MissingPackage, match=line):
        trackers.sql("select 1")


def test_answer_in_a_notebook_is_a_table() -> None:
    """The first rows, as text."""
    frame = trackers.sql("select i, '<b>' as name, null as nothing, 1/3 as part from range(60) t(i)", [])
    html = frame._repr_html_()
    assert html.count("<tr>") == 51
    assert "<td>0</td><td>&lt;b&gt;</td><td>–</td><td>0.333333</td>" in html
    assert "50 of 60 rows" in html
