"""A store's catalogue: what lists ask for, and that they say what the runs say, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trackers_lake import catalogue
from trackers_lake.catalogue import MOST_NUMBER, PACKS, Catalogue, Head, Pack, encoded
from trackers_lake.store_reader import StoreReader
from typer.testing import CliRunner, Result

from tests import ROOT, forked
from tests.analysis.support import T0, write_run
from tests.fakes.counting_s3 import CountingS3
from trackers import records
from trackers.analysis import source_list
from trackers.backends.storage import tracker as storage
from trackers.cli.app import app
from trackers.errors import NotFound, Refused, Unavailable
from trackers.journal.run_directory import RunDirectory
from trackers.object_storage import layout, removal
from trackers.object_storage.layout import Piece
from trackers.object_storage.store import Store
from trackers.readers.journal import JournalReader, source_run
from trackers.readers.registry import open_source
from trackers.records import Finish, Info, Metrics, Start
from trackers.relay.delivery.delivery import Delivery
from trackers.support import failpoints
from trackers.testing import check_reader
from trackers.tracker import Status

OWN = Path("own")
"""Where the machine that trains has its runs."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Caches of its own, and no point at which it fails left over."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    failpoints.arm("")


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def trained(
    run_id: str, where: str, steps: int = 3, status: str = "finished", ranks: int = 1, project: str = "digits"
) -> RunDirectory:
    """A run of this machine, not sent yet."""
    rows = [(step, step, {"loss": 1 / (step + 1)}) for step in range(steps)]
    path = write_run(
        run_id, rows, status=status, world_size=ranks, root=OWN, trackers=["storage"], summary={"acc": steps / 10},
        config={"lr": 0.1}, project=project, options={"TRACKER_DIR": where, "TRACKER_STORE_EVERY": 1},
    )  # fmt: skip
    return RunDirectory(path)


def send(run: RunDirectory) -> None:
    """Deliver a run to the store as far as it has got: to its end, where it has ended."""
    delivery = Delivery(run, "storage", say=lambda text: None, alone=False)
    while delivery.step() is not None and delivery._has_ended():
        pass


def append(run: RunDirectory, attempt: int, *lines: records.Record, writer: str = "rank-0") -> None:
    with (run.streams / f"{writer}.{attempt}.jsonl").open("ab") as file:
        file.write(b"".join(map(records.encode, lines)))


def resumed(run: RunDirectory, attempt: int, steps: int) -> None:
    """Begin another attempt of a run, which goes on."""
    begin = T0 + 1000 * attempt
    rows = [Metrics(step=step, time=begin + step, values={"loss": float(attempt + step)}) for step in range(3, steps)]
    append(run, attempt, Start(time=begin, rank=0, world_size=1, pid=1), *rows)


def listed(where: str) -> dict[str, tuple[str, float, list[str]]]:
    """Status, last loss and tags of each run, as a list shows them on a machine that has read nothing before."""
    shutil.rmtree("cache", ignore_errors=True)
    try:
        views = source_list.overviews([f"store:{where}"], print)
    except NotFound:
        return {}
    return {view.info.id: (view.status.name, view.last["loss"], list(view.info.tags)) for view in views}


def kept(where: str) -> set[str]:
    """Ids of the runs that a list doesn't read."""
    return {home.partition("/")[2] for home in Catalogue(where).look().heads}


def marked(where: str) -> set[str]:
    return {home.partition("/")[2] for home in Catalogue(where).marks()}


def run_cli(*words: str) -> Result:
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == 0, done.exception
    return done


def small(store: Store, home: str, number: int) -> None:
    """A run that has ended, in few objects."""
    project, _, run_id = home.partition("/")
    info = {"id": run_id, "name": f"run {number}", "project": project, "created": T0 + number, "trackers": ["storage"]}
    lines = [Start(time=T0, rank=0, world_size=1, pid=1), records.Config(time=T0, values={"lr": 0.1 * number}),
             *(Metrics(step=step, time=T0 + step, values={"loss": number + step}) for step in range(3)),
             records.Summary(time=T0, values={"final/acc": number}),
             Finish(time=T0 + 3, status="finished", exit_code=0)]  # fmt: skip
    content = b"".join(map(records.encode, lines))
    store.put(f"{home}/streams/rank-0.1.jsonl/{Piece.of(0, content)}", content)
    store.put(f"{home}/run.json", msgspec.json.encode(info))
    store.put(f"{home}/delivery/storage.json", b'{"closed": "finished"}')


@pytest.mark.heavy
def test_first_list_of_many_runs_takes_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a catalogue it takes two or more for each."""
    count = 1200
    with CountingS3() as server:
        for name, value in server.variables("writer").items():
            monkeypatch.setenv(name, value)
        store = Store("s3://bucket/runs")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: small(store, f"p{number % 3}/r{number:04d}", number), range(count)))
        assert Catalogue("s3://bucket/runs").gather().put_in == count
        for command in (
            "ls store:s3://bucket/runs -n 5",
            "best s3://bucket/runs --metric final/acc",
            "compare s3://bucket/runs",
        ):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", command.split()[0])
            monkeypatch.setenv("XDG_CACHE_HOME", command.split()[0])
            assert str(count - 1) in run_cli(*command.split()).stdout
            asked = server.counts()[command.split()[0]]
            assert sum(asked.values()) - asked["out"] - asked["in"] <= 12, asked
            assert asked["PUT"] == asked["DELETE"] == 0
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "again")
        assert Catalogue("s3://bucket/runs").gather().put_in == 0
        asked = server.counts()["again"]
        assert sum(asked[kind] for kind in ("GET", "HEAD", "LIST", "PUT")) <= 12


def test_list_by_the_catalogue_is_what_the_runs_say(where: str) -> None:
    """Also of each run when its curves are asked for, which are read then."""
    for number in range(5):
        send(trained(f"r{number}", where, number + 2, status="failed" if number == 3 else "finished"))
    before = source_list.overviews([where], print)
    assert run_cli("lake", "catalogue", where).stdout.startswith("5 runs put in; 0 go on")
    shutil.rmtree("cache")
    quick = source_list.overviews([where], print)
    assert [view.info.id for view in quick] == [view.info.id for view in before]
    for view, other in zip(quick, before, strict=True):
        assert (view.last, view.steps, view.step, view.results, view.status.name) == (
            other.last, other.steps, other.step, other.results, other.status.name,
        )  # fmt: skip
        assert (view.info.config, view.info.created, view.info.name) == (
            other.info.config, other.info.created, other.info.name,
        )  # fmt: skip
    assert not list(Path("cache").glob("**/streams"))
    reader, (run,) = open_source(f"{where}#digits/r4")
    assert [record.step for record in reader.read(run) if isinstance(record, Metrics)] == list(range(6))
    assert {path.parent.name for path in Path("cache").glob("**/streams")} == {"r4"}
    whole = {view.info.id: view.records for view in source_list.overviews([where], print, whole=True)}
    assert whole["r4"] > 6


def test_place_without_runs_is_said(where: str) -> None:
    """A wrong address in a cron's line ends with an error, not with nothing put in."""
    done = CliRunner().invoke(app, ["lake", "catalogue", where])
    assert done.exit_code != 0
    with pytest.raises(NotFound, match=r"store has no runs: give the place that TRACKER_DIR named"):
        Catalogue(where).gather()


def test_what_has_changed_since_is_read_from_the_run(where: str) -> None:
    """A run that is resumed, edited or removed, and one that is new; the next round puts them in again."""
    runs = {name: trained(name, where) for name in ("resumed", "edited", "removed", "stays")}
    for run in runs.values():
        send(run)
    Catalogue(where).gather()
    assert kept(where) == {*runs}
    assert marked(where) == set()
    resumed(runs["resumed"], 2, 6)
    send(runs["resumed"])
    append(runs["edited"], 1, Info(time=T0 + 9, tags=["good"]), writer="edits-0")
    send(runs["edited"])
    removal.remove(Store(where), "digits/removed")
    send(trained("new", where, status="running"))
    assert marked(where) == {"resumed", "edited", "removed"}
    assert kept(where) == {"stays"}
    seen = listed(where)
    assert seen.keys() == {"resumed", "edited", "stays", "new"}
    assert seen["resumed"][0] != "finished"
    assert seen["resumed"][1] == 7.0
    assert seen["edited"] == ("finished", 1 / 3, ["good"])
    done = Catalogue(where).gather()
    assert (done.put_in, done.going_on) == (2, 2)
    assert marked(where) == {"resumed"}
    assert listed(where).keys() == seen.keys()
    append(runs["resumed"], 2, Finish(time=T0 + 3000, status="finished", exit_code=0))
    send(runs["resumed"])
    assert listed(where)["resumed"] == ("finished", 7.0, [])
    Catalogue(where).gather()
    assert marked(where) == set()
    assert kept(where) == {"resumed", "edited", "stays"}
    assert listed(where)["resumed"] == ("finished", 7.0, [])
    shutil.rmtree(OWN / "digits/removed", ignore_errors=True)
    send(trained("removed", where, 5, ranks=2))  # another run that takes the id
    assert listed(where)["removed"] == ("finished", 1 / 5, [])


@pytest.mark.parametrize("point", ["catalogue.pack.before", "catalogue.pack.after", "catalogue.marks.before"])
def test_killed_round_loses_nothing(where: str, point: str) -> None:
    """Wherever it dies: lists are right, and the next round does the rest."""
    runs = [trained(f"r{number}", where) for number in range(3)]
    for run in runs:
        send(run)
    Catalogue(where).gather()
    append(runs[0], 1, Info(time=T0 + 9, tags=["new"]), writer="edits-0")
    send(runs[0])
    send(trained("later", where))
    code = f"""if True:
        from trackers.support.failpoints import arm
        from trackers_lake.catalogue import Catalogue
        arm("{point}=kill")
        Catalogue({where!r}).gather()"""
    done = forked.run([sys.executable, "-c", code], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    expected = {**{f"r{number}": ("finished", 1 / 3, []) for number in range(3)}, "later": ("finished", 1 / 3, [])}
    expected["r0"] = ("finished", 1 / 3, ["new"])
    assert listed(where) == expected
    Catalogue(where).gather()
    assert listed(where) == expected
    assert kept(where) == expected.keys()
    assert marked(where) == set()
    assert len(list(Store(where).objects(PACKS))) <= 2


class Interrupted(catalogue._Folders):
    """A store before each of whose requests something may happen."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def _call(self, call: Any) -> Any:
        type(self).happens()
        return super()._call(call)


class Sending(Interrupted):
    """The same of who sends runs."""


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(6))
def test_lists_are_right_whatever_happens_meanwhile(where: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that begin, go on, end, are edited and removed, and other rounds, all between any two requests of a round,
    which may also die there; rounds between any two of a list, or of who sends or removes, too."""
    chance = random.Random(seed)
    expected: dict[str, tuple[str, float, list[str]]] = {}
    attempts: dict[str, int] = {}

    def act() -> None:
        kind = chance.choice(("new", "new", "resume", "end", "edit", "remove"))
        ids = sorted(expected)
        run_id = chance.choice(ids) if ids and kind != "new" else f"r{len(attempts)}"
        if kind == "new" or run_id not in expected:
            status = chance.choice(("running", "finished"))
            send(trained(run_id, where, 4, status))
            expected[run_id], attempts[run_id] = (status, 1 / 4, []), 1
            return
        run, (status, loss, tags) = RunDirectory(OWN / "digits" / run_id), expected[run_id]
        if kind == "remove":
            removal.remove(Sending(where), f"digits/{run_id}")
            del expected[run_id]
        elif kind == "resume" and status == "finished":
            attempts[run_id] += 1
            resumed(run, attempts[run_id], 6)
            send(run)
            expected[run_id] = "running", float(attempts[run_id] + 5), tags
        elif kind == "end" and status == "running":
            append(run, attempts[run_id], Finish(time=T0 + 1e6, status="finished", exit_code=0))
            send(run)
            expected[run_id] = "finished", loss, tags
        elif kind == "edit":
            append(run, 1, Info(time=T0 + 2e6, tags=[*tags, "t"]), writer="edits-0")
            send(run)
            expected[run_id] = status, loss, [*tags, "t"]

    def check() -> None:
        reading.append(1)
        inside.clear()
        found = listed(where)
        inside.append(1)
        reading.clear()
        assert found.keys() == expected.keys()
        for run_id, (status, loss, tags) in expected.items():
            assert (found[run_id][0] == "finished") == (status == "finished"), run_id
            assert found[run_id][1:] == (loss, tags), run_id

    def interrupt() -> None:
        found = chance.random()
        if found > 0.2 or inside:
            return
        inside.append(1)
        try:
            if found < 0.02 and not reading:
                raise Unavailable("it died")
            if found < 0.04 or reading:
                Catalogue(where).gather()
            else:
                act()
        finally:
            inside.clear()

    def meanwhile() -> None:
        if chance.random() < 0.15 and not others:
            others.append(1)
            Catalogue(where).gather()
            others.clear()

    others: list[int] = []
    inside: list[int] = [1]
    reading: list[int] = []
    monkeypatch.setattr(catalogue, "_Folders", Interrupted)
    monkeypatch.setattr(Interrupted, "happens", staticmethod(interrupt))
    monkeypatch.setattr(Sending, "happens", staticmethod(meanwhile))
    monkeypatch.setattr(storage, "Store", Sending)
    for _ in range(5):
        act()
    for _ in range(6):
        inside.clear()
        with contextlib.suppress(Unavailable):
            Catalogue(where).gather()
        inside.append(1)
        check()
        act()
        check()
    done = Catalogue(where).gather()
    assert done.problems == []
    check()
    assert kept(where) == {run_id for run_id, (status, _, _) in expected.items() if status == "finished"}


def test_rounds_leave_few_packs(where: str) -> None:
    """Each joins those that are no longer than twice what is new."""
    for number in range(12):
        send(trained(f"r{number:02d}", where))
        Catalogue(where).gather()
        assert len(list(Store(where).objects(PACKS))) <= 4
    assert len(kept(where)) == 12


def put_all(store: Store, *names: str) -> None:
    for name in names:
        store.put(name, b"x")


def damages() -> dict[str, Callable[[Store, str], None]]:
    lie = Head("digits/r0", False, "r0", "r0", "digits", created=T0, status="finished", version="other", facts=b"\xc1")
    return {
        "cut": lambda store, name: store.put(name, store.get(name, 10**6)[:-9]) and None,
        "empty": lambda store, name: store.put(name, b"") and None,
        "bomb": lambda store, name: store.put(name, bomb()) and None,
        "another": lambda store, name: store.put(f"{PACKS}/{10**9:012d}", b"x") and None,
        "highest": lambda store, name: store.put(f"{PACKS}/{MOST_NUMBER:012d}", b"x") and None,
        "many": lambda store, name: put_all(store, *(f"{PACKS}/{at:012d}" for at in range(50, 150))),
        "names": lambda store, name: put_all(store, *(f"{PACKS}/{at}" for at in ("1", "x" * 12, "²" * 12, "a/b"))),
        "gap": lambda store, name: store.delete([name]),
        "since": lambda store, name: store.put(name, encoded(Pack(10**15, []))) and None,
        "negative": lambda store, name: store.put(name, encoded(Pack(-5, []))) and None,
        "facts": lambda store, name: store.put(name, encoded(Pack(1, [lie]))) and None,
        "foreign": lambda store, name: store.put(name, encoded(Pack(1, [Head("../../x"), Head("no/such")]))) and None,
        "marks": lambda store, name: put_all(
            store, *(f"{layout.MARKS}/{at}" for at in ("x", "a/b/c/d", "..x/y/z", "no/such/1"))
        ),
    }  # fmt: skip


def bomb() -> bytes:
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(2**24)) for _ in range(40)), packer.flush()])


def test_small_pack_of_countless_heads_is_damaged() -> None:
    """Each takes a hundred times its two bytes, of which a pack holds very many."""
    for count, taken in ((1000, True), (catalogue.MOST_HEADS + 1, False)):
        heads = b"\xdd" + count.to_bytes(4, "big") + b"\x91\xa0" * count
        pack = catalogue.decoded(zlib.compress(b"\x82\xa5since\x01\xa5heads" + heads), 1)
        assert (pack is not None) is taken


@pytest.mark.parametrize("damage", sorted(damages()))
def test_damaged_catalogue_costs_requests_alone(where: str, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are right, and the next round mends it, but where no number is left."""
    monkeypatch.setattr(catalogue, "MOST_UNPACKED_BYTES", 2**20)
    for number in range(3):
        send(trained(f"r{number}", where))
    Catalogue(where).gather()
    (name,) = (entry.name for entry in Store(where).objects(PACKS))
    expected = listed(where)
    assert len(expected) == 3
    damages()[damage](Store(where), name)
    assert listed(where) == expected
    send(trained("new", where))
    expected["new"] = ("finished", 1 / 3, [])
    if damage == "highest":
        with pytest.raises(Refused, match=r"remove \.catalogue"):
            Catalogue(where).gather()
        return
    Catalogue(where).gather()
    assert listed(where) == expected
    assert kept(where) == expected.keys()


def test_pack_without_its_predecessor_counts_alone(where: str) -> None:
    """What lies before a gap may be out of date: those runs are read."""
    for number in range(9):
        send(trained(f"r{number}", where))
    Catalogue(where).gather()
    first = [entry.name for entry in Store(where).objects(PACKS)]
    send(trained("later", where))
    Catalogue(where).gather()
    Store(where).delete(first)
    assert kept(where) == {"later"}
    assert len(listed(where)) == 10


def test_who_may_not_write_marks_sends_all_else(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy may allow a project's prefix alone."""
    run = trained("r0", where)
    send(run)
    put = Store.put

    def refusing(store: Store, name: str, content: Any) -> str:
        if name.startswith(".catalogue"):
            raise Refused("not allowed")
        return put(store, name, content)

    monkeypatch.setattr(Store, "put", refusing)
    resumed(run, 2, 6)
    append(run, 2, Finish(time=T0 + 3000, status="finished", exit_code=0))
    send(run)
    assert listed(where)["r0"] == ("finished", 7.0, [])
    removal.remove(Store(where), "digits/r0")
    assert listed(where) == {}


def test_run_that_is_back_after_an_undo_is_listed(where: str) -> None:
    """The catalogue had it as gone."""
    run = trained("r0", where)
    send(run)
    Catalogue(where).gather()
    removal.remove(Store(where), "digits/r0")
    Catalogue(where).gather()
    assert listed(where) == {}
    storage.StorageTracker.restore(run.read_info(), {})
    Catalogue(where).gather()
    assert listed(where) == {}
    (run.path / "delivery" / "storage.json").unlink()
    send(run)
    assert listed(where).keys() == {"r0"}
    Catalogue(where).gather()
    assert kept(where) == {"r0"}
    assert marked(where) == set()


def test_runs_are_named_as_lists_show_them(where: str) -> None:
    """Not as their folders are, in which some signs are encoded."""
    for number, project in enumerate(("q&a#1", "ünï/é", "50%20")):
        send(trained(f"r{number}", where, project=project))
    for _ in range(2):
        for number, project in enumerate(("q&a#1", "ünï/é", "50%20")):
            for named in (project, f"{project}/r{number}", f"r{number}", f"{project[:2]}*"):
                runs = source_list.overviews([f"{where}#{named}"], print)
                assert [view.info.id for view in runs] == [f"r{number}"]
            (run,) = open_source(f"{where}#r{number}")[1]
            assert run.source == f"store:{where}#{project}/r{number}"
            assert [one.id for one in open_source(run.source)[1]] == [f"r{number}"]
        Catalogue(where).gather()


def test_new_run_leaves_no_mark(where: str) -> None:
    """Nothing of it can be in a catalogue: a store without one gets no object more."""
    send(trained("r0", where))
    assert not [entry.name for entry in Store(where).objects() if entry.name.startswith(".catalogue")]


def test_rounds_go_on_until_they_are_stopped(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage costs one."""
    send(trained("r0", where))
    failing = iter([Unavailable("can't be reached"), None])
    gather = Catalogue.gather

    def once(self: Catalogue, *, again: bool = False) -> Any:
        if (error := next(failing)) is not None:
            raise error
        os.kill(os.getpid(), signal.SIGTERM)
        return gather(self, again=again)

    monkeypatch.setattr(Catalogue, "gather", once)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        done = run_cli("lake", "catalogue", where, "--every", "1")
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert "1 runs put in" in done.stdout
    assert "the next round tries again" in done.stderr
    assert "is no store" in str(CliRunner().invoke(app, ["lake", "catalogue", "runs"]).exception)


def test_changes_by_hand_are_seen_again_when_asked(where: str) -> None:
    """Whoever writes past this package leaves no mark."""
    send(trained("r0", where))
    Catalogue(where).gather()
    Store(where).delete([entry.name for entry in Store(where).objects("digits/r0")])
    small(Store(where), "digits/r0", 7)
    assert listed(where)["r0"][1] == 1 / 3
    assert run_cli("lake", "catalogue", where, "--again").stdout.startswith("1 runs put in")
    assert listed(where)["r0"][1] == 9.0


def test_run_that_cannot_be_read_is_left_out(where: str) -> None:
    """The others are put in; it is named each time."""
    send(trained("r0", where))
    small(Store(where), "digits/bad", 1)
    (piece,) = Store(where).objects("digits/bad/streams")
    Store(where).delete(["digits/bad/run.json", piece.name])
    Store(where).put(f"digits/bad/streams/rank-0.1.jsonl/{Piece.of(0, b'?')}", b"?")
    done = CliRunner().invoke(app, ["lake", "catalogue", where])
    assert done.exit_code == 1
    assert "left out" in done.stderr
    assert kept(where) == {"r0"}
    assert listed(where).keys() == {"r0"}


@pytest.mark.parametrize("known", [True, False])
def test_stores_reader_passes_the_kit_for_readers(where: str, known: bool) -> None:
    """What every reader promises, whether the catalogue has the run or not."""
    run = trained("r0", where)
    send(run)
    if known:
        Catalogue(where).gather()
    said = [record for record in JournalReader().read(source_run(run)) if not isinstance(record, Finish)]
    check_reader(
        StoreReader, where, run.read_info(), said, status=Status("finished", 0), missing=f"{where}#nothing"
    )  # fmt: skip
