"""What nodes send over the network reaches the main node: whole, once, from those who belong to the job alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import run_info
from tests.relay.nodes.test_nodes import Node, Quiet, begun_run, reduce, run_of, streams
from trackers.hardware.plan import Plan
from trackers.ranks import launch, meeting
from trackers.relay.nodes.carrier import Carrier, CarryTask
from trackers.relay.nodes.fetcher import Fetcher, FetchTask
from trackers.support import process_info


@pytest.fixture
def main(tmp_path: Path) -> Node:
    """The main node, with the run: ranks 0 and 1."""
    node = Node(tmp_path / "a", 0)
    run, writer = begun_run(node.root / "p/one")
    writer.release()
    entry = {
        "number": 1, "launch": os.path.relpath(node.folder, run.path), "ranks": 4, "rank": 0, "node": 0, "nodes": 2,
        "time": time.time(),
    }  # fmt: skip
    run.write_info(run_info(run.path, attempts=[entry], trackers=["json"], options={"TRACKER_NODES": "network"}))
    launch.claim(node.folder, run, 1, 0.0)
    meeting.listen(node.folder, {"TRACKER_NODES_ADDRESS": "127.0.0.1"}, True)
    return node


@pytest.fixture
def other(tmp_path: Path) -> Node:
    """Another node: ranks 2 and 3."""
    return Node(tmp_path / "b", 1)


def carry(node: Node) -> Carrier:
    """Its carrier."""
    plan = Plan(node=node.number, nodes=2, pid=os.getpid(), pid_start=process_info.process_start(os.getpid()))
    task = CarryTask(store="", every_s=0.0, main=0, ranks=4, plan=plan, sample=False)
    return Carrier(node.folder, task, lambda run, attempt: Quiet())


@contextmanager
def served(main: Node, *others: Node) -> Iterator[Fetcher]:
    """The main node's fetcher, which listens; the other nodes know where."""
    fetching = Fetcher(run_of(main), FetchTask(store="", every_s=0.0, attempt=1, parent=os.getppid()), main.said.append)
    landing = fetching.landing
    assert landing is not None
    landing.open()
    for node in others:
        found = meeting.read(main.folder)
        assert found is not None
        meeting.write(node.folder, found)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            landing.serve(0.01)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield fetching
    finally:
        over.set()
        thread.join()
        landing.close()


def test_rows_of_another_node_are_reduced_with_those_here(main: Node, other: Node) -> None:
    """Each rank's own disk, one connection: the values are those of all ranks, and no rank was missing."""
    for step in range(5):
        for number in (0, 1):
            main.log(number, step, number)
        for number in (2, 3):
            other.log(number, step, number)
    with served(main, other) as fetching:
        carrying = carry(other)
        assert fetching.look()
        assert carrying.send(), carrying.problem
        assert carrying.is_known
        main.close()
        other.close()
        assert carrying.send(done=True), carrying.problem
        assert fetching.look()
        assert fetching.is_complete()
        assert fetching.look(over=True)
        assert streams(main.folder / launch.OTHERS) == streams(other.folder)
    assert reduce(main) == [1.5] * 5
    assert main.said == other.said == []
