"""A fleet of live runs into a lake in a bucket, while nodes, writers and collectors are killed: losses, and cost.

A driver writes the journals of all runs, each with 50 values a second. Each node is a process with the deliveries of
its runs, the real ones. The bucket is a stand-in on loopback that counts what is asked, and answers after 30 ms. Two
designs: the writer of each node puts its runs into the lake (``TRACKER_LAKE_WRITER=node``), or the nodes send their
runs to a store, and two collectors (``trackers lake collect``) bring them into a lake. Every few seconds a node dies
with all that it runs but training, now and then a lake's writer, a collector or a driver alone (SIGKILL); each begins
again. At the end every value in the lake is compared with what was logged. 256 runs on 32 nodes are what two cores and
6 GB of memory can play; ``--runs``, ``--nodes`` and the other fields of :class:`Plan` are options.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import heapq
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

import numpy as np
import psutil

from benchmarks.common import ROOT, Figure, main
from benchmarks.lake_collect import READ_DOLLARS, WRITE_DOLLARS
from tests import plugin_site
from tests.chaos.fleet import Processes
from tests.fakes.counting_s3 import KINDS, CountingS3
from tests.helpers import begun_run
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter, last_record
from trackers.object_storage import layout
from trackers.records import Finish, Metrics, encode
from trackers.relay.delivery.delivery import Delivery, Stop
from trackers.support import machines, processes

NAMES = [f"m{number}" for number in range(10)]
RECORDS_S = 5
"""Records a second and run, each of ten values."""
STEP_S, SAMPLE_S, MEMORY_S = 5.0, 5.0, 60.0
"""Between two steps of a delivery, two looks at the processes' processor time, two at their memory."""
REST_S = 600.0
"""How long all may take for what is left when the last run has ended, in seconds."""
DAY_S = 86400.0
LAKE, STORE = "s3://bucket/lake", "s3://bucket/runs"
NODE = "trackers_lake.node"
STREAM = StreamName("rank", 0, 1)
DESIGNS = ("node", "store")


@dataclasses.dataclass
class Plan:
    """runs, nodes, collectors, drivers: how many. seconds: for how long they log. spread: over how many seconds more
    the nodes' runs end. every, store_every: between rounds of the lake's writers, and sendings to the store. kill:
    seconds between two kills. delay: of a request. design: "" for all."""

    runs: int = 256
    nodes: int = 32
    collectors: int = 2
    drivers: int = 2
    seconds: float = 1200.0
    spread: float = 120.0
    every: int = 60
    store_every: int = 30
    kill: float = 20.0
    delay: float = 0.03
    design: str = ""


def values(run: int, steps: Any, names: Any) -> Any:
    """What a run logs at steps under names, by their numbers: below 1, with all their digits."""
    with np.errstate(over="ignore"):
        mixed = np.uint64(run) << np.uint64(40) | steps.astype(np.uint64) << np.uint64(8) | names.astype(np.uint64)
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 2.0**53


def drive(runs: Sequence[tuple[int, RunDirectory, float]], begin: float) -> None:
    """Log for runs what is due, until they end; goes on where an earlier driver was killed.

    Args:
        runs: by number, directory and the time of their end. begin: of all.
    """
    streams: dict[int, tuple[StreamWriter, int, float]] = {}
    for number, run, until in runs:
        last = last_record(run.stream(STREAM))
        if not isinstance(last, Finish):
            step = last.step + 1 if isinstance(last, Metrics) and last.step is not None else 0
            streams[number] = StreamWriter(run.stream(STREAM)), step, until
    columns = np.arange(len(NAMES))
    while streams:
        began = time.time()
        for number, (stream, step, until) in list(streams.items()):
            steps = np.arange(step, max(step, int((min(time.time(), until) - begin) * RECORDS_S)))
            lines = []
            for at, row in zip(steps.tolist(), values(number, steps[:, None], columns[None, :]).tolist(), strict=True):
                record = Metrics(step=at, time=begin + at / RECORDS_S, values=dict(zip(NAMES, row, strict=True)))
                lines.append(encode(record))
            streams[number] = stream, step + len(lines), until
            if began >= until:
                lines.append(encode(Finish(time=began, status="finished", exit_code=0)))
                del streams[number]
            stream.write(b"".join(lines))
        time.sleep(max(0.0, began + 1.0 - time.time()))


def node(runs: Sequence[RunDirectory], tracker: str, variables: dict[str, str]) -> None:
    """The deliveries of a node's runs, until all have ended: those that end do so at once, as processes would."""
    os.environ.update(variables)
    ends = []
    leases = [Lease(run.path / "relay.lease") for run in runs]
    works = [begun(run, tracker) for run in runs]
    due = [(time.monotonic() + random.random() * STEP_S, number) for number in range(len(runs))]
    heapq.heapify(due)
    while due:
        at, number = heapq.heappop(due)
        time.sleep(max(0.0, at - time.monotonic()))
        if leases[number].acquire():
            leases[number].beat()
        work = works[number]
        if work._has_ended():
            ends.append(threading.Thread(target=end, args=(work,)))
            ends[-1].start()
            continue
        try:
            pause = work.step()
        except Stop as stop:
            if not stop.restart:
                raise
            works[number], pause = begun(runs[number], tracker), 0.0
        now = time.monotonic()
        heapq.heappush(due, (now + (pause or 0.0) if work._batch else max(now, at + STEP_S), number))
    for one in ends:
        one.join()


def begun(run: RunDirectory, tracker: str) -> Delivery:
    return Delivery(run, tracker, say=lambda text: None, alone=False)


def end(work: Delivery) -> None:
    """Deliver what is left of a run that has ended."""
    while True:
        try:
            if (pause := work.step()) is None:
                return
            time.sleep(pause)
        except Stop as stop:
            if not stop.restart:
                raise
            work = begun(work.run, work.name)


class Watch:
    """What the parts of a fleet take: processor seconds, and memory in MB, of processes and of all together."""

    def __init__(self) -> None:
        self.processor: dict[int, tuple[str, float]] = {}
        self.memory: defaultdict[str, float] = defaultdict(float)
        self.largest: defaultdict[str, float] = defaultdict(float)
        self._parts: dict[int, str] = {}
        self._looked = self._weighed = 0.0

    def look(self, names: dict[int, str], *, now: bool = False) -> None:
        """Look at this process's descendants. names: of its children's parts, by pid."""
        if not now and time.monotonic() - self._looked < SAMPLE_S:
            return
        weigh = time.monotonic() - self._weighed >= MEMORY_S
        self._looked = time.monotonic()
        total: Counter[str] = Counter()
        for process in psutil.Process().children(recursive=True):
            try:
                part = self._part(process, names)
                times = process.cpu_times()
                self.processor[process.pid] = part, times.user + times.system
                if weigh:
                    rss, pss = _memory(process.pid)
                    total[part] += pss
                    self.largest[part] = max(self.largest[part], rss)
            except (psutil.Error, OSError):
                continue
        for part, size in total.items():
            self.memory[part] = max(self.memory[part], size)
        self._weighed = time.monotonic() if weigh else self._weighed

    def seconds(self) -> defaultdict[str, float]:
        """Processor seconds so far, by part."""
        found: defaultdict[str, float] = defaultdict(float)
        for part, used in self.processor.values():
            found[part] += used
        return found

    def _part(self, process: psutil.Process, names: dict[int, str]) -> str:
        if process.pid in names:
            return names[process.pid].partition(" ")[0]
        if process.pid not in self._parts:
            words = _words(process)
            self._parts[process.pid] = (
                "lake-writer" if NODE in words else "lake-add" if words[3:5] == ["lake", "add"]
                else "server" if "tests.fakes.counting_s3" in words else "other"
            )  # fmt: skip
        return self._parts[process.pid]


def _words(process: psutil.Process) -> list[str]:
    """A process's command; [] where it has just ended."""
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def _memory(pid: int) -> tuple[int, int]:
    """Resident and proportional size of a process, in MB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    rss, pss = (int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1]) for name in ("Rss", "Pss"))  # type: ignore[index]
    return rss // 1024, pss // 1024


class Fleet(Processes):
    """Processes that fall with all that they have started."""

    def __init__(self) -> None:
        super().__init__()
        self._works: dict[str, Callable[[], None]] = {}

    def start(self, name: str, work: Callable[[], None]) -> None:
        self._works[name] = work
        super().start(name, work)

    def again(self, kind: str) -> list[str]:
        """Start those of a kind again that have ended with an error, as who runs them would; their names."""
        found = [name for name in self.failed if name.startswith(kind)]
        self.failed = [name for name in self.failed if name not in found]
        for name in found:
            self.start(name, self._works[name])
        return found

    def parts(self) -> dict[int, str]:
        """Names by pid."""
        return {pid: name for pid, (name, _) in self._work.items()}

    def strike(self, chance: random.Random, kind: str) -> bool:
        """Kill one of a kind, with what it started, which begins again; "lake-writer": a node's writer alone."""
        found = sorted(pid for pid, name in self.parts().items() if name.startswith(kind))
        if kind == "lake-writer":
            found = sorted(one.pid for one in psutil.Process().children(recursive=True) if NODE in _words(one))
        if not found:
            return False
        pid = chance.choice(found)
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            below = psutil.Process(pid).children(recursive=True)
            os.kill(pid, signal.SIGKILL)
            for process in below:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        if pid in self._work:
            name, work = self._work[pid]
            self.look(pid)
            self.start(name, work)
        return True


def play(design: str, plan: Plan, say: Callable[[str], None]) -> list[Figure]:
    """Let a fleet work by a design; its figures."""
    chance = random.Random(f"{design} 1")
    root = Path(design).absolute()
    os.environ["XDG_RUNTIME_DIR"] = str(root / "runtime")
    (root / "runtime").mkdir(parents=True, mode=0o700)
    began = time.time()
    runs, ends = [], []
    here = machines.machine()
    for number in range(plan.runs):
        options: dict[str, Any] = {
            "TRACKER_LAKE": LAKE,
            "TRACKER_LAKE_EVERY": plan.every,
            "TRACKER_LAKE_WRITER": "node",
        }
        if design == "store":
            options = {"TRACKER_DIR": STORE, "TRACKER_STORE_EVERY": plan.store_every}
        run, writer = begun_run(
            root / f"runs/p{number % 20:02d}/r{number:04d}", id=f"r{number:04d}", project=f"p{number % 20:02d}",
            created=began + number, trackers=["lake" if design == "node" else "storage"], options=options,
            host=here.host, boot_id=here.boot_id, pid_namespace=here.pid_namespace, pid=os.getpid(),
            pid_start=processes.process_start(os.getpid()),
        )  # fmt: skip
        writer.release()
        runs.append(run)
    fleet, watch, kills = Fleet(), Watch(), Counter[str]()
    with CountingS3(plan.delay) as server:
        os.environ.update(server.variables("nobody"))
        began = time.time()
        until = began + plan.seconds
        ends = [until + plan.spread * (number % plan.nodes) / plan.nodes for number in range(plan.runs)]
        try:
            for at in range(plan.drivers):
                mine = [(number, runs[number], ends[number]) for number in range(at, plan.runs, plan.drivers)]
                fleet.start(f"driver {at}", lambda mine=mine: drive(mine, began))  # type: ignore[misc]
            tracker = "lake" if design == "node" else "storage"
            for at in range(plan.nodes):
                variables = server.variables(f"node-{at:03d}")
                fleet.start(f"node {at}", lambda at=at, to=variables: node(runs[at :: plan.nodes], tracker, to))  # type: ignore[misc]
            for at in range(plan.collectors if design == "store" else 0):
                variables = {**server.variables(f"collector-{at}"), "XDG_CACHE_HOME": str(root / f"cache{at}")}
                fleet.start(f"collector {at}", lambda to=variables: collector(plan, to))  # type: ignore[misc]
            figures = watched(fleet, watch, kills, server, plan, design, began, chance, say)
            rest = time.time()
            while time.time() < rest + REST_S and not ended(fleet, design, plan, server):
                time.sleep(1.0)
                fleet.look()
                kills["collector, by itself"] += len(fleet.again("collector"))
                watch.look(fleet.parts())
            rest_s = time.time() - max(ends)
        finally:
            watch.look(fleet.parts(), now=True)
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child.pid != server.pid:
                        child.kill()
            fleet.end()
        assert not fleet.failed, fleet.failed
        say(f"counting; server {watch.seconds()['server']:.0f} s of the processor")
        figures += [Figure(f"{design}: until all is in the lake", rest_s, "s"), *counted(design, runs)]
    for part, used in sorted(watch.seconds().items()):
        if part in ("server", "other"):
            continue
        figures.append(Figure(f"{design}: processor of all, {part}", used, "s"))
        figures.append(Figure(f"{design}: memory of all, {part}", watch.memory[part], "MB"))
        figures.append(Figure(f"{design}: memory of the largest, {part}", watch.largest[part], "MB"))
    figures += [Figure(f"{design}: kills, {kind}", count) for kind, count in sorted(kills.items())]
    shutil.rmtree(root, ignore_errors=True)
    return figures


def install_lake(site: Path) -> None:
    """Have this process and those that it starts find the lake's plug-in, where it isn't installed."""
    home = ROOT / "plugins/trackers-lake"
    path = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if not any(point.name == "lake" for point in metadata.entry_points(group="trackers.trackers")):
        plugin_site.install(site, "trackers-lake", plugin_site.points(home))
        sys.path.insert(0, str(site))
        path = [str(site), str(home), *path]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)


def collector(plan: Plan, variables: dict[str, str]) -> None:
    """``trackers lake collect`` in this process."""
    os.environ.update(variables)
    command = ["-m", "trackers", "lake", "collect", STORE, LAKE, "--every", str(plan.every)]
    with Path(variables["XDG_CACHE_HOME"] + ".log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.execv(sys.executable, [sys.executable, *command])  # noqa: S606


def watched(
    fleet: Fleet, watch: Watch, kills: Counter[str], server: CountingS3, plan: Plan, design: str, began: float,
    chance: random.Random, say: Callable[[str], None],
) -> list[Figure]:  # fmt: skip
    """Kill until training has ended; what was asked meanwhile, but for the begin."""
    steady, before, used = began + min(180.0, plan.seconds / 3), None, watch.seconds()
    struck, told = time.time() + plan.kill, began
    after: dict[str, Counter[str]] = {}
    figures: list[Figure] = []
    others = ("lake-writer",) if design == "node" else ("collector",)
    while any(name.startswith("driver") for name in fleet.names()):
        time.sleep(0.5)
        fleet.look()
        kills["collector, by itself"] += len(fallen := fleet.again("collector"))
        for name in fallen:
            log = Path(design, f"cache{name.rpartition(' ')[2]}.log")
            say(f"{name} ended: {log.read_text().splitlines()[-3:]}")
        assert not fleet.failed, fleet.failed
        watch.look(fleet.parts())
        now = time.time()
        if before is None and now >= steady:
            before, steady, used = server.counts(), now, watch.seconds()
        if not after and now >= began + plan.seconds:
            watch.look(fleet.parts(), now=True)
            after, until, lasted = server.counts(), watch.seconds(), now - steady
            figures = listed(design, server, plan, began)
        if now >= struck:
            struck = now + plan.kill * chance.uniform(0.5, 1.5)
            kind = chance.choices(("node", *others, "driver"), (0.7, 0.2, 0.1))[0]
            watch.look(fleet.parts(), now=True)
            kills[kind] += fleet.strike(chance, kind)
        if now - told >= 30:
            told = now
            say(f"{now - began:.0f} s, {kills.total()} kills, load {os.getloadavg()[0]:.1f}")
    assert before is not None
    for part in ("node", "collector"):
        asked: Counter[str] = Counter()
        for client, counts in after.items():
            if client.startswith(part):
                asked += counts - before.get(client, Counter())
        if asked:
            figures += requests(f"{design}: {part}s", asked, DAY_S / lasted)
    return [*figures, *(Figure(f"{design}: processor a second, {part}", (seconds - used[part]) / lasted, "s")
                        for part, seconds in sorted(until.items()) if part not in ("server", "other"))]  # fmt: skip


def listed(design: str, server: CountingS3, plan: Plan, began: float) -> list[Figure]:
    """What `trackers ls` of the live lake takes, and how far its runs are behind what was logged."""
    code = f"""if True:
        import json, statistics, time
        from trackers.analysis.source_list import overviews
        begin = time.monotonic()
        steps = [view.step or 0 for view in overviews(["lake:{LAKE}"], print)]
        took = time.monotonic() - begin
        steps += [0] * ({plan.runs} - len(steps))
        old = sorted(time.time() - {began} - step / {RECORDS_S} for step in steps)
        print(json.dumps([took, statistics.median(old), old[len(old) * 99 // 100], old[-1]]))"""
    environment = {**os.environ, **server.variables("list")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return []
    took, usual, many, oldest = json.loads(done.stdout.splitlines()[-1])
    asked = server.counts()["list"]
    return [
        Figure(f"{design}: ls of the live lake", took, "s"),
        Figure(f"{design}: ls of the live lake: requests", sum(asked[kind] for kind in KINDS)),
        Figure(f"{design}: the lake is behind, median", usual, "s"),
        Figure(f"{design}: the lake is behind, 99 of 100 runs less than", many, "s"),
        Figure(f"{design}: the lake is behind, at most", oldest, "s"),
    ]  # fmt: skip


def requests(name: str, asked: Counter[str], share: float) -> list[Figure]:
    """Requests, bytes and conflicts of a day."""
    writes, reads = asked["PUT"] + asked["LIST"], asked["GET"] + asked["HEAD"]
    return [
        *(Figure(f"{name}: {kind} a day", asked[kind] * share / 1e6, "million")
          for kind in KINDS),
        Figure(f"{name}: dollars a day", (writes * WRITE_DOLLARS + reads * READ_DOLLARS) * share),
        Figure(f"{name}: written a day", asked["in"] * share / 1e9, "GB"),
        Figure(f"{name}: read a day", asked["out"] * share / 1e9, "GB"),
        Figure(f"{name}: creations that another overtook a day", asked["refused"] * share / 1e3, "thousand"),
    ]  # fmt: skip


def ended(fleet: Fleet, design: str, plan: Plan, server: CountingS3) -> bool:
    """Whether all that was logged should be in the lake: nodes have ended; collectors have seen it."""
    if any(name.startswith("node") for name in fleet.names()):
        return False
    if design == "node":
        return True
    code = f"from trackers_lake.tables import Lake; print(*Lake({LAKE!r}).fingerprints().values(), sep=chr(10))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    time.sleep(5.0)
    return done.stdout.count(" finished\n") == plan.runs


def counted(design: str, runs: Sequence[RunDirectory]) -> list[Figure]:
    """Compare what was logged with the lake, value by value, and with the pieces in the store."""
    from trackers_lake.tables import Lake

    from trackers.object_storage.mirror import stored_runs
    from trackers.object_storage.store import Store

    written = {}
    for run in runs:
        last = [record for record in (last_record(run.stream(STREAM)),) if isinstance(record, Finish)]
        written[run.path.name] = run.stream(STREAM).read_bytes().count(b"\n") - 2 if last else 0
    seen: dict[str, Any] = {name: np.zeros((steps, len(NAMES)), np.uint8) for name, steps in written.items()}
    wrong, rows = 0, 0
    lake = Lake(LAKE)
    files = lake.snapshot("metrics").files
    for file in files.values():
        found = lake.rows("metrics", file, ["run", "name", "step", "value"])
        rows += len(found)
        names = np.array(
            [int(name[1:]) for name in found.column("name").combine_chunks().dictionary_decode().to_pylist()]
        )
        of = np.array([int(run[1:]) for run in found.column("run").combine_chunks().dictionary_decode().to_pylist()])
        steps, numbers = found.column("step").to_numpy(), found.column("value").to_numpy()
        for number in np.unique(of).tolist():
            mine = of == number
            wrong += int((values(number, steps[mine], names[mine]) != numbers[mine]).sum())
            np.add.at(seen[f"r{number:04d}"], (steps[mine], names[mine]), 1)
    logged = sum(steps * len(NAMES) for steps in written.values())
    statuses = sum("finished" in one for one in lake.fingerprints().values())
    size = sum(file.size for file in files.values())
    figures = [
        Figure(f"{design}: values logged", logged / 1e6, "million"),
        Figure(f"{design}: values lost", sum(int((one == 0).sum()) for one in seen.values()), at_most=0),
        Figure(f"{design}: values doubled", sum(int((one > 1).sum()) for one in seen.values()), at_most=0),
        Figure(f"{design}: values wrong", wrong, at_most=0),
        Figure(f"{design}: runs without their end", len(runs) - statuses, at_most=0),
        Figure(f"{design}: commits of metrics", lake.snapshot("metrics").version + 1),
        Figure(f"{design}: files of metrics", len(files)),
        Figure(f"{design}: bytes of metrics a value", size / max(1, rows)),
    ]
    if design == "store":
        broken = 0
        for stored in stored_runs(Store(STORE)):
            path = next(run for run in runs if run.path.name == stored.id).stream(STREAM)
            content = path.read_bytes()
            pieces = layout.chain(list(stored.pieces.get(f"streams/{path.name}", {})))
            whole = pieces and pieces[-1].end == len(content)
            broken += not whole or not all(piece.holds(content[piece.begin : piece.end]) for piece in pieces)
        figures.append(Figure(f"{design}: runs that the store hasn't whole", broken, at_most=0))
    return figures


def measure(quick: bool, plan: Plan | None = None) -> list[Figure]:
    """The figures."""
    install_lake(Path("site").absolute())
    plan = plan or (Plan(runs=16, nodes=4, seconds=40, spread=10, every=10, store_every=5, kill=4, drivers=1)
                    if quick else Plan())  # fmt: skip
    figures: list[Figure] = []
    for design in DESIGNS if not plan.design else (plan.design,):
        figures += play(design, plan, lambda text: print(text, file=sys.stderr, flush=True))
    return figures


def options() -> tuple[Plan | None, list[str]]:
    """A plan by flags, where one is given, and what is left for all benchmarks."""
    parser = argparse.ArgumentParser(add_help=False)
    for field in dataclasses.fields(Plan):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default))
    given, left = parser.parse_known_args()
    named = {name: value for name, value in vars(given).items() if value is not None}
    return (Plan(**named) if named else None), left


if __name__ == "__main__":
    chosen, sys.argv[1:] = options()
    main(lambda quick: measure(quick, chosen), "a fleet of live runs into a lake in a bucket")
