"""The CSV tracker, read back by Python's csv module and by pandas."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trackers
from tests.formats.test_csv_cell import EVIL
from tests.helpers import T0, Driver, run_info, stream, training
from trackers.backends.csv.tracker import CsvTracker
from trackers.backends.json.tracker import JsonTracker
from trackers.errors import UsageError
from trackers.formats.csv_cell import FORMULA, unguarded
from trackers.readers import registry
from trackers.records import Metrics, Start, Summary, Text
from trackers.tracker import Status, Tracker


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.reader(table))


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(CsvTracker, run_info(tmp_path / "run", **fields))


def test_run_reads_back_with_pandas(tmp_path: Path) -> None:
    """Every value, step and time of a thousand steps comes back exactly."""
    run = driver(tmp_path)
    run.deliver(training(1000))
    table = pandas.read_csv(tmp_path / "run/metrics.csv", float_precision="round_trip")  # pandas 3 does so by itself
    assert list(table.columns) == ["step", "time", *(f"metric_{k}" for k in range(10))]
    assert list(table["step"]) == list(range(1000))
    assert list(table["time"]) == [T0 + step / 10 for step in range(1000)]
    assert list(table["metric_7"]) == [step + 0.7 for step in range(1000)]


def test_new_names_become_columns_and_old_rows_stay(tmp_path: Path) -> None:
    """A name that appears late gets a column behind the others; rows before it are empty there."""
    records = [
        Metrics(step=1, time=1.0, values={"a": 1}),
        Text(step=2, time=2.0, values={"note": 'say "hi",\r\nbye'}),
        Metrics(time=3.0, values={"step": 9, "b,c": 2.5}),
    ]
    run = driver(tmp_path)
    run.open()
    run.write(stream(records), batch=1)
    run.close()
    assert rows(tmp_path / "run/metrics.csv") == [
        ["step", "time", "a", "note", "step_", "b,c"],
        ["1", "1.0", "1", "", "", ""],
        ["2", "2.0", "", 'say "hi",\r\nbye', "", ""],
        ["", "3.0", "", "", "9", "2.5"],
    ]


def test_odd_numbers_read_back(tmp_path: Path) -> None:
    """NaN, infinities and big integers are text that float() and int() read."""
    values = {"nan": math.nan, "inf": math.inf, "low": -math.inf, "big": 2**70, "small": 5e-324}
    run = driver(tmp_path)
    run.deliver(stream([Metrics(step=0, time=T0, values=values)]))
    found = rows(tmp_path / "run/metrics.csv")[1][2:]
    assert found == ["NaN", "Infinity", "-Infinity", str(2**70), "5e-324"]
    assert pandas.read_csv(tmp_path / "run/metrics.csv")["inf"][0] == math.inf


def test_results_go_to_the_summary(tmp_path: Path) -> None:
    """``final/`` values are rows of summary.csv, last value first name, and no column of the table."""
    records = [
        Metrics(step=1, time=T0, values={"a": 1, "final/acc": 0.5}),
        Summary(time=T0, values={"best": 3}),
        Summary(time=T0, values={"final/best": 2.5}),
    ]
    run = driver(tmp_path)
    run.deliver(stream(records), status=Status("failed", 3))
    assert rows(tmp_path / "run/metrics.csv")[0] == ["step", "time", "a"]
    assert rows(tmp_path / "run/summary.csv") == [
        *(["name", "value"], ["acc", "0.5"], ["best", "2.5"], ["status", "failed"], ["exit_code", "3"])
    ]


@pytest.mark.parametrize("tracker", [CsvTracker, JsonTracker])
def test_results_may_be_called_as_what_says_how_the_run_ended(tracker: type[Tracker], tmp_path: Path) -> None:
    """They are stored beside it with an underscore, and read back by their own names."""
    values = {"status": "converged", "exit_code": 42, "reason": "patience", "status_": 1, "reason__": 2.5}
    run = Driver(tracker, run_info(tmp_path / "run"))
    run.deliver(
        stream([Metrics(step=1, time=T0, values={"a": 1}), Summary(time=T0, values=values)]), status=Status("failed", 3)
    )
    (path,) = (tmp_path / "run").glob("metrics.csv" if tracker is CsvTracker else "*.json")
    found = trackers.load(f"{tracker.name}:{path}")
    assert {name: found.summary[name] for name in values} == values
    assert found.status == "failed"


def test_rewind_drops_superseded_rows(tmp_path: Path) -> None:
    """An attempt from a checkpoint replaces later rows; samples without a step stay."""
    first = [*(Metrics(step=s, time=T0, values={"a": s}) for s in range(5)), Metrics(time=T0, values={"gpu": 1})]
    second = [Start(time=T0, attempt=2, from_step=2), Metrics(step=3, time=T0, values={"a": 30})]
    run = driver(tmp_path)
    run.deliver(stream([*first, *second]))
    assert [(row[0], row[2]) for row in rows(tmp_path / "run/metrics.csv")[1:]] == [
        *(("0", "0"), ("1", "1"), ("2", "2"), ("", ""), ("3", "30"))
    ]


def test_kill_between_a_new_column_and_the_commit(tmp_path: Path) -> None:
    """When the file already has a column that the state doesn't know, the table is built anew and ends the same."""
    records = stream([Metrics(step=s, time=T0, values={"a": s, **({"b": 1} if s > 3 else {})}) for s in range(9)])
    run = driver(tmp_path)
    run.open()
    run.write(records[:3])
    run.write(records[:7], commit=False)
    run.deliver(records)
    plain = Driver(CsvTracker, run_info(tmp_path / "plain"))
    plain.deliver(records, batch=1)
    assert (tmp_path / "run/metrics.csv").read_bytes() == (tmp_path / "plain/metrics.csv").read_bytes()


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_damaged_table_is_built_anew(tmp_path: Path, damage: str) -> None:
    """A table that someone removed or cut is complete again after the next delivery."""
    records = training(30)
    run = driver(tmp_path)
    run.deliver(records)
    path = tmp_path / "run/metrics.csv"
    before = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(before[:200])
    run.deliver(records)
    assert path.read_bytes() == before


def test_directory_option_holds_runs_apart(tmp_path: Path) -> None:
    """With CSV_DIR each run has a directory of its own, relative to where training began."""
    run = driver(tmp_path, options={"CSV_DIR": "out"}, cwd=str(tmp_path))
    run.deliver(training(2))
    assert (tmp_path / "out/baseline-abcd1234/metrics.csv").is_file()
    assert run.state["url"] == str(tmp_path / "out/baseline-abcd1234/metrics.csv")
    with pytest.raises(UsageError):
        CsvTracker.check({"CSV_DIR": str(tmp_path / "out/baseline-abcd1234/metrics.csv/x")})


def test_no_spreadsheet_calculates_and_all_reads_back(tmp_path: Path) -> None:
    """Names, texts and results that begin as formulas stand behind an apostrophe, which the reader takes away, also
    after the table was written anew; numbers stay numbers."""
    evil = [*EVIL, "'=1", "''-x", "'plain"]
    given = [Text(step=step, time=T0, values={text: text}) for step, text in enumerate(evil)]
    numbers = Metrics(step=99, time=T0, values={"@m": -2.5})
    run = driver(tmp_path)
    run.open()
    run.write(stream([*given, numbers, Summary(time=T0, values={"=r": "=s"})]), batch=1)
    run.close()
    cells = [cell for name in ("metrics.csv", "summary.csv") for row in rows(tmp_path / "run" / name) for cell in row]
    assert {cell for cell in cells if cell.startswith(FORMULA)} == {"-2.5"}
    reader, (found,) = registry.open_source(f"csv:{tmp_path}/run/metrics.csv", tmp_path)
    records = list(reader.read(found))
    texts = {name: text for record in records if isinstance(record, Text) for name, text in record.values.items()}
    assert texts == {text: text for text in evil}
    assert [record.values for record in records if isinstance(record, Metrics)] == [numbers.values]
    assert [record.values for record in records if isinstance(record, Summary)] == [{"=r": "=s"}]


def test_nul_of_names_and_texts_is_one_that_csv_readers_take(tmp_path: Path) -> None:
    """Python's own reader before 3.11 refuses a whole file for one in it."""
    run = driver(tmp_path)
    values = [Metrics(step=0, time=1.0, values={"a\0": 1.5}), Text(step=0, time=1.0, values={"t": "x\0y"})]
    run.deliver(stream([*values, Summary(time=1.0, values={"r\0": "s\0"})]))
    assert rows(tmp_path / "run/metrics.csv")[0] == ["step", "time", "a\ufffd", "t"]
    assert b"\0" not in b"".join(path.read_bytes() for path in (tmp_path / "run").glob("*.csv"))


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda n: "\0" not in n)


@pytest.mark.slow
@given(st.lists(st.dictionaries(NAMES, NAMES | st.floats(), max_size=3), max_size=6))
@settings(deadline=None, max_examples=60)
def test_any_names_and_texts_read_back(tmp_path_factory: pytest.TempPathFactory, given_rows: list[Any]) -> None:
    """Whatever names and values hold (quotes, line ends, commas), a csv reader finds them again."""
    directory = tmp_path_factory.mktemp("csv")
    records = []
    for step, row in enumerate(given_rows):
        plain = {k: v for k, v in row.items() if not k.startswith("final/")}
        records.append(Text(step=step, time=1.0, values={k: str(v) for k, v in plain.items()}))
    run = Driver(CsvTracker, run_info(directory))
    run.open()
    run.write(stream(records), batch=1)
    run.close()
    found = rows(directory / "metrics.csv")
    columns = list(dict.fromkeys(name for record in records for name in record.values))
    wanted = [record for record in records if record.values]
    assert len(found) == len(wanted) + 1
    for row, record in zip(found[1:], wanted, strict=True):
        found_cells = [str(record.step), "1.0", *(record.values.get(name, "") for name in columns)]
        assert list(map(unguarded, row)) == found_cells
