"""Formats of a user's own: what they read, what they refuse, and that no log makes them hang."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_log_programs import rows
from trackers_console_logs import own_format
from trackers_console_logs.own_format import LIMITS, VARIABLE, load, overlaps
from trackers_console_logs.reader import LogReader
from typer.testing import CliRunner

import trackers
from trackers.cli.app import app
from trackers.errors import UsageError
from trackers.records import Finish, Start

MINE = r"""
name = "mine"

[names]
l = "train_loss"
t = "perf/iter_s"
acc = "accuracy"

[units]
t = "seconds"

[[line]]
pattern = '^it (?P<step>\d+): '
like = '^it \d'
rest = "key=value, key=value"

[[line]]
kind = "validation"
pattern = ['^valid after (?P<step>\d+)', 'acc (?P<acc>[\d.]+)$']

[[line]]
kind = "resume"
pattern = '^loaded '

[[line]]
kind = "end"
pattern = '^bye$'
"""
LOG = """2026-03-01 10:00:00 starting
it 10: l=2.5, new=1, t=1500ms
it 20: l=2.25, t=1.5s
it 30 l=2.0
it 40: l=2.0, t=oh
valid after 10 with care: acc 0.75
loaded x
it 20: l=1.25, t=1.5s
bye
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_log_of_a_format_is_read_whole(mine: Path, tmp_path: Path) -> None:
    """Names, units, validation, a restart with its evidence, the end; what else looks like a row is counted."""
    log = tmp_path / "a.log"
    log.write_text(LOG)
    (run,) = LogReader().runs(str(log))
    records = list(LogReader().read(run))
    assert rows(records) == {
        10: {"train_loss": 2.5, "perf/iter_s": 1.5, "new": 1, "accuracy": 0.75},
        20: {"train_loss": 1.25, "perf/iter_s": 1.5},
    }
    assert [record.from_step for record in records if isinstance(record, Start)] == [None, 19]
    assert [record.status for record in records if isinstance(record, Finish)] == ["finished"]
    assert "read 4 of 6 rows; 2 not understood, first at line 4: it 30 l=2.0" in trackers.load(f"log:{log}").run.note


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = [", "own.toml: "),
        ("nam = 'x'", "unknown key 'nam': did you mean 'name'"),
        ("name = 'x'", r"no \[\[line\]\]"),
        ("names = 1\n[[line]]\npattern = 'a'", r"\[names\] is a table of texts"),
        ("units = {a = 'hours'}\n[[line]]\npattern = 'a'", "unknown unit 'hours' of 'a'"),
        ("steps_per_epoch = 'a'\n[[line]]\npattern = '(?P<step>a)'", "whole numbers"),
        ("[[line]]\npattern = 'a'", r"\[\[line\]\] 1: a line of training needs a group"),
        ("[[line]]\nkind = 'end'\npattern = 'a'", 'no .* of kind "train"'),
        ("[[line]]\nkind = 'trian'\npattern = 'a'", "unknown kind 'trian'"),
        ("[[line]]\nrest = 'x'\npattern = '(?P<step>a)'", "unknown rest 'x'"),
        ("[[line]]\npattern = 3", "pattern is a regular expression"),
        ("[[line]]\npattern = '(?P<step>'", "is no regular expression"),
        ("[[line]]\npattern = '(?P<step>1)'\nlike = 3", "like is a regular expression"),
        ("[[line]]\npattern = '(?P<step>(a+)+)b'", "could take for ever"),
        ("[[line]]\npattern = '(?P<step>.*).*.*b'", "could take for ever"),
    ],
)
def test_mistake_in_a_format_is_named(content: str, message: str, tmp_path: Path) -> None:
    """With the file, the place and what is allowed."""
    path = tmp_path / "own.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        load(path)
    with pytest.raises(UsageError, match="can't be read"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("abc", 0), ("a+b", 1), ("a+a+b", 2), ("a+ba+", 1), ("a*b*a*", 2), (".*x.*", 2), ("(a|b+)c", 1),
        ("a{1,4}", 0), ("(?:ab)+", own_format.NESTED), (r"(a)\1", own_format.NESTED), ("(?=a+)a+", 1),
    ],
)  # fmt: skip
def test_repetitions_that_take_the_same_are_counted(pattern: str, most: int) -> None:
    """By what a line's time grows with."""
    assert overlaps(re.compile(pattern.encode())) >= most
    if most == own_format.NESTED:
        assert overlaps(re.compile(pattern.encode())) not in LIMITS


def test_log_that_takes_too_long_ends_in_one_line(mine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names the program and where it stood."""
    monkeypatch.setattr(own_format, "PATIENCE_S", 0.0)
    log = tmp_path / "a.log"
    log.write_text(LOG)
    with pytest.raises(UsageError, match="the patterns of mine worked for 0 s up to line 1"):
        trackers.load(f"log:{log}").keys()


def test_commands_with_sources_take_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`keys` reads the log with the option, and refuses it without."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("TRACKER_DIR", str(tmp_path / "runs"))
    path, log = tmp_path / "mine.toml", tmp_path / "a.log"
    path.write_text(MINE)
    log.write_text(LOG)
    found = CliRunner().invoke(app, ["keys", f"log:{log}", "--log-format", str(path)])
    assert found.exit_code == 0, found.output
    assert "train_loss" in found.output
    assert "mine" in found.output
    monkeypatch.delenv(VARIABLE, raising=False)
    assert CliRunner().invoke(app, ["keys", f"log:{log}"]).exit_code != 0
