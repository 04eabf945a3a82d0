"""``make cloud-check BUCKET=s3://bucket/prefix``: what is promised of stores, tried on a real one; ten minutes at most.

Everything is written below a new folder of the prefix, ``trackers-check-…``, and removed at the end. Credentials are
those of the environment; ``AWS_ENDPOINT_URL`` names another S3 server. Exit code 0 if every step held.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trackers.errors import NotFound, TrackersError
from trackers.object_storage import addresses, launches, mirror
from trackers.object_storage.clock import StoreClock
from trackers.object_storage.store import Store

SCRIPT = """
import os, sys, time
import trackers

rank, first, steps = int(os.environ.get("RANK", 0)), int(sys.argv[1]), int(sys.argv[2])
more = {"id": sys.argv[3], "resume": sys.argv[4]} if len(sys.argv) > 3 else {}
run = trackers.init("json", project="check", name="cloud", **more)
for step in range(first, first + steps):
    run.log({"loss": 1 / (step + 1), "mean": trackers.Mean(float(rank), 1)}, step=step)
    print(step, flush=True)
    time.sleep(0.05)
run.finish(timeout=120)
print(run.id, flush=True)
"""
EVERY_S = 2
NAMES = ["plain", "with space", "per%cent", "a+b=c", "ümlaut", "x" * 200, "deep/er/and/deeper"]


class Check:
    """One session.

    Args:
        where: the folder of this session. here: a directory for what nodes have on their disks.
    """

    def __init__(self, where: str, here: Path) -> None:
        self.where, self.here = where, here
        self.store = Store(where)
        self.run_id = ""

    def objects(self) -> str:
        """Objects are written, listed, read, replaced and deleted, under odd names too."""
        for name in NAMES:
            self.store.put(f"objects/{name}", name.encode())
            self.store.put(f"objects/{name}", name.encode() * 2)
        listed = {one.name: one.size for one in self.store.objects("objects")}
        assert listed == {f"objects/{name}": 2 * len(name.encode()) for name in NAMES}, listed
        for name in NAMES:
            assert self.store.get(f"objects/{name}", 1000) == name.encode() * 2, name
        self.store.delete([f"objects/{name}" for name in NAMES])
        assert not list(self.store.objects("objects"))
        with contextlib.suppress(NotFound):
            self.store.get("objects/plain", 10)
            raise AssertionError("a deleted object was read")
        return f"{len(NAMES)} names"

    def conditional(self) -> str:
        """Of 20 that create an object at once, one is told that it did."""
        with ThreadPoolExecutor(20) as pool:
            won = list(pool.map(lambda number: self.store.create("claims/one", b"%d" % number), range(20)))
        assert sum(won) == 1, f"{sum(won)} were told so: this store has no conditional writes"
        assert self.store.get("claims/one", 10) == b"%d" % won.index(True)
        return "1 of 20"

    def clock(self) -> str:
        """This machine's clock is compared with the store's."""
        clock = StoreClock()
        for number in range(8):
            began = time.time()
            self.store.put("clock", b"%d" % number)
            clock.add(began, time.time(), self.store.written_at("clock"))
            time.sleep(0.23)
        assert abs(clock.ahead_s) < 600, f"this machine's clock is {clock.ahead_s:.0f} s ahead of the store's"
        return f"{clock.ahead_s:+.2f} s, within {clock.within_s:.2f} s"

    def many(self) -> str:
        """1,100 small objects are written, and listed page by page."""
        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda number: self.store.put(f"many/{number:05d}", b"x"), range(1100)))
        wrote_s, began = time.monotonic() - began, time.monotonic()
        assert len(list(self.store.objects("many"))) == 1100
        return f"written in {wrote_s:.1f} s, listed in {time.monotonic() - began:.1f} s"

    def killed(self) -> str:
        """A run whose node is killed (training and all helpers, SIGKILL): the store has all but the last seconds."""
        with self._node("a", "0", "400") as training:
            said = [int(line) for _, line in zip(range(200), training.stdout or [], strict=False)]
            _kill_node(training)
            said += [int(line) for line in (training.stdout or []) if line.strip().isdigit()]
        runs = mirror.stored_runs(self.store, "check")
        assert len(runs) == 1, f"{len(runs)} runs"
        self.run_id = runs[0].id
        steps = self._steps("reader-1")
        assert steps == list(range(len(steps))), "what is there isn't a beginning of what was logged"
        lost = len(said) - len(steps)
        assert steps, "nothing of it is there"
        assert lost * 0.05 <= EVERY_S + 5, f"{lost * 0.05:.1f} s are lost"
        return f"{len(steps)} of {len(said)} steps there, {max(0, lost) * 0.05:.1f} s lost (sent every {EVERY_S} s)"

    def resumed(self) -> str:
        """Another node goes on with it, and each step is there once."""
        first = len(self._steps("reader-1"))
        with self._node("b", str(first), "20", self.run_id, "must") as training:
            err = training.communicate(timeout=200)[1]
        assert training.returncode == 0, err
        steps = self._steps("reader-2")
        assert steps == list(range(first + 20)), steps[-30:]
        return f"{len(steps)} steps, each once"

    def contested(self) -> str:
        """Of two nodes that go on with it at once, one is told so."""
        first = str(len(self._steps("reader-2")))
        with (
            self._node("c", first, "20", self.run_id, "must") as one,
            self._node("d", first, "20", self.run_id, "must") as two,
        ):
            said = [node.communicate(timeout=200)[1] for node in (one, two)]
        # As it begins, or, where it began before the other, by its delivery.
        told = [text for text in said if "begun on" in text or "goes on elsewhere" in text]
        assert len(told) == 1, f"exit codes {one.returncode} and {two.returncode}: {said}"
        steps = self._steps("reader-3")
        assert steps == list(range(int(first) + 20)), steps[-30:]
        return told[0].strip().splitlines()[-1][:100]

    def nodes(self) -> str:
        """Two nodes of one rank each make one run, with values across both."""
        launched = {
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": secrets.token_hex(4), "LOCAL_RANK": "0",
        }  # fmt: skip
        with contextlib.ExitStack() as stack:
            ranks = [
                stack.enter_context(
                    self._node(f"node{rank}", "0", "40", RANK=str(rank), GROUP_RANK=str(rank), **launched)
                )
                for rank in range(2)
            ]
            said = [rank.communicate(timeout=200) for rank in ranks]
        assert all(rank.returncode == 0 for rank in ranks), said
        run_id = said[0][0].split()[-1]
        root = mirror.update_copy(addresses.normalize(self.where), str(self.here / "reader-4"))
        values = _values(root / "check" / run_id / "streams/reducer-0.1.jsonl", "mean")
        assert values == [(step, 0.5) for step in range(40)], values
        left = [one.name for one in self.store.objects(".ranks") if not one.name.endswith(launches.MAIN)]
        assert not left, left
        return f"{len(values)} values of both"

    def commands(self) -> str:
        """trackers ls and trackers show read the address."""
        environ = {**os.environ, "TRACKER_STORE_DIR": str(self.here / "reader-5"), "TRACKER_DIR": self.where}
        for words in (["ls"], ["show", self.run_id]):
            done = subprocess.run(
                [sys.executable, "-m", "trackers", *words], env=environ, capture_output=True, text=True, timeout=200
            )
            assert done.returncode == 0, done.stderr
            assert self.run_id in done.stdout, done.stdout
        return self.run_id

    def removed(self) -> str:
        """Everything that this session wrote is deleted."""
        names = [one.name for one in self.store.objects()]
        for first in range(0, len(names), 1000):
            self.store.delete(names[first : first + 1000])
        left = [one.name for one in self.store.objects()]
        assert not left, left[:5]
        return f"{len(names)} objects"

    @contextlib.contextmanager
    def _node(self, name: str, *words: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """Training on a node of that name: a process group, with a disk of its own."""
        plain = {key: value for key, value in os.environ.items() if not key.startswith("TRACKER")}
        more = {
            "TRACKER_DIR": self.where, "TRACKER_STORE_DIR": str(self.here / name), "TRACKER_AGENT": "n",
            "TRACKER_STORE_EVERY": str(EVERY_S), "TRACKER_CONSOLE_CAPTURE": "n",
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *words], env={**plain, **more, **environ}, cwd=self.here, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                _kill_node(process)
            process.communicate()

    def _steps(self, reader: str) -> list[int]:
        root = mirror.update_copy(addresses.normalize(self.where), str(self.here / reader))
        streams = sorted((root / "check" / self.run_id / "streams").glob("rank-0.*.jsonl"))
        return [step for path in streams for step, _ in _values(path, "loss")]


def _values(path: Path, name: str) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["step"], line["values"][name]) for line in lines if name in line.get("values", {})]


def _kill_node(process: subprocess.Popen[str]) -> None:
    """Kill training and every helper that it started: the node is gone. They are nobody's children, and known by the
    folder that all of them were told."""
    mark = f"TRACKER_STORE_DIR={_folder_of(process.pid)}\0".encode()
    process.kill()
    for _ in range(3):  # what is forked meanwhile
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environment.read_bytes() + b"\0":
                    os.kill(int(environment.parent.name), signal.SIGKILL)


def _folder_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in variables if "=" in entry)["TRACKER_STORE_DIR"]


STEPS: tuple[Callable[[Check], str], ...] = (
    Check.objects, Check.conditional, Check.clock, Check.many, Check.killed, Check.resumed, Check.contested,
    Check.nodes, Check.commands, Check.removed,
)  # fmt: skip


def check(where: str, out: Callable[[str], None] = print) -> int:
    """Do all steps below an address; the number of those that failed.

    Raises:
        UsageError: it is no store's address.
    """
    folder = f"{addresses.normalize(where)}/trackers-check-{secrets.token_hex(4)}"
    here = Path(tempfile.mkdtemp(prefix="trackers-cloud-check-"))
    failed = 0
    out(f"{folder}\n")
    try:
        session = Check(folder, here)
        for step in STEPS:
            began = time.monotonic()
            try:
                result, said = "ok", step(session)
            except (AssertionError, TrackersError, OSError, subprocess.SubprocessError) as error:
                failed += 1
                result, said = "FAILED", f"{type(error).__name__}: {error}"
            what = " ".join((step.__doc__ or "").split())
            out(f"{result:6}  {what}\n        {said}  ({time.monotonic() - began:.1f} s)")
    finally:
        shutil.rmtree(here, ignore_errors=True)
    out(f"\n{len(STEPS) - failed} of {len(STEPS)} steps held")
    return failed


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="make cloud-check", description=__doc__)
    parser.add_argument("bucket", help="s3://bucket/prefix, gs://…, az://…")
    options = parser.parse_args()
    try:
        return min(check(options.bucket), 1)
    except TrackersError as error:
        print(f"cloud-check: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
