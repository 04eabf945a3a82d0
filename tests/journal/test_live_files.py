"""Files that are kept while they are written: their last content, also of a run that was killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trackers
from tests import ROOT
from trackers.journal import live_files
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory
from trackers.records import ArtifactRecord, Record, decode
from trackers.relay import sync


def kept(path: Path, pattern: str = "rank-0.1.jsonl") -> dict[str, list[tuple[str, str]]]:
    """Content of the files that a run kept, by the name they were kept under."""
    found: dict[str, list[tuple[str, str]]] = {}
    lines = [line for stream in sorted(path.glob(f"streams/{pattern}")) for line in stream.read_bytes().splitlines()]
    for record in map(decode, lines):
        if isinstance(record, ArtifactRecord):
            assert not record.versioned
            files = [(file.path, (path / file.file).read_text()) for file in record.files]
            found.setdefault(record.name, []).extend(files)
    return found


CHANGES = ("append", "rewrite", "replace", "remove", "nothing")


def change(path: Path, how: str, number: int) -> None:
    if how == "append" and path.exists():
        with path.open("a") as file:
            file.write(f"{number}\n")
    elif how == "rewrite":
        path.write_text(f"again {number}\n")
    elif how == "replace":
        new = path.with_suffix(".new")
        new.write_text(f"new {number} {number}\n")
        os.replace(new, path)
    elif how == "remove":
        path.unlink(missing_ok=True)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from(CHANGES), max_size=4), min_size=1))
def test_last_content_of_a_file_is_kept(
    changes: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was done to it after ``save``: the last record has what it had at the end, or when it was removed."""
    shutil.rmtree(tmp_path, ignore_errors=True)
    tmp_path.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline")
    for name in changes:
        Path(name).write_text("first\n")
        run.save(name, policy="end" if name == "a" else "live")
        run.save(name, policy="now")
    last: dict[str, str] = {}
    for name, all_changes in changes.items():
        last[name] = "first\n"
        for number, how in enumerate(all_changes):
            change(Path(name), how, number)
            if Path(name).exists():
                last[name] = Path(name).read_text()
    replaced = {name for name, all_changes in changes.items() if {"replace", "rewrite"} & set(all_changes)}
    run.finish()
    found = kept(Path(run.path))
    for name, text in last.items():
        if Path(name).exists() or name not in replaced:  # what replaced it and was removed had no link yet
            assert found[name][-1] == (name, text)
        assert len(found[name]) <= 3
    assert not Path(run.path, live_files.LIVE).exists()


def test_policies_directories_and_files_that_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``now`` keeps the first content; what didn't change is kept once; a directory is kept again whole."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline")
    Path("out/deep").mkdir(parents=True)
    for name in ("now", "same", "odd", "out/deep/a", "out/b"):
        Path(name).write_text("1")
    run.save("now", policy="now")
    run.save("same")
    run.save("odd", policy="sometimes")
    run.save("out")
    for name in ("now", "odd", "out/deep/a"):
        Path(name).write_text("22")
    run.finish()
    assert kept(Path(run.path)) == {
        "now": [("now", "1")], "same": [("same", "1")], "odd": [("odd", "1"), ("odd", "22")],
        "out": [("b", "1"), ("deep/a", "1"), ("b", "1"), ("deep/a", "22")],
    }  # fmt: skip
    assert "policy='sometimes': live is taken; known are live, end, now" in capsys.readouterr().err


KILLED = """
import os, signal, trackers
from pathlib import Path
from trackers.journal import live_files
run = trackers.init("json", project="p", id="killed", mode="offline")
for name in ("log.csv", "replaced", "now", "same"):
    Path(name).write_text("first")
    run.save(name, policy="now" if name == "now" else "live")
Path(run.files_dir, "sub").mkdir()
Path(run.files_dir, "sub", "own").write_text("mine")
os.symlink("/etc/hostname", Path(run.files_dir, "elsewhere"))
for name in ("log.csv", "now"):
    Path(name).write_text("the last line")
Path("new").write_text("of another file")
os.replace("new", "replaced")
run._live._poll_at = 0
run._live.poll()
if os.fork() == 0:
    Path("child").write_text("1")
    run.save("child")
    os._exit(0)
os.wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_killed_run_has_the_last_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By links in its directory, out of which nothing leads; what the script put into ``files_dir`` is kept, too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER_RELAY": "n"}
    command = [sys.executable, "-c", KILLED]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    run = RunDirectory("runs/p/killed")
    folder = run.path / live_files.LIVE / "1"
    with (folder / live_files.INDEX).open("a") as index:
        index.write('{"name": "../out", "number": 8, "size": 1, "mtime_ns": 1}\n{"name": "x", "number": 77, "size": 0,')
        index.write(' "mtime_ns": 0}\n{"name": "leads/out", "number": 9, "size": 1, "mtime_ns": 1}\nno JSON\n{"torn')
    (folder / "8").write_text("of nobody")
    os.symlink("/etc/hostname", folder / "9")
    assert sync.record_crash(run, Lease(run.path / "relay.lease"))
    found = kept(run.path, "node-0.1.jsonl")
    assert found == {
        "log.csv": [("log.csv", "the last line")],
        "replaced": [("replaced", "of another file")],
        "files": [("sub/own", "mine")],
    }
    assert kept(run.path)["child"] == [("child", "1")]
    assert not folder.exists()


def test_what_cant_be_read_hinders_no_end(tmp_path: Path) -> None:
    """A run without links, and one whose index isn't there."""
    run = RunDirectory(tmp_path)
    records: list[Record] = [*live_files.of_killed(run, 1, 1.0)]
    (tmp_path / live_files.LIVE / "1").mkdir(parents=True)
    assert [*records, *live_files.of_killed(run, 1, 1.0)] == []
    live_files.forget(run, 1)
    live_files.forget(run, 1)


def test_folders_of_a_killed_run_that_are_links_lead_nowhere(tmp_path: Path) -> None:
    """A run that was unpacked may have any: nothing elsewhere is kept with it, and nothing deleted."""
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    (tmp_path / "photos/1").mkdir(parents=True)
    (tmp_path / "photos/1/a.jpg").write_text("precious")
    (run.path / live_files.LIVE).symlink_to(tmp_path / "photos")
    (run.path / live_files.FILES).symlink_to(tmp_path / "photos/1")
    assert live_files.of_killed(run, 1, 1.0) == []
    live_files.forget(run, 1)
    assert (tmp_path / "photos/1/a.jpg").read_text() == "precious"
    (run.path / live_files.FILES).unlink()
    (run.path / live_files.FILES).mkdir()
    (run.path / live_files.FILES / "sub").symlink_to(tmp_path / "photos/1")
    (run.path / live_files.FILES / "b.jpg").symlink_to(tmp_path / "photos/1/a.jpg")
    assert live_files.of_killed(run, 1, 1.0) == []
