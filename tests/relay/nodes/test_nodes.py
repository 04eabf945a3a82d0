"""What ranks of another node leave reaches the main node through a store: whole, once, and nothing else's place."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.helpers import begun_run, run_info
from tests.object_storage.support import Failing, names, store
from trackers.errors import UNDECODABLE, Unavailable
from trackers.hardware.plan import SamplingPlan
from trackers.journal.run_directory import RunDirectory
from trackers.object_storage import launches
from trackers.object_storage.layout import Piece
from trackers.object_storage.store import Store
from trackers.ranks import launch, nodes
from trackers.ranks.contribution import ReductionRow
from trackers.ranks.transport import RankStream
from trackers.records import Finish
from trackers.reductions import Mean
from trackers.relay.aggregation.aggregator import Reducer
from trackers.relay.nodes import carrier, fetcher
from trackers.relay.nodes.carrier import Carrier, CarryTask
from trackers.relay.nodes.fetcher import Fetcher, FetchTask
from trackers.relay.nodes.frames import NodeAnswer
from trackers.support import machines, processes
from trackers.values.device_copy import hold

LAUNCH = "0123456789"
HOST = machines.host()


class Node:
    """One node's directory of runs, with the launch's folder."""

    def __init__(self, root: Path, number: int) -> None:
        self.root, self.number = root, number
        self.folder = root / ".ranks" / LAUNCH
        self.folder.mkdir(parents=True)
        self.said: list[str] = []
        self.ranks: dict[int, RankStream] = {}

    def rank(self, number: int) -> RankStream:
        if number not in self.ranks:
            self.ranks[number] = RankStream(self.folder, number, 4, self.said.append, dated=True)
        return self.ranks[number]

    def log(self, number: int, step: int, value: float) -> None:
        row = ReductionRow({"loss": Mean(value, 1)}, hold)
        self.rank(number).add(step, time.time(), row.layout, row.row({}))

    def close(self) -> None:
        for rank in self.ranks.values():
            rank.close(Finish(time=time.time(), status="finished"))


def main_node(tmp_path: Path, trackers: list[str], options: dict[str, str]) -> Node:
    """The main node, with a run of two ranks here and two elsewhere."""
    node = Node(tmp_path / "a", 0)
    run, writer = begun_run(node.root / "p/one")
    writer.release()
    entry = {
        "number": 1, "launch": os.path.relpath(node.folder, run.path), "ranks": 4, "rank": 0, "node": 0, "nodes": 2,
        "time": time.time(),
    }  # fmt: skip
    run.write_info(run_info(run.path, attempts=[entry], trackers=trackers, options=options))
    launch.register(node.folder, run, 1, 0.0)
    return node


class Quiet:
    """No console."""

    def poll(self) -> None:
        pass

    def end(self) -> bool:
        return True

    def ranks(self) -> set[int]:
        return set()


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def main(tmp_path: Path, where: str) -> Node:
    """The main node, with the run: ranks 0 and 1."""
    return main_node(tmp_path, ["json", "storage"], {"TRACKER_DIR": where})


@pytest.fixture
def other(tmp_path: Path) -> Node:
    """Another node: ranks 2 and 3."""
    return Node(tmp_path / "b", 1)


def carry(node: Node, where: str) -> Carrier:
    """Its carrier."""
    plan = SamplingPlan(node=node.number, nodes=2, pid=os.getpid(), pid_start=processes.process_start(os.getpid()))
    task = CarryTask(store=where, every_s=0.0, main=0, ranks=4, plan=plan, sample=False)
    return Carrier(node.folder, task, lambda run, attempt: Quiet())


def run_of(main: Node) -> RunDirectory:
    return RunDirectory(main.root / "p/one")


def fetch(main: Node, where: str, said: Callable[[str], None] = lambda text: None) -> Fetcher:
    """The main node's fetcher."""
    return Fetcher(run_of(main), FetchTask(store=where, every_s=0.0, attempt=1, parent=os.getppid()), said)


def reduce(main: Node, ended: bool = True) -> list[float]:
    """The mean at each step, as the reducer records it."""
    work = Reducer(run_of(main), 1, wait_s=0.0, ended=ended, say=main.said.append)
    for _ in range(200):
        work.step()
        if work.done:
            break
        if ended:
            work.end()
    work.close()
    path = run_of(main).path / "streams/reducer-0.1.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line["values"]["loss"] for line in lines if line["kind"] == "metrics"]


def streams(folder: Path) -> dict[str, bytes]:
    """Ranks' streams in a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("rank-*.jsonl"))}


def test_rows_of_another_node_are_reduced_with_those_here(main: Node, other: Node, where: str) -> None:
    """Each rank's own disk, one store: the values are those of all ranks, and no rank was missing."""
    for step in range(5):
        for number in (0, 1):
            main.log(number, step, number)
        for number in (2, 3):
            other.log(number, step, number)
    carrying, fetching = carry(other, where), fetch(main, where)
    assert fetching.poll()
    assert carrying.send()
    main.close()
    other.close()
    assert carrying.has_ended()
    assert carrying.send(done=True)
    assert fetching.poll()
    assert fetching.is_complete()
    assert fetching.poll(over=True)
    assert reduce(main) == [1.5] * 5
    assert main.said == other.said == []
    kept = run_of(main).path / "ranks"
    assert len(streams(kept)) == 4


def test_node_is_heard_before_and_amid_a_long_pass(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog takes minutes: the node has said that it is there and lives; what it says of its files comes after."""
    for step in range(5):
        other.log(2, step, 2)
        other.log(3, step, 3)
    carrying, fetching = carry(other, where), fetch(main, where)
    heard: list[tuple[bool, bool]] = []
    send_file = carrying._transport.send_file

    def slow(path: str, file: Path, root: Path) -> None:
        assert fetching.poll()
        heard.append((fetching.has_heard_all, any(arrival.as_of for arrival in fetching.arrivals.streams.values())))
        monkeypatch.setattr(carrier, "SPEAK_S", 0.0)
        send_file(path, file, root)

    monkeypatch.setattr(carrying._transport, "send_file", slow)
    for _ in range(3):
        assert carrying.send()
        assert fetching.poll()
    assert heard == [(True, False)] * 2 + [(True, False)] * 2 + [(True, True)] * 2
    other.close()
    main.close()


@pytest.mark.heavy
def test_rows_wait_for_nodes_that_send_theirs_later(main: Node, other: Node, where: str) -> None:
    """A value isn't recorded without a node's ranks because what they left is still on its way."""
    main.log(0, 0, 0)
    main.log(1, 0, 1)
    fetching, carrying = fetch(main, where), carry(other, where)
    other.log(2, 0, 2)
    carrying.send()
    fetching.poll()
    assert reduce(main, ended=False) == []  # rank 3 may have left something, too
    other.log(3, 0, 3)
    carrying.send()
    fetching.poll()
    assert reduce(main, ended=False) == [1.5]
    assert main.said == []


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(8))
def test_failures_and_deaths_lose_and_double_nothing(
    seed: int, main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of all requests fails, half of those after they were carried out; both sides die in between."""
    chance = random.Random(seed)
    flaky = Failing(where, seed)
    monkeypatch.setattr(carrier, "Store", lambda where: flaky)
    monkeypatch.setattr(fetcher, "Store", lambda where: flaky)
    carrying, fetching = carry(other, where), fetch(main, where)
    for step in range(30):
        for number in (2, 3):
            other.log(number, step, number)
        if chance.random() < 0.3:
            carrying = carry(other, where)
        if chance.random() < 0.3:
            fetching = fetch(main, where)
        carrying.send()
        fetching.poll()
        for name, content in streams(main.folder / launch.OTHERS).items():
            assert (other.folder / name).read_bytes().startswith(content)
    other.close()
    while not carrying.send(done=True):
        pass
    while not (fetching.poll() and fetching.is_complete()):
        pass
    assert streams(main.folder / launch.OTHERS) == streams(other.folder)


def test_disk_that_nodes_share_is_left_as_it_is(main: Node, where: str) -> None:
    """Where the directory of runs is on a shared disk after all, what is there isn't fetched a second time."""
    same = Node.__new__(Node)
    same.__dict__.update(main.__dict__, number=1, ranks={})
    fetching, carrying = fetch(main, where), carry(same, where)
    for number in (0, 1):
        main.log(number, 0, number)
    for number in (2, 3):
        same.log(number, 0, number)
    fetching.poll()
    carrying.send()
    fetching.poll()
    assert streams(main.folder / launch.OTHERS) == {}
    assert not [name for name in names(store(main.root.parent)) if "/streams/" in name]
    fetching.poll(over=True)
    main.close()
    same.close()
    assert reduce(main) == [1.5]


def test_clock_that_is_ahead_is_said_and_put_right(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clocks are compared with the store's; what the other node's is ahead is told once."""
    said: list[str] = []
    fetching, carrying = fetch(main, where, said.append), carry(other, where)
    other.log(2, 0, 2)
    ahead = 3600.0
    real = time.time
    for _ in range(4):
        monkeypatch.setattr(carrier.time, "time", lambda: real() + ahead)
        carrying.send()
        monkeypatch.setattr(carrier.time, "time", real)
        fetching.poll()
    (text,) = said
    assert f"node 1 ({HOST}): its clock is 3600.0 s ahead of the main node's" in text
    (arrival,) = fetching.arrivals.streams.values()
    assert abs(arrival.ahead_s - 3600) < 0.5
    assert abs(arrival.as_of - real()) < 60


def arrival_of(fetching: Fetcher) -> nodes.Arrival:
    """That of the only rank that has arrived."""
    (found,) = fetching.arrivals.streams.values()
    return found


def written_at(main: Node, times: dict[str, float]) -> None:
    """Have the store say that it wrote objects then, by the ends of their names."""
    for path in main.root.parent.rglob("*.json"):
        for end, at in times.items():
            if str(path).endswith(end):
                os.utime(path, (at, at))


def test_word_that_is_long_on_its_way_says_nothing_of_that_time(main: Node, other: Node, where: str) -> None:
    """What ranks left while a node's word was on its way may not be here: they aren't late."""
    fetching, carrying = fetch(main, where), carry(other, where)
    now = time.time()
    other.log(2, 0, 2)
    carrying.send()
    written_at(main, {"0001.json": now - 40})
    fetching.poll()
    assert arrival_of(fetching).as_of == 0.0, "how long the first one took isn't known"
    carrying.send()
    written_at(main, {"0001.json": now})
    fetching.poll()
    assert now - 42 < arrival_of(fetching).as_of < now - 39.9
    assert abs(arrival_of(fetching).heard - now) < 2
    carrying.send()
    fetching.poll()
    assert now - 2 < arrival_of(fetching).as_of < now + 0.1


def test_word_of_another_carrier_or_after_a_failure_says_nothing_of_the_one_before(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed carrier, or a cut connection, had under way may come later than the next one looks."""

    def refuse() -> bytes:
        raise Unavailable("503")

    fetching, carrying = fetch(main, where), carry(other, where)
    now = time.time()
    other.log(2, 0, 2)
    for at in (now - 60, now - 50):
        carrying.send()
        written_at(main, {"0001.json": at})
        fetching.poll()
    known = arrival_of(fetching).as_of
    assert now - 62 < known < now - 59.9
    carrying = carry(other, where)
    for at, wanted in ((now - 40, known), (now - 30, known + 20)):
        carrying.send()
        written_at(main, {"0001.json": at})
        fetching.poll()
        assert abs(arrival_of(fetching).as_of - wanted) < 2
    with monkeypatch.context() as patch:
        patch.setattr(carrying._transport, "fetch_main_news", refuse)
        assert not carrying.send()
    for at, wanted in ((now - 20, known + 20), (now - 10, known + 40)):
        carrying.send()
        written_at(main, {"0001.json": at})
        fetching.poll()
        assert abs(arrival_of(fetching).as_of - wanted) < 2
    carrying.send(done=True)
    written_at(main, {"0001.json": now})
    fetching.poll()
    assert arrival_of(fetching).as_of > now - 2, "nothing more comes: all of it is here"


def test_fetcher_that_is_started_again_knows_as_much_as_before(main: Node, other: Node, where: str) -> None:
    """Up to when a node's rows are here; a word that it knows already tells it nothing."""
    fetching, carrying = fetch(main, where), carry(other, where)
    other.log(2, 0, 2)
    for _ in range(2):
        carrying.send()
        fetching.poll()
    known = arrival_of(fetching).as_of
    again = fetch(main, where)
    again.poll()
    assert arrival_of(again).as_of == known > 0.0


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0, 0.0])
def test_sampler_of_a_node_is_told_how_far_its_clock_is_ahead(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """So that its samples lie among the main node's."""
    plans: list[SamplingPlan] = []

    def start(run: RunDirectory, arguments: list[str], **options: object) -> Quiet:
        plans.append(msgspec.json.decode(arguments[2], type=SamplingPlan))
        return Quiet()

    real = time.time
    fetching, carrying = fetch(main, where), carry(other, where)
    carrying._task = msgspec.structs.replace(carrying._task, sample=True)
    monkeypatch.setattr(carrier.helper_process, "start", start)
    other.log(2, 0, 2)
    for _ in range(60):
        monkeypatch.setattr(carrier.time, "time", lambda: real() + ahead_s)
        carrying._send_at = 0.0
        carrying.step()
        monkeypatch.setattr(carrier.time, "time", real)
        fetching.poll()
        if plans:
            break
    assert plans[0].within_s is not None
    assert abs(plans[0].ahead_s - ahead_s) < 0.5


def test_word_that_cannot_be_followed_now_is_followed_later(main: Node, other: Node, where: str) -> None:
    """Whatever fails while a node takes up the run, it tries again."""
    fetching, carrying = fetch(main, where), carry(other, where)
    fetching.poll()
    (other.root / "p").write_text("a file where the run's project must be")
    assert not carrying.send()
    assert not carrying.is_known
    (other.root / "p").unlink()
    assert carrying.send()
    assert carrying.is_known


def test_names_that_lead_elsewhere_are_not_taken(main: Node, where: str) -> None:
    """Streams of the run's own node, of ranks that there aren't, of other attempts, and paths out of the run."""
    held = store(main.root.parent)
    line = b'{"kind":"start"}\n'
    piece = Piece.of(0, line)
    before = sorted(path for path in main.root.rglob("*") if path.is_file())
    for node, path in [
        (0, "streams/sampler-0.1.jsonl"), (1, "streams/sampler-0.1.jsonl"), (1, "streams/rank-0.1.jsonl"),
        (1, "streams/sampler-1.2.jsonl"), (1, "streams/console-0.1.jsonl"), (1, "streams/console-9.1.jsonl"),
        (1, "streams/node-1.1.jsonl"), (1, "rank-7.1.jsonl"), (1, "run.json"), (9, "rank-2.1.jsonl"),
        (1, "streams/x/sampler-1.1.jsonl"),
    ]:  # fmt: skip
        held.put(f"{launches.home(LAUNCH)}/streams/{node:04d}/{path}/{piece}", line)
    held.put(f"{launches.home(LAUNCH)}/nodes/0001.json", b"[" * 10_000)
    held.put(f"{launches.home(LAUNCH)}/nodes/0007.json", b"{}")
    fetching = fetch(main, where)
    assert fetching.poll()
    after = sorted(path for path in main.root.rglob("*") if path.is_file())
    assert set(after) - set(before) <= {main.folder / launch.ARRIVALS}


def test_main_node_names_a_run_below_the_directory_alone(other: Node, where: str) -> None:
    """What the store says of the run is data."""
    for project, run_id in [("..", "x"), ("p", "../x"), (".ranks", "x"), ("p", ""), ("/etc", "x")]:
        news = nodes.MainNews(project=project, id=run_id, attempt=1)
        assert nodes.run_of(other.folder, news) is None
    found = nodes.run_of(other.folder, nodes.MainNews(project="p", id="one", attempt=1))
    assert found is not None
    assert found.path == other.root / "p/one"


def test_carrier_of_a_run_that_is_over_ends(main: Node, other: Node, where: str) -> None:
    """A node that was cut off and comes back sends nothing that nobody takes, and leaves nothing in the store."""
    fetching, carrying = fetch(main, where), carry(other, where)
    other.log(2, 0, 2)
    fetching.poll()
    carrying.send()
    fetching.poll(over=True)
    launches.forget(store(main.root.parent), LAUNCH)
    left = list(names(store(main.root.parent)))
    assert left == [f"{launches.home(LAUNCH)}/{launches.MAIN}"]
    carrying.send()
    assert carrying.over


def test_launch_that_goes_on_is_not_forgotten(main: Node, other: Node, where: str) -> None:
    """Only the main node's word that it has everything lets it go."""
    fetching, carrying = fetch(main, where), carry(other, where)
    other.log(2, 0, 2)
    fetching.poll()
    carrying.send()
    launches.forget(store(main.root.parent), LAUNCH)
    assert any("/streams/" in name for name in names(store(main.root.parent)))
    launches.forget(store(main.root.parent), "..", superseded=True)
    launches.forget(store(main.root.parent), "another")
    assert any("/streams/" in name for name in names(store(main.root.parent)))
    launches.forget(store(main.root.parent), LAUNCH, superseded=True)  # the run has gone on with another launch
    assert list(names(store(main.root.parent))) == []
    carrying.send()
    assert carrying.over


def test_store_that_is_away_is_named_and_made_up_for(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both sides; the rows lie on the node's disk meanwhile."""
    fetching, carrying = fetch(main, where), carry(other, where)
    other.log(2, 0, 2)

    def away(*_: object, **__: object) -> object:
        raise Unavailable("no route")

    with monkeypatch.context() as broken:
        broken.setattr(Store, "put", away)
        assert not carrying.send()
        assert not fetching.poll()
    assert carrying.problem == fetching.problem == "no route"
    assert carrying.send()
    assert fetching.poll()
    assert carrying.problem == fetching.problem == ""
    assert streams(main.folder / launch.OTHERS) == streams(other.folder)


def test_nodes_that_a_store_kept_apart_are_waited_for(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was silent while the store answered nobody isn't gone: silence counts from when it answers again."""
    fetching, carrying = fetch(main, where), carry(other, where)
    for node, number in ((main, 0), (main, 1), (other, 2), (other, 3)):
        node.log(number, 0, number)
    carrying.send()
    fetching.poll()
    fetching.arrivals.since -= 5000.0
    with monkeypatch.context() as broken:
        broken.setattr(Store, "put", lambda *_: (_ for _ in ()).throw(Unavailable("no route")))
        assert not fetching.poll()
    assert fetching.poll()
    fetching._heard_at[1] -= 4000.0
    assert not fetching.is_complete()
    fetching.arrivals.since -= 4000.0  # it has answered for long, and the node says nothing
    assert fetching.is_complete()


def test_node_that_was_never_heard_of_is_named(main: Node, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with what it may lack."""
    monkeypatch.setattr(fetcher, "ABSENT_S", 0.0)
    said: list[str] = []
    fetching = fetch(main, where, said.append)
    fetching.poll()
    fetching.poll()
    (text,) = said
    assert text.startswith("nothing has come from node 1 within")


def test_messages_of_another_node_are_passed_on(main: Node, other: Node, where: str) -> None:
    """What its sampler complains of, in one line each."""
    said: list[str] = []
    news = nodes.NodeNews(host="b", said=["hardware of node 1: nvml is\x1b[31m gone", "x" * 1000])
    store(main.root.parent).put(f"{launches.home(LAUNCH)}/nodes/0001.json", msgspec.json.encode(news))
    fetch(main, where, said.append).poll()
    assert said[0].startswith("hardware of node 1: nvml is")
    assert "\x1b" not in "".join(said)
    assert len(said[1]) <= 500


def test_ranks_that_end_before_the_main_node_speaks_are_collected(
    main: Node, other: Node, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The carrier of a very short run waits for the main node's first word: what its ranks printed belongs to a run."""
    plan = SamplingPlan(node=1, nodes=2)  # its rank's process is gone
    task = CarryTask(store=where, every_s=0.0, main=0, ranks=4, plan=plan, sample=False)
    taken: list[str] = []

    class Collector(Quiet):
        def end(self) -> bool:
            taken.append("end")
            return True

    def collect(run: RunDirectory, attempt: int) -> Collector:
        taken.append(f"{run.path.name} {attempt}")
        return Collector()

    fetching = fetch(main, where)
    monkeypatch.setattr(carrier.signal, "signal", lambda *_: None)
    monkeypatch.setattr(carrier.time, "sleep", lambda seconds: fetching.poll())
    assert carrier.carry(other.folder, task, collect) == 0
    assert taken == ["one 1", "end"]
    assert fetching.poll()
    assert fetching.is_complete()


@pytest.mark.parametrize("time_s", [1e300, -1e300, float("inf"), float("nan")])
def test_clock_that_no_node_has_is_no_news(time_s: float) -> None:
    """A message about it would have three hundred digits."""
    for kind, name in (
        (nodes.NodeNews, "ahead_s"), (nodes.NodeNews, "within_s"), (nodes.MainNews, "time"), (nodes.Arrival, "as_of"),
        (NodeAnswer, "time"),
    ):  # fmt: skip
        sent = msgspec.msgpack.encode(kind(**{name: time_s}))
        with pytest.raises(UNDECODABLE):
            msgspec.msgpack.decode(sent, type=kind)
        sent = msgspec.msgpack.encode(kind(**{name: -3600.0}))
        assert getattr(msgspec.msgpack.decode(sent, type=kind), name) == -3600.0
