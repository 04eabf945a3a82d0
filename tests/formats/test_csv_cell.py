"""Texts that a spreadsheet would calculate are made texts in every CSV file that people are given."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests import ROOT
from tests.analysis.support import T0, write_run
from trackers import records
from trackers.cli.app import app
from trackers.formats.csv_cell import FORMULA, csv_cell, guarded, unguarded

EVIL = ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK(1)", "-1,5x", "\ufeff=1",
        "\uff1d1+1", "\uff20SUM(A1)")  # fmt: skip


@pytest.mark.parametrize("text", EVIL)
def test_formula_is_made_a_text(text: str) -> None:
    """By an apostrophe before it, which spreadsheets don't show."""
    assert csv_cell(text) == "'" + text.replace("\r", "\n")


@pytest.mark.parametrize("value", [-1, 1.5, None, True, "-1.5e-3", "+7", "-inf", "loss", "a=b", "", "a-b", "1+1"])
def test_numbers_and_other_texts_stay(value: object) -> None:
    """A number is one as a text, too."""
    assert csv_cell(value) == value


@given(st.text("=+-@'\t\r\n\ufeff\uff0b1x", max_size=8) | st.text(max_size=8))
def test_no_text_begins_as_a_formula(text: str) -> None:
    """But for numbers; and what a table of ours holds is read as it was."""
    assert unguarded(guarded(text)) == text
    cell = csv_cell(text)
    if cell.startswith(FORMULA):
        float(cell)


def test_csv_of_commands_has_no_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, settings, metrics and cells of logged tables come from whoever made the run."""
    monkeypatch.chdir(tmp_path)
    rows = [[text, number] for number, text in enumerate(EVIL)]
    item = records.MediaFile(format="json", data={"columns": ["=a", "n"], "rows": rows})
    table = records.Media(name="t", type="table", time=T0, items=[item])
    write_run("one", [(1, 1.0, {"loss": 1.0})], name="=1+1", config={"lr": "=2+2"}, more=[table])
    for words in (
        ("compare", "one", "--format", "csv"), ("sql", "select name, value from config", "--format", "csv"),
        ("tables", "one", "t", "-o", "t.csv"), ("get", "one", "t", "-o", "files"),
    ):  # fmt: skip
        done = CliRunner().invoke(app, list(words), catch_exceptions=False)
        assert done.exit_code == 0, (words, done.output)
        written = [path.read_text() for path in tmp_path.rglob("*.csv")]
        for text in (done.stdout if "--format" in words else "", *written):
            for row in csv.reader(io.StringIO(text)):
                assert not [cell for cell in row if cell.startswith(("=", "+", "-", "@", "\t"))], (words, row)


def test_whoever_writes_csv_uses_it() -> None:
    """Here and in plugins/, so that no new table is left out."""
    places = [*(ROOT / "trackers").rglob("*.py"), *(ROOT / "plugins").glob("*/trackers_*/*.py")]
    writers = [path for path in places if "csv.writer(" in (text := path.read_text()) or "DictWriter(" in text]
    assert len(writers) >= 8
    assert [path.name for path in writers if path.read_text().count("csv_cell") < 2] == []
