"""A run is read back whole: as columns, joined on step, what was superseded left out."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from typer.testing import CliRunner

import trackers
from tests.analysis.support import write_run
from tests.helpers import Terminal
from trackers.cli.app import app
from trackers.errors import MissingPackage, NotFound, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.readers import cache, columns, frames, journal
from trackers.readers.columns import Block, ColumnBlocks
from trackers.readers.run_data import RunData, load, load_all
from trackers.records import Metrics, Record, nearest_double
from trackers.support import plugins


def logged(steps: int = 20, name: str = "baseline", **options: Any) -> trackers.Run:
    """A finished run with metrics of two cadences, a NaN, an integer, a text and a result."""
    run = trackers.init(
        "json", project="digits", name=name, mode="offline", config={"lr": 0.1}, options={"TRACKER_RELAY": False},
        tags=["first"], **options,
    )  # fmt: skip
    for step in range(steps):
        run.log({"loss": math.nan if step == 3 else 1 / (step + 1), "tokens": step * 100}, step=step)
        if step % 5 == 0:
            run.log({"val_loss": 2.0 * step}, step=step)
    run.log({"note": "half way"}, step=steps)
    run.log({"final/best": 0.5})
    run.finish()
    return run


def test_load_gives_all_of_a_run() -> None:
    """Configuration, results, status, tags, texts and every value with its step and time come back."""
    run = logged()
    data = load("latest")
    assert (data.run.id, data.run.name, data.run.project, data.run.tags) == (run.id, "baseline", "digits", ["first"])
    assert data.config["lr"] == 0.1
    assert data.summary == {"best": 0.5}
    assert data.status == "finished"
    assert [attempt["number"] for attempt in data.attempts] == [1]
    assert [text.values for text in data.texts()] == [{"note": "half way"}]
    assert set(data.keys()) == {"loss", "tokens", "val_loss", "final/best"}
    table = data.metrics()
    assert table.column_names == ["step", "time", "loss", "tokens", "val_loss"]
    assert table["step"].to_pylist() == list(range(20))
    losses = table["loss"].to_pylist()
    assert math.isnan(losses[3])
    assert losses[:3] == [1.0, 0.5, 1 / 3]
    assert table["tokens"].to_pylist() == [step * 100 for step in range(20)]
    assert table["val_loss"].to_pylist() == [2.0 * step if step % 5 == 0 else None for step in range(20)]
    assert table["time"].to_pylist() == sorted(table["time"].to_pylist())


@pytest.mark.parametrize("form", ["id", "name", "project/id", "directory", "run:name", "run:directory"])
def test_run_of_ours_is_found_by(form: str) -> None:
    """A run is named by its id, name, project and id, or directory, with and without the scheme."""
    run = logged(3)
    named = {"id": run.id, "name": "baseline", "project/id": f"digits/{run.id}", "directory": str(run.dir)}
    scheme, _, what = form.rpartition(":")
    assert load(f"{scheme}:{named[what]}" if scheme else named[what]).run.id == run.id


def test_sources_of_many_runs(tmp_path: Path) -> None:
    """A project, a directory and a pattern name all of their runs; one is asked for where one is needed."""
    first, second = logged(2, "one"), logged(2, "two")
    assert [data.run.id for data in load_all("digits")] == [second.id, first.id]
    assert len(load_all("runs/digits")) == len(load_all("runs/*/*")) == 2
    with pytest.raises(UsageError, match=r"names 2 runs(.|\n)*one(.|\n)*"):
        load("digits")


def test_two_runs_of_one_name_are_listed() -> None:
    """A name that two runs share is wrong usage, and both ids are shown, one a line."""
    runs = [logged(2), logged(2)]
    with pytest.raises(UsageError, match="2 runs are called 'baseline'") as error:
        load("baseline")
    assert {line.strip() for line in str(error.value).splitlines()[1:]} == {f"digits/{run.id}" for run in runs}


def test_store_is_no_source() -> None:
    """It is said how its runs are named."""
    for where, more in (
        ("s3://bucket/runs", ""),
        ("file:///runs", "; one of MLflow's is mlflow:file:///runs#EXPERIMENT"),
    ):
        with pytest.raises(UsageError) as caught:
            load(where)
        install = "or pip install 'trackers-relay[lake]'"
        assert str(caught.value) == f"{where} is a store: give --dir {where}, and runs of it; {install}{more}"


def test_missing_run_and_unknown_scheme() -> None:
    """What isn't there is not found; a scheme that isn't known is wrong usage, and the known ones are named."""
    with pytest.raises(NotFound):
        load("latest")
    logged(2)
    with pytest.raises(NotFound, match="no run 'nothing'"):
        load("nothing")
    for empty in ("", " "):
        with pytest.raises(UsageError, match="a source is empty"):
            load(empty)
    with pytest.raises(UsageError, match=r"unknown source scheme 'mlflo': did you mean 'mlflow'\?.*wandb:"):
        load("mlflo:digits")
    with pytest.raises(NotFound, match="no metric 'nothing'"):
        load("latest").metrics(["nothing"])


@pytest.mark.parametrize("name", plugins.ours("source"))
def test_source_of_a_distribution_that_isnt_installed_says_what_to_install(name: str) -> None:
    """What was built in once is one line with its command, also where a file's name tells the scheme."""
    extra = next((extra for extra, own in plugins.OURS.items() if own.source == name), name)
    says = f"source '{name}' is a distribution of its own: pip install 'trackers-relay[{extra}]'"
    files = {"swanlab": "run-1.swanlab", "neptune": "run_part_0.parquet", "log": "train.log"}
    Path(files.get(name, "file")).touch()
    for source in (f"{name}:there", files.get(name, f"{name}:file")):
        with pytest.raises(MissingPackage) as error:
            load(source)
        assert str(error.value) == says


def test_tables_as_pandas_and_polars() -> None:
    """The same table is a DataFrame of both libraries, wide and long."""
    logged()
    data = load("latest")
    wide = data.metrics(["loss", "val_*"])
    assert list(wide.to_pandas().columns) == list(wide.to_polars().columns) == ["step", "time", "loss", "val_loss"]
    long = data.metrics("val_loss", long=True)
    assert long.to_polars()["value"].to_list() == [0.0, 10.0, 20.0, 30.0]
    assert long.to_pandas()["name"].tolist() == ["val_loss"] * 4


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_frame_without_its_package_names_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the command, not Arrow's own traceback."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(MissingPackage, match=f"to_{package} needs .*pip install"):
        getattr(frames.Frame(None), f"to_{package}")()


def test_missing_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow a run is read, each time anew, and what is a table says which extra brings it."""
    logged(2)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "pyarrow" else found(name))
    cache._can_keep.cache_clear()
    data = load("latest")
    cache._can_keep.cache_clear()
    assert {*data.keys()} == {"loss", "tokens", "val_loss", "final/best"}
    assert not list(cache.root().rglob("*.parquet"))
    with pytest.raises(MissingPackage, match=r"pip install 'trackers-relay\[analysis\]'"):
        data.metrics()


def test_rewind_leaves_the_new_attempt() -> None:
    """Steps that a later attempt went back over show its values; both attempts are listed."""
    run = logged(10)
    again = trackers.init("json", project="digits", id=run.id, resume="must", step=4, mode="offline",
                          options={"TRACKER_RELAY": False})  # fmt: skip
    for step in range(5, 8):
        again.log({"loss": -1.0}, step=step)
    again.finish()
    data = load("latest")
    assert data.metrics(["loss"])["loss"].to_pylist()[4:] == [0.2, -1.0, -1.0, -1.0]
    assert [(entry["number"], entry.get("from_step")) for entry in data.attempts] == [(1, None), (2, 4)]
    reader = journal.JournalReader()
    (found,) = reader.runs("latest")
    losses = [r.values["loss"] for r in reader.read(found) if isinstance(r, Metrics) and "loss" in r.values]
    assert losses[4:] == [0.2, -1.0, -1.0, -1.0]


def test_running_run_is_read_as_far_as_it_got() -> None:
    """A run that goes on is running, and its complete lines are there; a torn one is not."""
    run = trackers.init("json", project="digits", mode="offline", options={"TRACKER_RELAY": False})
    run.log({"loss": 1.0}, step=0)
    with RunDirectory(run.dir).stream(RunDirectory(run.dir).stream_names()[0]).open("ab") as stream:
        stream.write(b'{"kind":"metrics","step":1,"ti')
    data = load("latest")
    assert data.status == "running"
    assert data.metrics()["loss"].to_pylist() == [1.0]
    run.finish()


def test_damaged_line_is_skipped() -> None:
    """A line that is no record costs itself, not what stands around it."""
    run = logged(5)
    stream = next(Path(run.dir, "streams").glob("rank-0*.jsonl"))
    lines = stream.read_bytes().splitlines(keepends=True)
    stream.write_bytes(b"".join([*lines[:4], b"{garbage}\n", b'{"kind":"later","time":1}\n', *lines[4:]]))
    assert load("latest").series()["loss"].count == 5


@pytest.mark.parametrize("steps", [60, 3000])  # not in the cache, and in it
def test_damaged_lines_are_counted_in_the_note(steps: int) -> None:
    """A line that isn't what training wrote is left out, and each reading says so."""
    run = logged(steps)
    stream = next(Path(run.dir, "streams").glob("rank-0*.jsonl"))
    assert load("latest").run.note == ""
    shutil.rmtree(cache.root(), ignore_errors=True)
    content = bytearray(stream.read_bytes())
    content[content.index(b'"step":50,') + 8] ^= 1  # 40 or 51: a record still
    stream.write_bytes(content)
    note = f"1 damaged line of the journal skipped; `trackers sync {run.dir} --verify` names it"
    for _ in range(2):
        data = load("latest")
        assert data.series()["loss"].count == steps - 1
        assert data.run.note == note
    reader = journal.JournalReader()
    (source,) = reader.runs("latest")
    assert sum(isinstance(record, Metrics) for record in reader.read(source)) == data_lines(stream) - 1
    assert source.note == note


def data_lines(stream: Path) -> int:
    """How many lines of a stream are metrics."""
    return stream.read_bytes().count(b'{"kind":"metrics"')


def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of streams were read: grows with each block."""
    counted: list[int] = []
    real = journal.blocks

    def counting(path: Path, offset: int = 0, *told: Any) -> Any:
        for found, end in real(path, offset, *told):
            counted.append(end - offset)
            offset = end
            yield found, end

    monkeypatch.setattr(journal, "blocks", counting)
    return counted


def test_second_read_takes_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read once comes from the cache, and a run that grew is read on from there."""
    run = trackers.init("json", project="digits", mode="offline", options={"TRACKER_RELAY": False})
    for step in range(3000):
        run.log({"loss": step / 7, "val" if step % 10 == 0 else "other": float(step)}, step=step)
    counted = read_bytes(monkeypatch)
    first = load("latest").metrics()
    whole = sum(counted)
    counted.clear()
    assert load("latest").metrics().equals(first.table)
    assert counted == []
    for step in range(3000, 5000):
        run.log({"loss": step / 7, "other": float(step)}, step=step)
    run.finish()
    grown = load("latest")
    assert 0 < sum(counted) < whole
    assert grown.metrics(["loss"])["loss"].to_pylist() == [step / 7 for step in range(5000)]
    assert grown.status == "finished"
    again = load("latest")
    assert again.metrics().equals(grown.metrics().table)
    assert [msgspec.to_builtins(r) for r in again.records()] == [msgspec.to_builtins(r) for r in grown.records()]


@pytest.mark.parametrize("damage", ["index", "part", "bare", "stream"])
def test_damaged_cache_or_changed_stream_is_read_anew(damage: str) -> None:
    """A broken entry, and one of a file that was replaced, counts for nothing."""
    run = logged(3000)
    load("latest")
    (index,) = cache.root().glob("*/index.json")
    stream = next(Path(run.dir, "streams").glob("rank-0*.jsonl"))
    if damage == "index":
        index.write_text("{")
    elif damage == "part":
        next(index.parent.glob("*.parquet")).write_bytes(b"PAR1")
    elif damage == "bare":
        part = next(index.parent.glob("*.parquet"))
        parquet.write_table(parquet.read_table(part).replace_schema_metadata(None), part)
    else:
        lines = stream.read_bytes().splitlines(keepends=True)
        stream.write_bytes(b"".join(line for line in lines if b'"step":7,' not in line))
    assert load("latest").series()["loss"].count == (2999 if damage == "stream" else 3000)


def test_stale_entries_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that nobody reads any more is deleted when another is written."""
    stale = cache.root() / "0123"
    stale.mkdir(parents=True)
    os.utime(stale, (1.0, 1.0))
    logged(3000)
    load("latest")
    assert not stale.exists()


NAMES = st.sampled_from(["a", "b", "c/d", "step", "time"])
NUMBERS = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.booleans())
ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 5)), st.dictionaries(NAMES, NUMBERS, max_size=3)),
                max_size=30)  # fmt: skip


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 30))
def test_columns_hold_what_records_do(rows: list[tuple[int | None, dict[str, Any]]], cut: int) -> None:
    """Long and wide, in one piece or through a file in two, every value stands at its step, none twice."""
    records: list[Record] = [
        Metrics(step=step, time=float(number), values=values) for number, (step, values) in enumerate(rows)
    ]
    first = ColumnBlocks()
    first.add(records[:cut])
    second = ColumnBlocks(first.count)
    second.add(records[cut:])
    blocks: list[Block] = []
    for part in (first, second):
        blocks.extend(columns.from_table(columns.to_table(part.blocks())))
    blocks = columns.merge_blocks(blocks)
    for stepless in (False, True):
        chosen = list(frames.select_stepless(blocks, stepless))
        names = list(dict.fromkeys(name for block in chosen for name in block.names))
        wanted = [
            (name, record.step, record.time, nearest_double(value))
            for record in records
            if isinstance(record, Metrics) and (record.step is None) == stepless
            for name, value in record.values.items()
        ]
        long = frames.long_table(chosen, names)
        found = list(zip(*(long[name].to_pylist() for name in ("name", "step", "time", "value")), strict=True))
        assert repr(sorted(found, key=repr)) == repr(sorted(wanted, key=repr))
        wide = frames.wide(chosen, names, by_time=stepless)
        key = "time" if stepless else "step"
        assert wide[key].to_pylist() == sorted(wide[key].to_pylist())
        for name in names:
            column = wide[f"{name}_" if name in ("step", "time") else name]
            cells = [
                (at, nearest_double(value))
                for at, value in zip(wide[key].to_pylist(), column.to_pylist(), strict=True)
                if value is not None
            ]
            points = [(time if stepless else step, value) for n, step, time, value in wanted if n == name]
            assert repr(cells) == repr(sorted(points, key=lambda point: point[0]))


def test_wide_rows_at_repeated_steps() -> None:
    """The n-th values of one step stand in one row, so that nothing is lost and nothing multiplied."""
    taken = ColumnBlocks()
    for number, (step, values) in enumerate([(1, {"a": 1.0}), (1, {"a": 2.0}), (1, {"b": 3.0}), (0, {"b": 4.0})]):
        taken.add([Metrics(step=step, time=float(number), values=values)])
    table = frames.wide(taken.blocks(), ["a", "b"])
    assert table.to_pylist() == [
        {"step": 0, "time": 3.0, "a": None, "b": 4.0},
        {"step": 1, "time": 0.0, "a": 1.0, "b": 3.0},
        {"step": 1, "time": 1.0, "a": 2.0, "b": None},
    ]


def test_columns_keep_their_kind() -> None:
    """A column of integers or of truth values is one; integers without a double of their own are doubles."""
    taken = ColumnBlocks()
    taken.add(
        [Metrics(step=n, time=0.0, values={"i": n, "b": n > 0, "m": n if n else 0.5, "w": 2**60}) for n in (0, 1)]
    )
    types = {field.name: str(field.type) for field in frames.wide(taken.blocks(), ["i", "b", "m", "w"]).schema}
    assert types == {"step": "int64", "time": "double", "i": "int64", "b": "bool", "m": "double", "w": "double"}
    series = frames.series(taken.blocks())
    assert (series["i"].value, series["b"].value, series["m"].value) == (1, True, 1.0)


def test_media_of_a_journal_are_there(tmp_path: Path) -> None:
    """Media come with files below the run's directory."""
    run = trackers.init("json", project="digits", mode="offline", options={"TRACKER_RELAY": False})
    run.log({"picture": trackers.Image(np.zeros((4, 4), np.uint8))}, step=1)
    run.finish()
    data = load("latest")
    (media,) = data.media()
    assert Path(data.run.directory, media.items[0].file).is_file()


def test_merged_streams_are_in_order_of_time() -> None:
    """Records of several streams come by time, each stream's own order kept."""
    one = [[Metrics(time=t, values={"a": t}) for t in part] for part in ([1.0, 4.0], [], [6.0])]
    two = [[Metrics(time=t, values={"b": t}) for t in part] for part in ([2.0, 3.0, 5.0], [7.0])]
    found = list(journal.merged([iter(one), iter(two)]))
    assert [record.time for record in found] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_run_data_says_what_it_is() -> None:
    """Its representation names source, name and status."""
    logged(1)
    assert isinstance(load("latest"), RunData)
    assert "'baseline' finished" in repr(load("latest"))


@pytest.mark.heavy
@pytest.mark.parametrize("rows", [25_000, 5_000])
def test_long_reading_is_counted_on_a_terminal(
    rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records are counted as they come, a name with markup and escapes is only text; a short reading shows nothing."""
    lines = "".join(f"{step},{step / 7}\n" for step in range(rows))
    Path("[red]a\x1b[31m.csv").write_text("step,loss\n" + lines)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TRACKERS_PROGRESS_S", "0")  # however quick this machine is
    monkeypatch.setenv("TERM", "xterm")
    assert trackers.load("csv:[[]red]a\x1b[[]31m.csv").metrics().num_rows == rows
    text = terminal.getvalue()
    assert ("reading [red]a" in text) == ("20000/?" in text) == (rows > 10_000)
    assert "\x1b[31m" not in text
    monkeypatch.undo()
    assert capsys.readouterr().err == ""


ESCAPE = "\x1b]0;owned\x07\x1b[31m\x9b2J"


def test_what_is_printed_of_a_run_has_no_terminal_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, texts and settings come from whoever made the run: commands, ``print`` and a notebook show them without
    effect."""
    monkeypatch.chdir(tmp_path)
    write_run("one", [(1, 1.0, {f"loss{ESCAPE}": 1.0})], name=f"n{ESCAPE}", config={f"k{ESCAPE}": f"v{ESCAPE}"})
    run = trackers.load("one")
    shown_frames = [run.metrics(), run.metrics(long=True), trackers.sql("select * from config", ["one"]),
              trackers.sql(f'select name as "{ESCAPE}" from runs', ["one"])]  # fmt: skip
    notebook = [one._repr_html_() for one in (run, trackers.load_all("digits"), *shown_frames)]
    commands = ("ls", "show one", "compare one", "report one", "diff one one", "best loss*", "alerts ls", "plot one")
    printed = [CliRunner().invoke(app, words.split()).output for words in commands]
    assert sum("loss" in text for text in printed) >= 4
    for shown in (repr(run), *map(repr, shown_frames), *notebook, *printed):
        assert not [char for char in shown if not char.isprintable() and char != "\n"], shown


def test_runs_show_themselves_in_notebooks() -> None:
    """One with its results, last values and settings, several as a table; what they hold is text."""
    bad = "<img src=x>"
    for number in range(2):
        write_run(
            f"r{number}", [(3, 0, {"loss": 0.5})], name=f"{bad}{number}", config={"lr": 0.1}, summary={"acc": 0.9}
        )
    page = trackers.load("r0")._repr_html_()
    for text in (
        "&lt;img src=x&gt;0",
        "final/acc",
        "<td>0.9</td>",
        "<td>loss</td><td>0.5</td><td>3</td>",
        "<td>lr</td>",
    ):
        assert text in page
    runs = trackers.load_all("digits")
    assert isinstance(runs, list)
    table = runs._repr_html_()  # type: ignore[attr-defined]
    assert table.count("<tr>") == 3
    assert "<th>final/acc</th>" in table
    assert "<img" not in page + table
