"""``trackers ls`` looks only at what changed, and never shows what isn't so any more."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests.analysis.support import T0, write_run
from tests.helpers import keep_silent
from trackers import records
from trackers.analysis import run_list as module
from trackers.analysis import run_table
from trackers.analysis.run_list import RunLine, listing
from trackers.journal.fingerprint_cache import FingerprintCache, fingerprint_of
from trackers.journal.run_directory import RunDirectory, find_runs, project_folder, replace_file
from trackers.records import Finish, Metrics, Start
from trackers.relay.sync import runs_below
from trackers.support.machines import boot_id, host

ROOT = Path("runs")


def age(run: Path, seconds: float = 100.0) -> None:
    """Let a run's files be older than the moments in which a change could be missed."""
    for path in (run, run / "run.json", run / "delivery", run / "streams", *run.glob("streams/*")):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def lines() -> list[RunLine]:
    """What is listed."""
    return listing(ROOT).lines


@pytest.fixture
def run() -> Path:
    """A finished run that nothing has touched for a while."""
    path = write_run("one", [(1, 1, {"loss": 1.0}), (2, 2, {"loss": 0.5})])
    age(path)
    return path


def test_unchanged_runs_are_not_read_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second listing reads no run, and says the same."""
    first = lines()
    assert (first[0].id, first[0].status, first[0].step, first[0].last) == ("one", "finished", 2, {"loss": 0.5})
    monkeypatch.setattr(module, "glance", lambda run: pytest.fail("read again"))
    assert lines() == first


def test_fresh_runs_are_read_each_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written a moment ago may change unseen: it isn't kept."""
    age(run, 0.0)
    lines()
    seen: list[Any] = []
    real = module.glance
    monkeypatch.setattr(module, "glance", lambda run: seen.append(run) or real(run))
    lines()
    assert len(seen) == 1


def test_a_line_more_is_seen(run: Path) -> None:
    """A run that went on shows its new values and state, though it was kept as it was."""
    lines()
    with (run / "streams/rank-0.1.jsonl").open("ab") as stream:
        stream.write(records.encode(Metrics(step=9, time=T0 + 9, values={"loss": 0.1})))
        stream.write(records.encode(Finish(time=T0 + 10, status="failed", exit_code=1)))
    age(run, 50)
    assert (lines()[0].status, lines()[0].step, lines()[0].last) == ("failed", 9, {"loss": 0.1})


def test_streams_that_come_and_go_are_seen(run: Path) -> None:
    """Which streams there are isn't read again while their directory is as it was: another one changes it."""
    lines()
    more = run / "streams/rank-0.2.jsonl"
    more.write_bytes(records.encode(Start(time=T0 + 20, rank=0, pid=1, attempt=2))
                     + records.encode(Metrics(step=7, time=T0 + 21, values={"loss": 0.2}))
                     + records.encode(Finish(time=T0 + 22, status="failed", exit_code=1)))  # fmt: skip
    age(run, 50)
    assert (lines()[0].status, lines()[0].step) == ("failed", 7)
    more.unlink()
    age(run, 40)
    assert (lines()[0].status, lines()[0].step) == ("finished", 2)


@pytest.mark.parametrize("name", ["a b 1:2:3:4.jsonl", "\udcff.jsonl", ":::", "x"])
def test_print_is_the_same_with_and_without_an_earlier_one(run: Path, name: str) -> None:
    """Of any names; an earlier print of another run, or none that makes sense, changes nothing."""
    (run / "streams" / name).write_bytes(b"")
    age(run)
    mark = fingerprint_of(run, deliveries=True)
    assert mark
    for known in (mark, mark + " ", mark.rpartition(" ")[0], mark[:-1], "x", fingerprint_of(run), mark + " gone:1:2:3"):
        assert fingerprint_of(run, deliveries=True, known=known) == mark


def test_a_delivery_is_seen(run: Path) -> None:
    """What a tracker got since shows, though the run itself didn't change."""
    assert lines()[0].trackers["json"].state == "not begun"
    size = (run / "streams/rank-0.1.jsonl").stat().st_size
    account = {"offsets": {"rank-0.1": size}, "delivered": 4, "time": T0, "closed": "finished"}
    replace_file(run / "delivery/json.json", json.dumps(account).encode())
    os.utime(run / "delivery", (time.time() - 50, time.time() - 50))
    assert lines()[0].trackers["json"] == ("delivered", 0, 0, "")


def test_a_changed_identity_and_a_deleted_run_are_seen(run: Path) -> None:
    """A run that got another name shows it; one that was deleted is gone, from what is kept, too."""
    lines()
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"name": "one"', '"name": "other"'))
    age(run, 50)
    assert [line.name for line in lines()] == ["other"]
    os.rename(run, "elsewhere")
    assert lines() == []


def test_running_run_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose process lives is looked at each time: it may die without a word."""
    from trackers.support.processes import process_start

    me = {"pid": os.getpid(), "pid_start": process_start(os.getpid()), "host": host(), "boot_id": boot_id()}
    path = write_run("one", [(1, 1, {"loss": 1.0})], status="running", **me)
    age(path)
    assert lines()[0].status == "running"
    monkeypatch.setattr("trackers.support.processes.alive", lambda pid, start: False)
    assert lines()[0].status == "crashed"


def test_run_elsewhere_that_may_be_gone_is_marked() -> None:
    """Its files are old and nothing was watched yet: the table says that it isn't known, and filters find it."""
    path = write_run("one", [(1, 1, {"loss": 1.0})], status="running", host="node7", boot_id="b", pid=1)
    age(path, 500)
    (line,) = lines()
    assert (line.status, line.doubtful) == ("running", True)
    shown = run_table.table([line], "name,status", run_table.Glances())
    assert shown.rows == [["one", "running?"]]
    keep_silent(RunDirectory(path), 121)
    assert [(line.status, line.doubtful) for line in lines()] == [("crashed", False)]


def test_projects_order_and_damage(run: Path) -> None:
    """The oldest comes first, one project can be chosen, an unreadable run is named, all beside each other."""
    write_run("two", created=T0 - 100, project="other")
    three = Path(write_run("three"))
    (three / "run.json").write_text("{")
    shutil.rmtree(three / "streams")
    found = listing(ROOT)
    assert [line.id for line in found.lines] == ["two", "one"]
    assert len(found.problems) == 1
    assert "three" in found.problems[0]
    assert [line.id for line in listing(ROOT, "other").lines] == ["two"]
    assert [line.id for line in listing(run).lines] == ["one"]
    assert listing(Path("nowhere")).lines == []


def test_project_in_a_hidden_folder_is_listed(run: Path) -> None:
    """A project's folder may begin with a dot; a run that is being deleted and ranks' own folders are no runs."""
    for place in ("..%2Fevil/two", ".ranks/two", "digits/.two.deleting"):
        shutil.copytree(run, ROOT / place)
    assert [str(found.path.relative_to(ROOT)) for found in find_runs(ROOT)] == ["..%2Fevil/two", "digits/one"]
    assert len(listing(ROOT).lines) == 2
    assert [project_folder(name) for name in (".a", "..", "../a", "a.b")] == ["%2Ea", "%2E%2E", "%2E.%2Fa", "a.b"]


@pytest.mark.parametrize("place", ["loop", "digits/loop", "digits/.artifacts", "digits/one/loop"])
def test_link_to_itself_hides_no_run(run: Path, place: str) -> None:
    """Who can write to a directory of runs can put one there, which the system refuses to look at."""
    (ROOT / place).symlink_to(Path(place).name)
    assert [found.path.name for found in find_runs(ROOT)] == ["one"]
    assert [found.path.name for found in runs_below(ROOT)] == ["one"]
    assert len(listing(ROOT).lines) == 1


@pytest.mark.parametrize("field", ["state", "verified"])
def test_state_of_a_delivery_that_is_nested_without_end_is_none(run: Path, field: str) -> None:
    """It is read as a damaged one is: the run is listed and shown as JSON."""
    deep = "[" * 900 + "]" * 900
    (run / "delivery").mkdir(exist_ok=True)
    (run / "delivery/json.json").write_text(f'{{"tracker": "json", "{field}": {{"a": {deep}}}}}')
    assert "[[" not in json.dumps(module.overview(RunDirectory(run)).to_dict())


def test_damaged_or_unwritable_shelf_is_an_empty_one(run: Path, tmp_path: Path) -> None:
    """What is kept may be garbage, or the place may refuse: the listing is right all the same."""
    expected = lines()
    (shelf,) = Path(os.environ["XDG_CACHE_HOME"], "trackers/shelves").iterdir()
    for content in (b"", b"\xff\x00garbage", shelf.read_bytes()[:-5]):
        shelf.write_bytes(content)
        assert lines() == expected
    os.environ["XDG_CACHE_HOME"] = "/proc/nothing"
    assert lines() == expected


def test_real_run_is_listed_as_it_ends() -> None:
    """A run made by ``init`` is listed with its name and last values."""
    real = trackers.init("json", project="p", name="real", mode="offline", options={"TRACKER_RELAY": False})
    real.log({"loss": 2.0}, step=3)
    real.finish()
    (line,) = lines()
    assert (line.name, line.status, line.step, line.last) == ("real", "finished", 3, {"loss": 2.0})


def test_what_no_file_can_hold_is_read_again() -> None:
    """A value that can't be kept keeps nothing else from being kept, and raises nothing."""
    shelf = FingerprintCache("key", "1")
    shelf.put("a", "mark", "\ud800")
    shelf.put("b", "mark", "text")
    shelf.save()
    again = FingerprintCache("key", "1")
    assert (again.get("a", "mark", str), again.get("b", "mark", str)) == (None, "text")
    assert again.get("b", "other mark", str) is None
    assert again.get("b", "mark", int) is None
    assert FingerprintCache("key", "2").get("b", "mark", str) is None


def test_value_has_its_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where steps go back, or a metric is logged seldom: no value gets another's step, and a run the highest one."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", project="p", id="own", inline=True)
    for step, values in ((7, {"loss": 0.5, "val": 1.0}), (9, {"loss": 0.25}), (3, {"late": 2.0})):
        run.log(values, step=step)
    run.finish()
    view = module.overview(RunDirectory(Path(run.path)))
    assert (view.step, view.steps["loss"], view.steps["val"], view.steps["late"]) == (9, 9, 7, 3)
    assert [line.step for line in lines()] == [9]
