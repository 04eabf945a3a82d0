"""``python -m tests.chaos.fleet``: a fleet of runs writes to a store through a few relays, which are killed at random.

Writers append records to the runs' journals at a steady rate. Each relay is one process that has the deliveries of many
runs to the store, the real ones. Some requests fail, half of those after they were carried out. Now and then a relay or
a writer is killed (SIGKILL) and begins again. At the end the store is copied, and every run's records are counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.helpers import begun_run
from tests.object_storage.support import Failing
from trackers.backends.storage import tracker as storage
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter, last_record
from trackers.object_storage import mirror
from trackers.records import Finish, Metrics, encode
from trackers.relay.delivery.delivery import Delivery, Stop

TICK_S = 0.5
"""Between two writings of a writer, in seconds."""
LAST_S = 300.0
"""How long the relays may take for the rest, in seconds."""
PROJECT = "fleet"


@dataclasses.dataclass
class Plan:
    """runs, relays, writers: how many. rate: records a second and run. every_s: between a run's sendings.
    kill_s: between two kills. failing: of how many requests."""

    runs: int = 1000
    relays: int = 16
    writers: int = 2
    seconds: float = 600.0
    rate: float = 10.0
    every_s: float = 5.0
    kill_s: float = 2.0
    failing: float = 0.02
    seed: str = "1"


@dataclasses.dataclass
class Outcome:
    """What was counted: records written, of those lost and doubled in the store; runs whose end isn't there; kills;
    processor seconds of the relays; seconds from the last record until the store had all."""

    written: int = 0
    lost: int = 0
    doubled: int = 0
    unended: int = 0
    kills: int = 0
    processor_s: float = 0.0
    rest_s: float = 0.0
    objects: int = 0


def write(runs: Sequence[RunDirectory], plan: Plan, until: float) -> None:
    """Append records to runs until a time, then their end; goes on where an earlier writer was killed."""
    streams, following = [], []
    for run in runs:
        path = run.stream(StreamName("rank", 0, 1))
        streams.append(StreamWriter(path))
        last = last_record(path)
        following.append(last.step + 1 if isinstance(last, Metrics) and last.step is not None else 0)
        if isinstance(last, Finish):
            following[-1] = -1
    count = max(1, round(plan.rate * TICK_S))
    while (now := time.time()) < until:
        for number, stream in enumerate(streams):
            for _ in range(count):
                stream.write(
                    encode(Metrics(step=following[number], time=time.time(), values={"loss": random.random()}))
                )
                following[number] += 1
        time.sleep(max(0.0, now + TICK_S - time.time()))
    for number, stream in enumerate(streams):
        if following[number] >= 0:
            stream.write(encode(Finish(time=time.time(), status="finished")))
        stream.release()


def relay(runs: Sequence[RunDirectory], plan: Plan, seed: str) -> None:
    """Deliver runs to the store until they have ended there."""
    chance = random.Random(seed)
    storage.Store = lambda where: Failing(where, chance.randrange(2**32), plan.failing)  # type: ignore[assignment, misc]
    storage.OTHERS_S = 0.0
    works = [Delivery(run, "storage", say=lambda text: None, alone=False) for run in runs]
    begin = time.monotonic()
    due = [(begin + chance.random() * plan.every_s, number) for number in range(len(works))]
    heapq.heapify(due)
    while due:
        at, number = heapq.heappop(due)
        time.sleep(max(0.0, at - time.monotonic()))
        try:
            pause = works[number].step()
        except Stop as stop:
            if not stop.restart:
                raise
            works[number] = Delivery(runs[number], "storage", say=lambda text: None, alone=False)
            pause = 0.1
        if pause is not None:
            now = time.monotonic()
            again = now if works[number]._has_ended() else max(now, at + plan.every_s)
            heapq.heappush(due, (max(again, now + min(pause, 0.2)), number))


class Processes:
    """Forks, each of which begins again when it is killed."""

    def __init__(self) -> None:
        self._work: dict[int, tuple[str, Callable[[], None]]] = {}
        self.failed: list[str] = []
        self.processor_s = 0.0

    def start(self, name: str, work: Callable[[], None]) -> None:
        pid = os.fork()
        if pid:
            self._work[pid] = name, work
            return
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def kill(self, chance: random.Random, kinds: Sequence[str]) -> bool:
        """Kill one of them, which begins again; False where there is none."""
        found = sorted(pid for pid, (name, _) in self._work.items() if name.startswith(tuple(kinds)))
        if not found:
            return False
        pid = chance.choice(found)
        os.kill(pid, signal.SIGKILL)
        name, work = self._work[pid]
        self.look(pid)
        if pid not in self._work:
            self.start(name, work)
        return True

    def look(self, pid: int = -1) -> None:
        """See who has ended. pid: wait for this one."""
        for one in [pid] if pid > 0 else list(self._work):
            found, status, usage = os.wait4(one, 0 if pid > 0 else os.WNOHANG)
            if found:
                name, _ = self._work.pop(found)
                self.processor_s += (usage.ru_utime + usage.ru_stime) if name.startswith("relay") else 0.0
                if os.waitstatus_to_exitcode(status) > 0:
                    self.failed.append(name)

    def names(self) -> list[str]:
        """Those that work."""
        return [name for name, _ in self._work.values()]

    def end(self) -> None:
        """Kill all."""
        for pid in list(self._work):
            os.kill(pid, signal.SIGKILL)
            self.look(pid)


def play(root: Path, plan: Plan, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """Let a fleet write, and count what the store has of it."""
    where, chance, outcome = f"file://{root}/store", random.Random(plan.seed), Outcome()
    options = {"TRACKER_DIR": where, "TRACKER_STORE_EVERY": max(1, round(plan.every_s * 0.9))}
    runs = []
    for number in range(plan.runs):
        run, writer = begun_run(root / "runs" / PROJECT / f"run{number:04d}", trackers=["storage"], options=options)
        writer.release()
        runs.append(run)
    processes = Processes()
    until = time.time() + plan.seconds
    try:
        for number in range(plan.relays):
            seed = f"{plan.seed}:{number}"
            processes.start(f"relay {number}", lambda n=number, s=seed: relay(runs[n :: plan.relays], plan, s))  # type: ignore[misc]
        for number in range(plan.writers):
            processes.start(f"writer {number}", lambda n=number: write(runs[n :: plan.writers], plan, until))  # type: ignore[misc]
        told = time.time()
        while any(name.startswith("writer") for name in processes.names()):
            time.sleep(plan.kill_s * chance.uniform(0.5, 1.5))
            processes.look()
            kinds = ("writer",) if chance.random() < 0.1 and time.time() < until else ("relay",)
            outcome.kills += processes.kill(chance, kinds)
            if time.time() - told > 30:
                told = time.time()
                say(f"{until - told:.0f} s to go, {outcome.kills} kills")
        ended = time.time()
        while processes.names() and time.time() < ended + LAST_S:
            time.sleep(0.2)
            processes.look()
        outcome.rest_s = time.time() - ended
    finally:
        processes.end()
    outcome.processor_s = processes.processor_s
    if processes.failed:
        say(f"failed: {', '.join(processes.failed)}")
    count(root, where, runs, outcome)
    return outcome


def count(root: Path, where: str, runs: Sequence[RunDirectory], outcome: Outcome) -> None:
    """Compare what was written with what a reader of the store gets."""
    mirror.copy(where, root / "copy")
    outcome.objects = sum(1 for _ in mirror.Store(where).objects())
    for run in runs:
        name = f"{StreamName('rank', 0, 1)}.jsonl"
        written = _steps(run.streams / name)
        stored = _steps(root / "copy" / PROJECT / run.path.name / "streams" / name)
        outcome.written += len(written)
        outcome.lost += len(set(written) - set(stored))
        outcome.doubled += len(stored) - len(set(stored))
        account = root / "copy" / PROJECT / run.path.name / "delivery/storage.json"
        closed = json.loads(account.read_text()).get("closed") if account.exists() else ""
        outcome.unended += closed != "finished"


def _steps(path: Path) -> list[int]:
    if not path.exists():
        return []
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [line["step"] for line in lines if line.get("kind") == "metrics"]


def main() -> int:
    """The command; 1 if anything was lost or doubled."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fleet", description=__doc__)
    for field in dataclasses.fields(Plan):
        kind = type(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    plan = Plan(**vars(parser.parse_args()))
    root = Path(tempfile.mkdtemp(prefix="trackers-fleet-"))
    try:
        outcome = play(root, plan, lambda text: print(text, flush=True))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for name, value in dataclasses.asdict(outcome).items():
        print(f"{name:12} {value:,.1f}" if isinstance(value, float) else f"{name:12} {value:,}")
    print(f"{outcome.processor_s / max(1, outcome.written) * 1e6:.0f} us of a relay's processor a record")
    return int(bool(outcome.lost or outcome.doubled or outcome.unended))


if __name__ == "__main__":
    sys.exit(main())
