"""What ``make nodes-check NODES=--hurts`` does to a few nodes in the middle of their training, and what is left of it.

Each hurt is a function of the nodes; what must hold afterwards is in ``HURTS``. The nodes are those of
:mod:`tests.ranks.nodes_check`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

NET = "10.213.77"
CUT_S = 20.0


class Nodes:
    """The nodes that train. names: of their network namespaces. processes: whose ends are theirs."""

    def __init__(self, names: list[str], processes: list[subprocess.Popen[bytes]]) -> None:
        self.names, self.processes = names, processes

    def those(self, number: int, role: str) -> Iterator[psutil.Process]:
        """A node's helper processes of one role, such as "carry"; "train": its ranks."""
        command = ["ip", "netns", "pids", self.names[number]]
        for pid in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(int(pid))
                words = process.cmdline()
                if (role == "train" and any(word.endswith("train.py") for word in words)) or role in words[1:6]:
                    yield process

    def kill(self, number: int, role: str) -> None:
        """Kill a node's first process of a role by SIGKILL, once it is there.

        Raises:
            AssertionError: it isn't within a minute.
        """
        until = time.monotonic() + 60
        while not (found := sorted(self.those(number, role), key=lambda process: process.pid)):
            assert time.monotonic() < until, f"node {number} has no {role}"
            time.sleep(0.2)
        found[0].kill()

    def link(self, number: int, state: str) -> None:
        """A node's cable: "down" or "up"."""
        subprocess.run(["ip", "link", "set", f"tr{number}", state], check=True)

    def forget(self, number: int, other: int) -> None:
        """Have a node forget its connections to another one, which doesn't hear of it while the cable is down."""
        words = ["ip", "netns", "exec", self.names[number], "ss", "-K", "dst", f"{NET}.{other + 10}"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def kill_carrier(nodes: Nodes) -> None:
    """Of a node, three times."""
    for _ in range(3):
        nodes.kill(1, "carry")
        time.sleep(3)


def kill_fetcher(nodes: Nodes) -> None:
    """Of the main node, twice: after the third time within seconds it is left alone for ten."""
    for _ in range(2):
        nodes.kill(0, "fetch")
        time.sleep(3)


def kill_relay(nodes: Nodes) -> None:
    """Of the main rank."""
    nodes.kill(0, "relay")


def kill_helpers(nodes: Nodes) -> None:
    """All of every node at once: relay, fetcher, reducer, samplers, carriers, deliveries."""
    roles = ("relay", "fetch", "reduce", "delivery", "sample", "carry")
    found = [one for number in range(len(nodes.names)) for role in roles for one in nodes.those(number, role)]
    assert len(found) > len(nodes.names)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def kill_main_rank(nodes: Nodes) -> None:
    """Rank 0 alone."""
    nodes.kill(0, "train")


def kill_main_node(nodes: Nodes) -> None:
    """With all that runs on it."""
    nodes.processes[0].kill()


def cut(nodes: Nodes) -> None:
    """A node's cable, for 20 s."""
    nodes.link(1, "down")
    time.sleep(CUT_S)
    nodes.link(1, "up")


def cut_main(nodes: Nodes) -> None:
    """The main node's."""
    nodes.link(0, "down")
    time.sleep(CUT_S)
    nodes.link(0, "up")


def half_open(nodes: Nodes) -> None:
    """A connection that only one end knows of: first the node's end, then the main node's."""
    for forgetful, other in ((1, 0), (0, 1)):
        nodes.link(1, "down")
        time.sleep(1)
        nodes.forget(forgetful, other)
        time.sleep(1)
        nodes.link(1, "up")
        time.sleep(6)


def flaky_network(nodes: Nodes) -> None:
    """Every cable loses all packets for half a second, thirty times."""
    for _ in range(30):
        for state, pause_s in (("down", 0.5), ("up", 0.5)):
            for number in range(len(nodes.names)):
                nodes.link(number, state)
            time.sleep(pause_s)


class Hurt(NamedTuple):
    """What is done, in which ways, and what holds afterwards: whole: every value; else those before the hurt."""

    do: Callable[[Nodes], None]
    ways: tuple[str, ...] = ("store", "network")
    whole: bool = True


HURTS = {
    "carrier": Hurt(kill_carrier),
    "fetcher": Hurt(kill_fetcher),
    "relay": Hurt(kill_relay),
    "helpers": Hurt(kill_helpers),
    "cut": Hurt(cut),
    "cut-main": Hurt(cut_main),
    "half-open": Hurt(half_open, ("network",)),
    "flaky-network": Hurt(flaky_network),
    "main-rank": Hurt(kill_main_rank, whole=False),
    "main-node": Hurt(kill_main_node, ("store",), whole=False),
}


def stamped(run: Path) -> dict[int, float]:
    """When the main rank logged each step."""
    lines = [json.loads(line) for line in (run / "streams/rank-0.1.jsonl").read_text().splitlines()]
    return {line["step"]: line["time"] for line in lines if line.get("kind") == "metrics"}
