"""``make nodes-check``: 8 nodes of 8 ranks that share nothing but an S3 server, then nothing at all; needs root and
Linux (minutes).

Each node is a set of namespaces: a network with one cable to the server and to no other node, a name, processes and a
disk of its own (tmpfs). The server is moto's. Node 3's clock is 37 s ahead. In a second run node 5 is killed in the
middle, with all that runs on it. Without a store each node reaches node 0 alone, and the main node's fetcher is killed
in the first run, too. With ``--hurts``, or ``--hurt NAME``, there is a run for each thing that can be killed or cut
(:mod:`tests.ranks.nodes_hurts`) instead. Options: ``--nodes``, ``--ranks`` (of each node), ``--steps``, ``--way``
(store or network), ``--keep``. Where other programs take the processors, ranks are late, and nodes send late.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.ranks.nodes_hurts import HURTS, NET, Nodes, stamped
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.object_storage import addresses, mirror

SCRIPT = """
import os, sys, time
from pathlib import Path
import trackers
from trackers import Max, Mean, Sum

rank, steps = int(os.environ["RANK"]), int(sys.argv[1])
world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
together = Path("together-" + os.environ["TORCHELASTIC_RUN_ID"])


def wait():
    # A machine with few cores takes long to start all nodes' helpers: what follows is to meet them at work.
    until = time.monotonic() + 120
    here = Path(os.environ["TRACKER_STORE_DIR"])
    wanted = {"others/rank-*.jsonl": world - local, "streams/sampler-*.jsonl": world // local}
    while not together.exists() and time.monotonic() < until:
        if rank == 0 and all(len(list(here.rglob(path))) >= count for path, count in wanted.items()):
            together.touch()
        time.sleep(0.2)


run = trackers.init("json", project="check", name="nodes")
print("rank", rank, "on", os.uname().nodename, flush=True)
begin = time.monotonic()
for step in range(steps):
    run.log({"loss": Mean(float(rank + step), 2), "ranks": Sum(1), "top": Max(rank), "lr": 0.1}, step=step)
    if step == steps // 5:
        waited = time.monotonic()
        wait()
        begin += time.monotonic() - waited
    if step == steps // 2:
        print("halfway", flush=True)
    time.sleep(max(0.0, begin + (step + 1) * 0.1 - time.monotonic()))
run.finish(timeout=100)
if run.id and rank == 0:
    print("id", run.id, flush=True)
"""
SKEW = """
import time
at, real = time.clock_gettime, time.time
time.time = lambda: real() + {0}
time.clock_gettime = lambda clock: at(clock) + ({0} if clock == time.CLOCK_REALTIME else 0.0)
"""
AHEAD_S = 37.0
BRIDGE = "trackersbr"
EVERY_S = 2
STORE, NETWORK = "store", "network"
PORT = 29777


def sh(*words: str, check: bool = True) -> None:
    """Run a command quietly."""
    subprocess.run(words, check=check, stdout=subprocess.DEVNULL, stderr=None if check else subprocess.DEVNULL)


@contextlib.contextmanager
def network(count: int, way: str) -> Iterator[list[str]]:
    """A bridge with a cable to each of some network namespaces, which don't see each other, or the first one alone."""
    names = [f"trackers-node{number}" for number in range(count)]
    try:
        sh("ip", "link", "add", BRIDGE, "type", "bridge")
        sh("ip", "addr", "add", f"{NET}.1/24", "dev", BRIDGE)
        sh("ip", "link", "set", BRIDGE, "up")
        for number, name in enumerate(names):
            sh("ip", "netns", "add", name)
            sh("ip", "link", "add", f"tr{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            sh("ip", "link", "set", f"tr{number}", "master", BRIDGE, "up")
            if number or way == STORE:
                sh("bridge", "link", "set", "dev", f"tr{number}", "isolated", "on")
            sh("ip", "-n", name, "addr", "add", f"{NET}.{number + 10}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
            sh("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            sh("ip", "netns", "del", name, check=False)
        sh("ip", "link", "del", BRIDGE, check=False)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """moto's server on the bridge."""
    url = f"http://{NET}.1:5123"
    code = f"from moto.server import main; main(['-H', '{NET}.1', '-p', '5123'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=5).close()
                break
            assert process.poll() is None, "moto's server doesn't start: pip install 'moto[server]'"
            time.sleep(0.1)
        urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
        yield url
    finally:
        process.terminate()
        process.wait()


def start(here: Path, names: list[str], ranks: int, steps: int, environ: dict[str, str]) -> list[Any]:
    """Start all nodes; each is a process that ends with its ranks, and whose end is that of all on the node."""
    job, found = secrets.token_hex(4), []
    for number, name in enumerate(names):
        disk, out = here / "disk", here / f"out-{number}"
        lines = [f"hostname node{number}", f"mount -t tmpfs tmpfs {disk}", f"mkdir {disk}/python {disk}/store"]
        if number == 3:
            lines.append(f"printf '%s' '{SKEW.format(AHEAD_S)}' > {disk}/python/sitecustomize.py")
        lines += [
            f"RANK={number * ranks + local} LOCAL_RANK={local} {sys.executable} {here}/train.py {steps} "
            f"> {out}-{local} 2>&1 &"
            for local in range(ranks)
        ]
        lines += ["wait", f"cat {disk}/store/*/runs/.ranks/*/relay.log > {out}.log 2> /dev/null || true"]
        if environ.get("TRACKER_NODES") == NETWORK:
            lines[-1] = f"cat {disk}/store/.ranks/*/relay.log > {out}.log 2> /dev/null || true"
            if number == 0:
                lines.append(f"cp -r {disk}/store {here}/run")
            if number == 0 and environ.get("KILLED") == "fetcher":
                kill = "import psutil; [p.kill() for p in psutil.process_iter() if 'fetch' in p.cmdline()]"
                until = f"until grep -q halfway {out}-0; do sleep 0.2; done"
                lines.insert(-3, f'({until}; {sys.executable} -c "{kill}") &')
        launched = {
            "WORLD_SIZE": str(len(names) * ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": str(number),
            "GROUP_WORLD_SIZE": str(len(names)), "MASTER_ADDR": f"{NET}.10", "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": job, "TRACKER_STORE_DIR": f"{disk}/store", "PYTHONPATH": f"{disk}/python",
            "TRACKER_DIR": environ.get("TRACKER_DIR", f"{disk}/store"),
        }  # fmt: skip
        found.append(
            subprocess.Popen(
                ["ip", "netns", "exec", name, "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child",
                 "--mount-proc", "sh", "-ec", "\n".join(lines)],
                env={**environ, **launched}, cwd=here, stdout=subprocess.DEVNULL,
            )
        )  # fmt: skip
    return found


class Check:
    """What is looked at after a run. failed: how many things didn't hold."""

    def __init__(self) -> None:
        self.failed = 0

    def that(self, what: str, held: bool, more: object = "") -> None:
        self.failed += not held
        print(f"{'ok' if held else 'FAILED':6}  {what}{f': {more}' if str(more) else ''}", flush=True)


def reduced(run: Path) -> dict[int, list[dict[str, float]]]:
    """What was recorded at each step."""
    found: dict[int, list[dict[str, float]]] = {}
    for line in (run / "streams/reducer-0.1.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "metrics":
            found.setdefault(record["step"], []).append(record["values"])
    return found


def copied(here: Path, url: str, prefix: str) -> Path:
    """The only run of a prefix, as a reader gets it."""
    if not url:
        (here / "run").rename(here / prefix)
        (run,) = (path.parent for path in (here / prefix).glob("check/*/run.json"))
        return run
    os.environ["AWS_ENDPOINT_URL"] = url
    root = mirror.update_copy(addresses.normalize(f"s3://bucket/{prefix}"), str(here / f"reader-{prefix}"))
    (run,) = (path.parent for path in root.glob("check/*/run.json"))
    return run


def said(here: Path, number: int, ranks: int) -> str:
    """What a node's ranks printed."""
    paths = [here / f"out-{number}-{local}" for local in range(ranks)]
    return "".join(path.read_text() for path in paths if path.exists())


def logs(here: Path) -> str:
    """What the nodes' carriers complained of."""
    return "".join(f"{path.name}: {path.read_text()}" for path in sorted(here.glob("out-*.log")) if path.stat().st_size)


def whole(check: Check, here: Path, url: str, names: list[str], options: argparse.Namespace) -> None:
    """All nodes train to the end."""
    environ = _environ(url, "whole") | ({} if url else {"KILLED": "fetcher"})
    began = time.monotonic()
    codes = [node.wait(600) for node in start(here, names, options.ranks, options.steps, environ)]
    check.that("every node ends", codes == [0] * len(names), f"{time.monotonic() - began:.1f} s")
    if url:
        check.that("no carrier complains", not logs(here), logs(here))
    else:
        lines = logs(here).splitlines()
        back = [line for line in lines if line.endswith("sending again")]
        check.that("carriers lose the main node's fetcher, which is killed, and go on", len(back) >= len(names) - 1)
    run, ranks = copied(here, url, "whole"), options.ranks * len(names)
    mean = (ranks - 1) / 2
    wanted = {
        step: [{"loss": (mean + step) / 2, "ranks": float(ranks), "top": float(ranks - 1)}]
        for step in range(options.steps)
    }
    found = reduced(run)
    wrong = sum(found.get(step) != values for step, values in wanted.items())
    check.that(f"values of {ranks} ranks at {options.steps} steps, each once", not wrong and len(found) == len(wanted),
               f"{wrong} wrong")  # fmt: skip
    times = {}
    for number in range(len(names)):
        path = run / f"streams/sampler-{number}.1.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        seen = [line["time"] for line in lines if f"system.node{number}.cpu" in line.get("values", {})]
        if seen:
            times[number] = seen
    check.that("samples of every node under its name", len(times) == len(names), f"of {len(times)}")
    low, high = (f([at for number in times if number != 3 for at in times[number]]) for f in (min, max))
    if 3 in times:
        off = max(low - min(times[3]), max(times[3]) - high, 0.0)
        check.that(f"samples of the node whose clock is {AHEAD_S:.0f} s ahead lie among the others'", off < 3.0,
                   f"{off:.1f} s outside")  # fmt: skip
        text = said(here, 0, options.ranks)
        check.that("that clock is told", "node 3 (node3): its clock is 3" in text and "s ahead" in text)
    lines = sum(
        f"rank {rank} on node{rank // options.ranks}" in path.read_text()
        for rank in range(ranks)
        if (path := run / f"streams/console-{rank}.1.jsonl").exists()
    )
    check.that("what every rank printed", lines == ranks, f"of {lines}")


def killed(check: Check, here: Path, url: str, names: list[str], options: argparse.Namespace) -> None:
    """A node is killed in the middle."""
    environ = _environ(url, "killed")
    victim = min(5, len(names) - 1)
    for path in here.glob("out-*"):
        path.unlink()
    nodes = start(here, names, options.ranks, options.steps, environ)
    until = time.monotonic() + 120
    while "halfway" not in said(here, victim, options.ranks) and time.monotonic() < until:
        time.sleep(0.1)
    nodes[victim].kill()  # its processes go with it: --kill-child, and the end of a namespace of processes
    logged = time.time()
    codes = [node.wait(600) for number, node in enumerate(nodes) if number != victim]
    check.that("the other nodes end", not any(codes))
    run, ranks = copied(here, url, "killed"), options.ranks * len(names)
    found = reduced(run)
    once = sorted(found) == list(range(options.steps)) and all(
        [name for part in parts for name in part].count("loss") == 1 for parts in found.values()
    )
    check.that("a value at every step, each once", once, f"{len(found)} of {options.steps}")
    counts = {step: next(part["ranks"] for part in parts if "ranks" in part) for step, parts in found.items()}
    complete = [step for step, count in counts.items() if count == ranks]
    rest = ranks - options.ranks
    check.that("values are of all ranks, later of those on the living nodes",
               all(rest <= count <= ranks for count in counts.values()) and counts[options.steps - 1] == rest,
               sorted(set(counts.values())))  # fmt: skip
    stamps = [json.loads(line) for line in (run / "streams/rank-0.1.jsonl").read_text().splitlines()]
    before = [line["step"] for line in stamps if line.get("kind") == "metrics" and line["time"] < logged]
    lost_s = (max(before, default=0) - max(complete, default=0)) * 0.1
    check.that("of the dead node is lost what it hadn't sent", lost_s <= EVERY_S + 3,
               f"{lost_s:.1f} s, sent every {EVERY_S} s")  # fmt: skip


def hurt(check: Check, here: Path, url: str, names: list[str], options: argparse.Namespace, hurts: str) -> None:
    """Something is killed or cut in the middle."""
    what = HURTS[hurts]
    for path in here.glob("out-*"):
        path.unlink()
    processes = start(here, names, options.ranks, options.steps, _environ(url, hurts))
    until = time.monotonic() + 120
    while "halfway" not in said(here, 0, options.ranks) and time.monotonic() < until:
        time.sleep(0.1)
    hurt_at = time.time()
    what.do(Nodes(names, processes))
    codes = [process.wait(600) for process in processes]
    run, ranks = copied(here, url, hurts), options.ranks * len(names)
    mean = (ranks - 1) / 2
    found = reduced(run)
    wanted = {step: {"loss": (mean + step) / 2, "ranks": float(ranks), "top": float(ranks - 1)}
              for step in range(options.steps)}  # fmt: skip
    if what.whole:
        wrong = [step for step in wanted if found.get(step) != [wanted[step]]]
        check.that(f"{hurts}: every node ends", not any(codes), codes)
        more = f", {wrong[:5]}: {[found.get(step) for step in wrong[:2]]}" if wrong else ""
        check.that(f"{hurts}: values of {ranks} ranks at {options.steps} steps, each once", not wrong,
                   f"{len(wrong)} wrong{more}")  # fmt: skip
    else:
        before = [step for step, at in stamped(run).items() if at < hurt_at]
        complete = [step for step in sorted(found) if found[step] == [wanted[step]]]
        twice = [step for step, parts in found.items() if [name for part in parts for name in part].count("loss") != 1]
        lost_s = (max(before, default=0) - max(complete, default=0)) * 0.1
        gap = [step for step in range(max(complete, default=0)) if step not in complete]
        check.that(f"{hurts}: the other nodes end", not any(codes[1:]), codes)
        check.that(
            f"{hurts}: values up to then, each once", not twice and not gap, f"{len(complete)}, {twice[:5]}, {gap[:5]}"
        )
        check.that(
            f"{hurts}: lost is what wasn't sent", lost_s <= EVERY_S + 3, f"{lost_s:.1f} s, sent every {EVERY_S} s"
        )
    status = observe(RunDirectory(run)).name
    check.that(
        f"{hurts}: the run has{'' if what.whole else ' not'} finished", (status == "finished") is what.whole, status
    )
    print("".join(f"          {line}\n" for number in range(len(names)) for line in
                  said(here, number, options.ranks).splitlines() if line.startswith("trackers:")), end="")  # fmt: skip
    print("".join(f"          {line}\n" for line in logs(here).splitlines()[:12]), end="", flush=True)


def _environ(url: str, prefix: str) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("TRACKER", "AWS_"))}
    if not url:
        return {
            **plain, "TRACKER_NODES": NETWORK, "TRACKER_NODES_PORT": str(PORT), "TRACKER_STORE_EVERY": str(EVERY_S),
            "TRACKER_NODES_SECRET": secrets.token_hex(16), "TRACKER_SAMPLE_RECORD_INTERVAL": "2", "TRACKER_AGENT": "n",
        }  # fmt: skip
    return {
        **plain, "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1", "TRACKER_DIR": f"s3://bucket/{prefix}", "TRACKER_STORE_EVERY": str(EVERY_S),
        "TRACKER_SAMPLE_RECORD_INTERVAL": "2", "TRACKER_AGENT": "n",
    }  # fmt: skip


def main() -> int:
    """The command; 1 if something didn't hold."""
    parser = argparse.ArgumentParser(prog="make nodes-check", description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--way", choices=(STORE, NETWORK), action="append")
    parser.add_argument("--hurt", choices=HURTS, action="append", help="only these, instead of the two runs")
    parser.add_argument("--keep", action="store_true", help="keep the files where something failed")
    parser.add_argument("--hurts", action="store_const", dest="hurt", const=[*HURTS], help="each of them")
    options = parser.parse_args()
    if not hasattr(os, "geteuid") or os.geteuid() or not shutil.which("ip"):
        print("nodes-check: needs root, and Debian's iproute2 and util-linux", file=sys.stderr)
        return 2
    check = Check()
    for way in options.way or (STORE, NETWORK):
        print(f"nodes that share {'an S3 server alone' if way == STORE else 'nothing'}:", flush=True)
        here = Path(tempfile.mkdtemp(prefix="trackers-nodes-check-"))
        (here / "disk").mkdir()
        (here / "train.py").write_text(SCRIPT)
        try:
            with network(options.nodes, way) as names, server() if way == STORE else contextlib.nullcontext("") as url:
                if url:
                    os.environ.update(_environ(url, "none"))
                for hurts in options.hurt or ():
                    if way in HURTS[hurts].ways:
                        hurt(check, here, url, names, options, hurts)
                if not options.hurt:
                    whole(check, here, url, names, options)
                    killed(check, here, url, names, options)
        finally:
            if options.keep and check.failed:
                print(f"kept: {here}")
            else:
                shutil.rmtree(here, ignore_errors=True)
    return min(check.failed, 1)


if __name__ == "__main__":
    sys.exit(main())
