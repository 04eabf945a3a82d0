"""A locale that says ASCII (``LC_ALL=C``) and names that aren't: everything arrives under the names that it has."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores import read_tensorboard
from trackers.journal.run_directory import find_runs
from trackers.records import escaped
from trackers.relay.delivery.cursor_file import read_account

PROJECT, NAME, METRIC = "prüf 🚀", "läuf 🙂", "verlust/größe 🙂"
FILES = ["json", "csv", "tensorboard", "progress", "benchmark"]
VERIFIED = ["json", "csv", "tensorboard", "benchmark"]
SCRIPT = """
import sys, trackers
assert sys.getfilesystemencoding() == "ascii"
files = sys.argv[2].split(",")
for inline, names in ((True, f"{sys.argv[2]},console"), (False, "json,csv,trackio")):
    place = "in" if inline else "by"
    options = {f"{name}_DIR": f"{place}/{name.lower()}ß🙂"
               for name in map(str.upper, files)}
    run = trackers.init(trackers=names, project="prüf 🚀", name=sys.argv[1], id=place, group="grüppe 🙂", notes="größe",
                        tags=["täg", "🙂"], config={"übung": "ß🙂", "seen": sys.argv[1]}, options=options,
                        inline=inline, dir="läufe")
    for step in range(12):
        run.log({"verlust/größe 🙂": float(step), "loss": 1.0, "note": "tëxt 🙂"}, step=step)
    run.summary["bést"] = 1.0
    run.finish(timeout=100)
"""


def test_run_under_an_ascii_locale_keeps_every_name(tmp_path: Path) -> None:
    """Names, tags, metrics, options and the directory itself: in every tracker's files, delivered inside training or by
    the relay, and on the command line."""
    home = tmp_path / "größe 🙂"
    home.mkdir()
    (home / "träin.py").write_text(SCRIPT, "utf-8")
    ascii_only = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    ascii_only |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "TRACKIO_DIR": str(home / "trackio")}
    ascii_only.pop("PYTHONIOENCODING", None)

    def start(*command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([sys.executable, *command], cwd=home, env=ascii_only, capture_output=True, timeout=200)

    done = start("träin.py", NAME, ",".join(FILES))
    assert done.returncode == 0, done.stderr.decode()
    assert b"not delivered" not in done.stderr, done.stderr.decode()
    runs = {run.path.name: run for run in find_runs(home / "läufe")}
    for place, run in runs.items():
        info = run.read_info()
        assert (info.name, info.project, info.group, info.tags) == (NAME, PROJECT, "grüppe 🙂", ["täg", "🙂"])
        assert (info.config, info.cwd) == ({"übung": "ß🙂", "seen": NAME}, str(home))
        for name in info.trackers:
            assert read_account(run, name).closed == "finished", name
        (log,) = (home / place / "jsonß🙂").iterdir()
        assert log.name.startswith(f"{NAME}_")
        document = json.loads(log.read_text("utf-8"))
        assert [row[METRIC] for row in document["training_iterations"]] == [float(step) for step in range(12)]
        assert read_account(run, "json").state["url"] == str(log)
        table = home / place / "csvß🙂" / f"{NAME}-{place}" / "metrics.csv"
        with table.open(encoding="utf-8", newline="") as file:
            assert METRIC in next(csv.reader(file))
    info = runs["in"].read_info()
    stored = read_tensorboard(info, directory=home / f"in/tensorboardß🙂/{PROJECT}/{NAME}")
    assert len(stored.metrics[METRIC]) == 12
    assert {path.name for path in (home / "in").iterdir()} == {f"{name}ß🙂" for name in FILES}
    (database,) = (home / "trackio").glob("*.db")
    connection = sqlite3.connect(database)
    assert connection.execute("SELECT DISTINCT run_name FROM metrics").fetchall() == [(NAME,)]
    connection.close()

    ascii_only["TRACKER_DIR"] = "läufe"
    listed = start("-m", "trackers", "ls").stdout.decode("utf-8")
    assert {tuple(line.split()[:3]) for line in listed.splitlines()[1:]} == {
        (*NAME.split(), place) for place in ("in", "by")
    }
    assert METRIC in listed.splitlines()[0]
    again = start("-m", "trackers", "sync", "in", "--to", ",".join(VERIFIED), "--verify")
    assert again.returncode == 0, again.stderr.decode()
    assert again.stdout.decode("utf-8").count("all as it was written") == len(VERIFIED)


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8")))
def test_text_that_the_locale_split_into_bytes_is_whole_again(text: str) -> None:
    """What Python gives for UTF-8 under an ASCII locale becomes the text that it stands for; other bytes are named."""
    assert escaped(text.encode().decode("ascii", "surrogateescape")) == text
    assert escaped(f"{text}\udce9") == f"{text}\\udce9"


def test_helpers_speak_utf8_whatever_the_locale_says() -> None:
    """The relay's processes get Python's UTF-8 mode."""
    from trackers.journal.helper_process import environment

    assert environment({"LC_ALL": "C", "PYTHONUTF8": "0"})["PYTHONUTF8"] == "1"
