"""Two accounts and one directory of runs: what the second one may do there, and what it leaves to the first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests import accounts
from tests.analysis.support import write_run
from tests.helpers import run_info
from tests.journal.test_trust import tree
from trackers.analysis import collect, run_files
from trackers.analysis.run_stats import RunStats
from trackers.backends.shared import kept_file, media_files
from trackers.copying import staging
from trackers.errors import TrackersError
from trackers.journal.run_directory import RunDirectory
from trackers.readers import logged_tables
from trackers.readers.reader import SourceRun
from trackers.records import MediaFile
from trackers.relay.delivery.cursor_file import read_account
from trackers.ui.media import shown_file

pytestmark = [
    pytest.mark.skipif(not accounts.possible(), reason="needs a second account: root, and mounts of its own"),
    pytest.mark.processes,
]
ROWS = [(step, step / 10, {"loss": 1 / step}) for step in range(1, 6)]
TRAIN = """
import sys, trackers
run = trackers.init("json", project="digits", id=sys.argv[1])
run.log({"loss": 0.5}, step=1)
run.finish(timeout=60)
print(run.status())
"""
Trackers = Callable[..., CompletedProcess[str]]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that everybody may enter; the working directory of this account."""
    path = Path(tempfile.mkdtemp(prefix="accounts-"))
    path.chmod(0o755)
    monkeypatch.chdir(path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture
def theirs(place: Path) -> Trackers:
    """``trackers`` of the second account, in the same directory."""
    return lambda *words, **more: accounts.run([sys.executable, "-m", "trackers", *words], more.get("at", place), place)


def ours() -> tuple[int, str]:
    """``trackers sync runs`` of this account: its exit code and what it said on stderr."""
    done = subprocess.run([sys.executable, "-m", "trackers", "sync", "runs", "--trust"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    return done.returncode, done.stderr


def shared(path: Path) -> None:
    """Let everybody write to all that lies there, as a group's directory is."""
    for each in (path, *path.rglob("*")):
        each.chmod(0o777 if each.is_dir() else 0o666)


def readable(path: Path) -> None:
    """Let everybody read all that lies there, and nobody else write."""
    for each in (path, *path.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)


@pytest.mark.slow
def test_runs_of_another_account_are_private(place: Path, theirs: Trackers) -> None:
    """What nobody shared isn't read, and one line says why nothing is there."""
    write_run("r", ROWS)
    for words in (("ls",), ("show", "r"), ("sql", "select count(*) as n from metrics"), ("sync",)):
        done = theirs(*words)
        assert "0.2" not in done.stdout
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "that you can read: 1 directories are their owners' alone (TRACKER_SHARE)" in done.stderr


@pytest.mark.slow
def test_runs_that_may_only_be_read(place: Path, theirs: Trackers) -> None:
    """They are listed, shown and queried; nothing of the second account lies there afterwards."""
    readable(write_run("r", ROWS))
    before = tree(place / "runs")
    assert theirs("ls").stdout.splitlines()[1].split()[:2] == ["r", "r"]
    assert "loss  0.2" in theirs("show", "r").stdout
    assert theirs("sql", "select count(*) as n from metrics").stdout.split() == ["n", "5"]
    assert theirs("compare", "r", "--format", "csv").returncode == 0
    assert tree(place / "runs") == before


@pytest.mark.slow
@pytest.mark.parametrize("part", [".", "delivery", "relay.log"])
def test_run_that_may_not_be_written_is_not_delivered(place: Path, theirs: Trackers, part: str) -> None:
    """One line at once says who owns what; a copy can be made; nothing changes."""
    run = write_run("r", ROWS)
    (run / "relay.log").touch()
    shared(run)
    (run / part).chmod(0o755 if (run / part).is_dir() else 0o644)
    before = tree(run)
    done = theirs("sync", "runs")
    name = (run / part).resolve().name
    assert done.returncode == 2
    assert done.stderr == (
        f"trackers: run runs/digits/r: nobody may not write to {name}, which belongs to root, and deliveries note "
        "there how far they are: have its owner deliver it, or deliver a copy: trackers copy runs/digits/r TRACKER\n"
    )
    own = place / "own"
    own.mkdir()
    shutil.chown(own, accounts.ACCOUNT)
    copied = theirs("copy", str(run.resolve()), "json", at=own)
    assert (copied.returncode, "agrees" in copied.stdout) == (0, True), copied.stderr
    assert tree(run) == before


@pytest.mark.slow
@pytest.mark.parametrize("words", [["sync"], ["sync", "--verify"]])
def test_stream_that_may_not_be_read_is_named_at_once(place: Path, theirs: Trackers, words: list[str]) -> None:
    """Nobody waits for what no process of the account can read, and nothing says that it isn't damaged."""
    run = write_run("r", ROWS)
    stream = next((run / "streams").glob("rank-0.*.jsonl"))
    shared(run)
    stream.chmod(0)
    done = theirs(*words, "runs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"trackers: run runs/digits/r: nobody may not read {stream.name}, which belongs to root, and deliveries need "
        "every stream: have its owner let it be read (chmod), then again\n"
    )


@pytest.mark.slow
def test_run_whose_ending_may_not_be_read_is_not_watched_or_removed(place: Path, theirs: Trackers) -> None:
    """One line at once names the file, whoever began the run and wherever."""
    run = write_run("r", ROWS)
    shared(place / "runs")
    stream = run / "streams/rank-0.1.jsonl"
    stream.chmod(0)
    done = theirs("rm", "r", "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"stays as it is: nobody may not read {stream}, which belongs to root" in done.stderr
    assert "watching" not in done.stderr


@pytest.mark.slow
def test_tracker_whose_progress_may_not_be_read_is_not_said_to_lack_the_run(place: Path, theirs: Trackers) -> None:
    """Who removes the run is told that it stays there, and why."""
    run = write_run("r", ROWS)
    assert ours() == (0, "")
    shared(place / "runs")
    (run / "delivery/json.json").chmod(0o600)
    done = theirs("rm", "r", "--yes")
    assert done.returncode == 1
    assert "json: not removed there: [Errno 13] Permission denied: " in done.stderr
    assert "delivery/json.json'" in done.stderr


@pytest.mark.slow
def test_delivered_run_that_may_only_be_read_is_no_error(place: Path, theirs: Trackers) -> None:
    """There is nothing to do."""
    run = write_run("r", ROWS)
    assert ours() == (0, "")
    readable(run)
    before = tree(place / "runs")
    done = theirs("sync", "runs")
    assert (done.returncode, done.stderr) == (0, "")
    assert tree(place / "runs") == before


@pytest.mark.slow
def test_shared_run_is_delivered_by_either(place: Path, theirs: Trackers) -> None:
    """By the second account to places of its own configuration, whatever the run's says; then by its owner again."""
    run = write_run("r", ROWS, options={"JSON_DIR": str(place / "elsewhere")}, cwd=str(place))
    (place / "elsewhere").mkdir(mode=0o777)
    shared(run)
    done = theirs("sync", "runs")
    assert done.returncode == 0, done.stderr
    assert "your own trackers didn't write it, so JSON_DIR comes from your configuration" in done.stderr
    assert not list((place / "elsewhere").iterdir())
    (log,) = run.glob("*_20*.json")
    assert log.stat().st_uid != 0
    assert json.loads(log.read_bytes())["summary"]["status"] == "finished"
    assert ours() == (0, "")
    assert read_account(RunDirectory(run), "json").delivered == 7


@pytest.mark.slow
def test_training_in_a_directory_of_all(place: Path) -> None:
    """Two accounts train side by side in one ``runs``: each in its project's folder, or told which it can't use."""
    runs = place / "runs"
    runs.mkdir()
    runs.chmod(0o1777)
    (place / "train.py").write_text(TRAIN)
    done = accounts.run([sys.executable, "train.py", "first"], place, place)
    assert done.returncode == 0, done.stderr
    assert "'delivered'" in done.stdout
    (runs / "digits").chmod(0o755)
    shutil.chown(runs / "digits", "root")
    done = accounts.run([sys.executable, "train.py", "second"], place, place)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("trackers.errors.UsageError: ")
    assert str(Path("runs/digits")) in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_what_the_second_account_plants_is_not_followed(place: Path, theirs: Trackers) -> None:
    """In a directory of all it puts links in place of the owner's files: the owner's sync writes nowhere else."""
    run = write_run("r", ROWS)
    shared(run)
    victim = place / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    for name in ("relay.log", "messages.jsonl", "delivery/json.json"):
        done = accounts.run(["ln", "-s", str(victim), str(run / name)], place, place)
        assert done.returncode == 0, done.stderr
        code, said = ours()
        assert (code, "is a link, and no process can use it" in said) == (2, True)
        os.unlink(run / name)
    assert victim.read_text() == "precious"
    assert ours() == (0, "")


SWAPPED = """
import sys, time, trackers
run = trackers.init("json,csv", project="digits", id="r", options={"TRACKER_AGENT": False})
run.log({"loss": 0.5}, step=1)
print("begun", flush=True)
input()
for step in range(2, 400):
    run.log({"loss": 0.5, f"new/{step}": step}, step=step)
    time.sleep(0.005)
run.log({"picture": trackers.Html("<p>mine</p>")}, step=400)
run.finish(timeout=3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["run", "project"])
def test_run_that_another_account_swaps_for_a_link_leads_nowhere(level: str, place: Path) -> None:
    """In a project's folder that others can write to, while training runs: nothing of it is written where the link
    leads, and training goes on."""
    (place / "runs/digits").mkdir(parents=True)
    shared(place / "runs")
    victim = place / "victim"
    (victim / "r").mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", SWAPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training:
        assert training.stdin is not None
        assert training.stdout is not None
        assert training.stdout.readline() == b"begun\n"
        at, target = ("runs/digits/r", "victim/r") if level == "run" else ("runs/digits", "victim")
        aside = (place / at).with_name(".moved")
        swap = f"mv {place}/{at} {aside} && ln -s {place}/{target} {place}/{at}"
        assert accounts.run(["sh", "-c", swap], place, place).returncode == 0
        training.stdin.write(b"\n")
        training.stdin.close()
        assert training.wait(60) == 0
    assert list((victim / "r").iterdir()) == []
    os.unlink(place / at)
    aside.rename(place / at)
    code, _ = ours()
    assert code == 0


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True])
def test_run_in_sticky_folders_is_replaced_by_nobody_else(sticky: bool, place: Path) -> None:
    """Who can write to a project's folder moves another account's run aside, unless its sticky bit is set."""
    run = write_run("r", ROWS)
    for folder in (run.parent, run.parent.parent):
        folder.chmod(0o1777 if sticky else 0o777)
    for path in (run, run.parent):
        done = accounts.run(["mv", str(path), f"{path}.moved"], place, place)
        assert (done.returncode != 0, path.is_dir()) == (sticky, sticky), done.stderr
        if not sticky:
            Path(f"{path}.moved").rename(path)


def _shown(link: Path) -> object:
    return shown_file("media/key.txt", "txt", "html", link, "key")


def _delivered(link: Path) -> object:
    return media_files.path(run_info(link), MediaFile(file="media/key.txt", format="txt"))


def _delivered_whole(link: Path) -> object:
    return media_files.content(run_info(link), MediaFile(file="media/key.txt", format="txt"))


def _kept(link: Path) -> object:
    kept = link.parent / "tracker/key.txt"
    kept_file.keep(run_info(link), link / "media/key.txt", kept, link.parent / "tracker", Path(".part-"))
    return kept.read_text()


def _copied(link: Path) -> object:
    run = SourceRun(source="r", id="r", directory=str(link))
    name = staging._copy_file(run, "media/key.txt", RunDirectory(link.parent / "copy"))
    return (link.parent / "copy" / name).read_text()


def _fetched(link: Path) -> object:
    return run_files._open_file("media/key.txt", link)


def _tabled(link: Path) -> object:
    return logged_tables.payload(MediaFile(file="media/key.txt", format="json"), link)


@pytest.mark.parametrize("reads", [_shown, _delivered, _delivered_whole, _kept, _copied, _fetched, _tabled])
def test_files_behind_a_link_that_came_later_are_not_the_runs(reads: Callable[[Path], object], place: Path) -> None:
    """A run names a file, and its directory becomes another account's link to a folder of this one that has such a
    file: nobody shows, delivers or copies that."""
    (place / "own/media").mkdir(parents=True)
    (place / "own/media/key.txt").write_text('"private"')
    (place / "copy").mkdir()
    (place / "tracker").mkdir()
    link = place / "r"
    link.symlink_to(place / "own")
    reads(link)
    os.lchown(link, 65534, 65534)
    for made in (place / "copy", place / "tracker"):
        shutil.rmtree(made)
        made.mkdir()
    with pytest.raises((TrackersError, OSError)):
        reads(link)
    assert not any(file.is_file() for made in ("copy", "tracker") for file in (place / made).rglob("*"))


def test_run_that_becomes_a_link_after_it_was_found_is_not_summed_up(place: Path) -> None:
    """compare and sql find runs first, and read them then: what came in a run's place meanwhile isn't read."""
    own = write_run("own", ROWS, root=place / "private")
    link = place / "runs/p/r"
    link.parent.mkdir(parents=True)
    link.symlink_to(own)
    ((found,), problems) = collect._own_runs([RunDirectory(link)], {}, RunStats)
    assert (found.source, problems) == (str(own), [])
    os.lchown(link, 65534, 65534)
    shutil.rmtree(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", ignore_errors=True)
    found_now, problems = collect._own_runs([RunDirectory(link)], {}, RunStats)
    assert found_now == []
    assert "another account's link" in problems[0]
