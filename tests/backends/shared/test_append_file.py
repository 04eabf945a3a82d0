"""Files with one writer: exact after failures and kills, for the file itself and for the trackers built on it."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import ROOT, forked
from tests.helpers import Driver, run_info, stream, training
from trackers.backends.registry import load
from trackers.backends.shared.append_file import FileShrunk, OwnedFile, file_name, replace, unseen
from trackers.backends.shared.directory import check_directory
from trackers.errors import Fatal, Unavailable, UsageError
from trackers.records import Metrics, Record, Start

CHILD = """
import json, os, sys
from pathlib import Path
from tests.helpers import *
from tests.backends.shared.test_append_file import long_run
from trackers.backends.registry import load
name, directory = sys.argv[1], Path(sys.argv[2])
committed = directory / "committed.json"
known = json.loads(committed.read_text()) if committed.exists() else {"state": {}, "cursor": 0}
info = run_info(directory / "run", options={"JSON_SAVE_INTERVAL": 1})
run = Driver(load(name), info, known["state"], known["cursor"])
def commit():
    (directory / "new").write_text(json.dumps({"state": run.state, "cursor": run.cursor}))
    os.replace(directory / "new", committed)
    print(run.cursor, flush=True)
run.open()
commit()
records = long_run()
while run.cursor < records[-1].seq:
    run.write([r for r in records if run.cursor < r.seq <= run.cursor + 7])
    commit()
run.close()
commit()
"""


def long_run() -> list[Record]:
    """400 steps, with new names on the way and a rewind to step 150 after step 300."""
    records: list[Record] = [Start(time=1e9)]
    for step in range(301):
        names = ["train_loss", "lr", *(["gpu"] if step > 100 else []), *(["val_loss"] if step % 50 == 0 else [])]
        records.append(Metrics(step=step, time=1e9 + step, values=dict.fromkeys(names, step / 7)))
    records.append(Start(time=1e9 + 400, attempt=2, from_step=150))
    for step in range(151, 400):
        records.append(Metrics(step=step, time=1e9 + 400 + step, values={"train_loss": step / 3, "late": step}))
    return stream(records)


def content(directory: Path) -> dict[str, bytes]:
    """What users read: every file below the run's directory but the lists that the JSON log is made of."""
    return {path.name: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
            and path.suffix != ".part"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("most", [6, pytest.param(12, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["tensorboard", "json", "csv"])
def test_tracker_killed_at_any_moment_ends_with_exact_files(tmp_path: Path, name: str, most: int) -> None:
    """A delivery that SIGKILL ends again and again leaves, byte for byte, the files of one that nothing disturbed."""
    plain = Driver(load(name), run_info(tmp_path / "plain/run", options={"JSON_SAVE_INTERVAL": 1}))
    plain.deliver(long_run(), batch=7)
    directory = tmp_path / "killed"
    directory.mkdir()
    chance = random.Random(name)
    root = ROOT
    kills = 0
    while True:
        child = forked.Program(
            [sys.executable, "-c", CHILD, name, str(directory)],
            preload=forked.HELPERS,
            stdout=subprocess.PIPE,
            cwd=root,
            text=True,
        )
        assert child.stdout is not None
        commits = chance.randrange(1, 10)
        for _ in range(commits):
            child.stdout.readline()
        for _ in range(chance.randrange(20_000)):
            pass  # so that the kill falls anywhere between two commits
        if kills < most:
            child.kill()
            kills += 1
        child.communicate()
        for log in (directory / "run").glob("*.json"):
            json.loads(log.read_bytes())
        if child.returncode == 0:
            break
    assert kills >= 4
    assert content(directory / "run") == content(tmp_path / "plain/run")


@pytest.mark.heavy
@given(st.lists(st.tuples(st.binary(max_size=20), st.booleans()), max_size=20))
@settings(deadline=None, max_examples=50)
def test_file_is_what_was_committed(tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[bytes, bool]]) -> None:
    """Whatever was appended and whenever the writer dies, reopening gives the committed bytes."""
    path = tmp_path_factory.mktemp("owned") / "file"
    file = OwnedFile(path).open()
    committed = b""
    appended = b""
    for data, commit in pieces:
        file.append(data)
        appended += data
        if commit:
            committed = appended
        else:
            file = OwnedFile(path).open(len(committed))
            appended = committed
            assert path.read_bytes() == committed
    file.close()
    assert OwnedFile(path).open(len(committed)).length == len(committed)


def test_failed_write_leaves_the_former_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills in the middle of a write costs nothing, and the next append goes on where it should."""
    file = OwnedFile(tmp_path / "a/file").open()
    file.append(b"one")
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) <= 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data)[:-2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(Unavailable, match="No space left"):
        file.append(b"second")
    monkeypatch.undo()
    assert file.path.read_bytes() == b"one"
    file.append(b"two")
    assert file.path.read_bytes() == b"onetwo"
    file.truncate(3)
    file.sync()
    file.close()
    assert file.path.read_bytes() == b"one"


@pytest.mark.parametrize("name", ["tensorboard", "json", "csv"])
def test_tracker_survives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A batch that a full disk refused is taken whole when it comes again, and no half of it is seen before."""
    records = long_run()
    plain = Driver(load(name), run_info(tmp_path / "plain/run"))
    plain.deliver(records, batch=50)
    run = Driver(load(name), run_info(tmp_path / "full/run"))
    run.open()
    real, left = os.write, [0]

    def full(fd: int, data: bytes) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(fd, bytes(data)[: left[0]])
        left[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", full)
    refused = 0
    for space in (0, 10, 5_000, 3, 20_000, 100):
        left[0] = space
        try:
            run.write(records, batch=50)
        except Unavailable:
            refused += 1
    monkeypatch.undo()
    assert refused >= 4
    run.write(records, batch=50)
    run.close()
    assert content(tmp_path / "full/run") == content(tmp_path / "plain/run")


@pytest.mark.parametrize(("kind", "said"), [
    ("link", "is a link, which isn't followed; remove it"), ("pipe", "isn't a regular file; remove it"),
    ("folder", "Is a directory; remove it"),
])  # fmt: skip
def test_what_is_no_file_is_named_with_the_way_out(tmp_path: Path, kind: str, said: str) -> None:
    """A link isn't written through, a pipe not waited for, and a folder not tried again."""
    path = tmp_path / "rows.csv"
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(Fatal, match=said):
        OwnedFile(path).open(0)
    assert not (tmp_path / "elsewhere").exists()


def test_shorter_or_missing_file_is_damaged(tmp_path: Path) -> None:
    """A file that lacks committed bytes is never taken for whole."""
    with pytest.raises(FileShrunk):
        OwnedFile(tmp_path / "none").open(1)
    (tmp_path / "short").write_bytes(b"ab")
    with pytest.raises(FileShrunk):
        OwnedFile(tmp_path / "short").open(3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorboard", "json", "csv"])
def test_files_removed_while_they_are_written_come_back(tmp_path: Path, name: str) -> None:
    """Somebody tidies up while training runs: the tracker notices at the next batch, and makes them anew, whole."""
    options = {"JSON_SAVE_INTERVAL": 1, f"{name.upper()}_DIR": ""}
    records = long_run()
    plain = Driver(load(name), run_info(tmp_path / "plain/run", options=options))
    plain.deliver(records, batch=50)
    run = Driver(load(name), run_info(tmp_path / "tidied/run", options=options))
    run.open()
    run.write(records[:200], batch=50)
    shutil.rmtree(tmp_path / "tidied/run")
    with pytest.raises(FileShrunk):
        run.write(records, batch=50)
    run.deliver(records, batch=50)
    assert content(tmp_path / "tidied/run") == content(tmp_path / "plain/run")


def test_replace_keeps_the_old_file_when_it_fails(tmp_path: Path) -> None:
    """A replacement that breaks off leaves the file as it was, and no temporary one."""
    path, temporary = tmp_path / "new/a", tmp_path / "new/a.tmp"
    assert replace(path, temporary, [b"old", b"er"]) == 5

    def broken() -> object:
        yield b"new"
        raise OSError(errno.EIO, "bad disk")

    with pytest.raises(Unavailable, match="bad disk"):
        replace(path, temporary, broken())  # type: ignore[arg-type]
    assert [p.name for p in path.parent.iterdir()] == ["a"]
    assert path.read_bytes() == b"older"


def test_unseen_skips_what_was_taken() -> None:
    """Only numbers above the highest one taken are new; records without a number always are."""
    records = training(3)
    assert unseen(records, 0) == records
    assert [record.seq for record in unseen(records, 4)] == [5, 6]
    assert unseen([Metrics(time=0, values={})], 9) != []


@pytest.mark.slow
@given(st.text(max_size=300))
def test_file_name_is_one_valid_part_of_a_path(text: str) -> None:
    """Any text becomes a name that stays in its directory and that file systems take."""
    name = file_name(text)
    assert name
    assert name not in (".", "..")
    assert "/" not in name
    assert "\0" not in name
    assert len(name.encode("utf-8", "replace")) <= 120


def test_check_directory_names_what_is_in_the_way(tmp_path: Path) -> None:
    """A place that can't become a directory is an error before the first step; one to be made isn't."""
    check_directory({"D": str(tmp_path / "new/deep")}, "D")
    check_directory({}, "D")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is not a directory"):
        check_directory({"D": str(tmp_path / "file/x")}, "D")
    assert not list(tmp_path.glob(".trackers*"))
    if Path("/proc/self").exists():  # it looks writable to root, and isn't
        with pytest.raises(UsageError, match="can't be written"):
            check_directory({"D": "/proc/new"}, "D")
