"""A fleet of runs on a W&B server that takes few requests a second, and is away a while.

Each run writes ten records a second. The server is a stand-in, with the limits of W&B's servers, made small: for the
file stream of a project, for that of each run, for beginnings of runs.

16 runs of two machines with W&B's own client: each machine is one host agent with its deliveries. Then 200 runs of five
machines, for which two cores carry no 200 of these clients: each machine is one process with the real deliveries, a
thread each, and a client that asks as W&B's does (:class:`Client`); with the pace shared between a machine's runs, and
each run for itself.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

import trackers
from benchmarks.common import ROOT, Figure, cores, main
from tests.chaos.fleet import Plan, Processes, write
from tests.fakes.servers import free_port
from tests.fakes.wandb_server import Fault, Limits, WandbServer
from tests.helpers import begun_run
from trackers.backends import registry
from trackers.backends.wandb.precheck import WandbPrecheck
from trackers.errors import Unavailable
from trackers.journal.run_directory import RunDirectory
from trackers.records import Config, Finish, Metrics, Record, Start
from trackers.relay.delivery.cursor_file import read_account
from trackers.tracker import Cursor, RunInfo, State, Status

STREAM, EACH, BEGIN = 10.0, 2.0, 4.0
"""Requests that the server takes in a second: of the file stream, of one run's, beginnings. W&B's own take 500, 2
and 80."""
AWAY_S = 8.0
LAST_S, ALONE_S = 900.0, 60.0
"""How long is waited for the rest, where the pace is shared and where it isn't: then it doesn't come to an end."""
READY_S = 120.0
RATE = 10.0

FIRST = """
import trackers
run = trackers.init("wandb", project="first")
run.log({"loss": 0.0}, step=0)
run.finish()
"""


def of_host(place: Path, url: str) -> dict[str, str]:
    """What is set for all that runs on a machine."""
    return {
        "XDG_RUNTIME_DIR": str(place), "WANDB_MODE": "online", "WANDB_BASE_URL": url, "WANDB_API_KEY": "k" * 40,
        "TRACKER_DIR": str(place / "runs"), "TRACKER_FINISH": "background", "PYTHONPATH": str(ROOT),
    }  # fmt: skip


def train(number: int, env: dict[str, str], go: Path, seconds: float) -> None:
    """One run, as a script logs it."""
    os.environ.update(env)
    while not go.exists():
        time.sleep(0.1)
    run = trackers.init("wandb", project="fleet", id=f"run{number:03d}", name=f"run {number}")
    until = time.monotonic() + seconds
    step = 0
    while time.monotonic() < until:
        run.log({"loss": random.random()}, step=step)
        step += 1
        time.sleep(1 / RATE)
    run.finish()


@contextlib.contextmanager
def agents(places: Sequence[Path], url: str) -> Iterator[None]:
    """The agents that one run on each machine leaves behind."""
    try:
        for place in places:
            env = {**os.environ, **of_host(place, url)}
            subprocess.run([sys.executable, "-c", FIRST], env=env, check=True, capture_output=True)
        wait(lambda: all(list(place.glob("trackers/*.sock")) for place in places), READY_S)
        yield
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[3:5] in [["agent", str(place / "trackers")] for place in places]:
                    for one in process.children(recursive=True):
                        one.send_signal(signal.SIGKILL)
                    process.terminate()
                    process.wait(READY_S)


class Client(WandbPrecheck):
    """Asks as W&B's client does: two requests to begin, one for the configuration a second later, one of the file
    stream a second while there are rows; each again after its refusal, the first three times, the last ten times."""

    accepts: frozenset[type[Record]] = frozenset({Start, Config, Metrics, Finish})
    deadline_s = 1800.0
    restart_after_error = True
    begin_refused: Callable[[], object] | None = None

    @staticmethod
    def begin_apart_s(info: RunInfo) -> float:
        """As W&B's."""
        from trackers.backends.wandb.tracker import WandbTracker

        return WandbTracker.begin_apart_s(info)

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Begin the run, or go on with it."""
        self._run = {"name": info.id, "entity": "someone", "project": "fleet"}
        self._rows: list[str] = []
        self._over = threading.Event()
        self._limited, self._why, self._dead = 0, "", False
        self._ask("RunResumeStatus", {})
        begun = self._ask("UpsertBucket", {"state": "running"})["data"]["upsertBucket"]["bucket"]
        self._held = self._there = int(begun["historyLineCount"])
        state["native_id"] = info.id
        state.save()
        self._thread = threading.Thread(target=self._send, args=(self._held,), daemon=True)
        self._thread.start()
        return Cursor(0)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Hand rows to the thread that sends them, but those that the server has."""
        if self._why:
            self._dead = True
            raise Unavailable(self._why, limited=True)
        for record in records:
            if isinstance(record, Metrics) and self._held:
                self._held -= 1
            elif isinstance(record, Metrics):
                self._rows.append(json.dumps({"global_step": record.step, **record.values}))

    def limited(self) -> bool:
        """Whether the server asked for fewer requests since the last call."""
        found, self._limited = self._limited, 0
        return found > 0

    def close(self, status: Status) -> None:
        """Send all, and the end."""
        self._over.set()
        self._thread.join()
        if self._why or not self._stream({"complete": status.name != "running", "exitcode": 0}):
            self._dead = True
            raise Unavailable("given up", limited=True)

    def _send(self, offset: int) -> None:
        configured = False
        while not self._over.wait(1.0) or self._there - offset < len(self._rows):
            if not configured:
                configured = True
                try:
                    self._ask("UpsertBucket", {"config": "{}"})
                except Unavailable as error:
                    self._why = str(error)
            lines = self._rows[self._there - offset :]
            if lines:
                chunk = {"offset": self._there, "content": lines}
                if not self._stream({"files": {"wandb-history.jsonl": chunk}}):
                    self._why = "given up"
                self._there += len(lines)
            if self._why:
                return

    def _ask(self, name: str, more: dict[str, Any]) -> Any:
        for number in range(3):
            query = f"{'mutation' if name == 'UpsertBucket' else 'query'} {name} {{ }}"
            code, answer = self._post("/graphql", {"query": query, "variables": {**self._run, **more}})
            if code == 200:
                return answer
            if code == 429 and self.begin_refused is not None:
                self.begin_refused()
            time.sleep((1.0, 2.0, 0.0)[number])
        raise Unavailable(f"{name}: {code}", limited=code == 429)

    def _stream(self, what: dict[str, Any]) -> bool:
        pause = 1.0
        for _ in range(11):
            if self._dead:
                return False
            code, _ = self._post(f"/files/someone/fleet/{self._run['name']}/file_stream", what)
            if code == 200:
                return True
            self._limited += code == 429
            time.sleep(pause * random.uniform(1.0, 1.25))
            pause = min(2 * pause, 30.0)
        return False

    def _post(self, path: str, what: dict[str, Any]) -> tuple[int, Any]:
        try:
            connection = http.client.HTTPConnection(urlsplit(os.environ["WANDB_BASE_URL"]).netloc, timeout=20)
            with contextlib.closing(connection):
                connection.request("POST", path, json.dumps(what), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException):
            return 0, None


def machine(runs: Sequence[RunDirectory], env: dict[str, str]) -> None:
    """The deliveries of one machine, until all of its runs have ended."""
    from trackers.relay.delivery.delivery import Delivery, Stop

    os.environ.update(env)
    registry.load = lambda name: Client

    def deliver(run: RunDirectory) -> None:
        work = Delivery(run, "wandb", say=lambda text: None, alone=False)
        pause: float | None = 0.0
        while pause is not None:
            time.sleep(min(max(pause, 0.5), 5.0))
            try:
                pause = work.step()
            except Stop:
                work, pause = Delivery(run, "wandb", say=lambda text: None, alone=False), 5.0

    threads = [threading.Thread(target=deliver, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def play_light(count: int, seconds: float, places: Sequence[Path], *, shared: bool) -> dict[str, float]:
    """One fleet with :class:`Client`; what the server saw, and what it has."""
    server = WandbServer(free_port())
    server.limits = Limits(STREAM, EACH, BEGIN)
    runs = []
    for number in range(count):
        place = places[number % len(places)] / "runs" / "fleet"
        run, writer = begun_run(place / f"run{number:03d}", trackers=["wandb"], id=f"run{number:03d}")
        writer.release()
        runs.append(run)
    processes = Processes()
    until = time.time() + seconds
    try:
        processes.start("writer", lambda: write(runs, Plan(rate=RATE), until))
        for number, place in enumerate(places):
            env = of_host(place, server.url) | ({} if shared else {"XDG_RUNTIME_DIR": "/nowhere"})
            processes.start(place.name, lambda n=number, e=env: machine(runs[n :: len(places)], e))  # type: ignore[misc]
        with server:
            return watched(server, processes, seconds, runs, LAST_S if shared else ALONE_S)
    finally:
        processes.end()


def wait(what: Callable[[], bool], limit_s: float) -> bool:
    """Wait until something is so; False where it isn't in time."""
    until = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def ended_all(processes: Processes) -> bool:
    """Whether no run trains any more."""
    processes.look()
    return not any(name.startswith(("run", "writer")) for name in processes.names())


def play(count: int, seconds: float, places: Sequence[Path]) -> dict[str, float]:
    """One fleet; what the server saw, and what it has."""
    server = WandbServer(free_port())
    server.limits = Limits(STREAM, EACH, BEGIN)
    go, processes = Path("go").absolute(), Processes()
    try:
        for number in range(count):
            env = of_host(places[number % len(places)], server.url)
            processes.start(f"run {number}", lambda n=number, e=env: train(n, e, go, seconds))  # type: ignore[misc]
        runs = [RunDirectory(places[n % len(places)] / "runs" / "fleet" / f"run{n:03d}") for n in range(count)]
        with server, agents(places, server.url):
            go.touch()
            return watched(server, processes, seconds, runs, LAST_S)
    finally:
        processes.end()


def watched(
    server: WandbServer, processes: Processes, seconds: float, runs: Sequence[RunDirectory], last_s: float
) -> dict[str, float]:
    """From the runs' beginning until all is delivered."""
    first = len(server.asked)
    begin = time.monotonic()
    ends = time.time() + seconds
    wait(lambda: len(server.runs) > len(runs) / 4, seconds + READY_S)
    server.fault = Fault("refuse")
    time.sleep(AWAY_S)
    server.fault = None
    back = time.monotonic()
    wait(lambda: time.time() > ends and ended_all(processes), seconds + 3 * READY_S)
    ended = time.monotonic()
    wait(lambda: all(read_account(run, "wandb").closed == "finished" for run in runs), last_s)
    done = time.monotonic()
    asked = server.asked[first:]
    figures = {"seconds": done - ended, "rate": sum(taken for *_, taken in asked) / (done - begin)}
    for name, sign in (("stream", "file_stream"), ("begin", " UpsertBucket"), ("all", "")):
        refused = sum(not taken for _, what, taken in asked if what.endswith(sign))
        figures[name] = refused / max(1, sum(what.endswith(sign) for _, what, _ in asked) - refused)
    seen = collections.Counter(int(2 * (at - back)) for at, _, _ in asked if at >= back)
    figures["first"] = max(seen[number] for number in range(40)) * 2.0
    figures["usual"] = sum(seen[number] for number in range(40)) / 20.0
    figures |= audit(server, runs)
    return figures


def audit(server: WandbServer, runs: Sequence[RunDirectory]) -> dict[str, float]:
    """Rows that the server lacks or has twice; runs that it has whole and ended."""
    wrong = whole = records = 0
    for run in runs:
        lines = (run.streams / "rank-0.1.jsonl").read_text().splitlines()
        steps = sum('"kind":"metrics"' in line for line in lines)
        held = server.runs.get(run.path.name)
        found = [row["global_step"] for row in held.history if "loss" in row] if held else []
        bad = len(set(range(steps)) - set(found)) + len(found) - len(set(found))
        wrong += bad
        records += steps
        whole += not bad and held is not None and held.state == "finished"
    return {"wrong": wrong, "whole": whole, "records": records}


def hosts(name: str, count: int) -> list[Path]:
    """A place for each machine."""
    found = [Path(f"{name}{number}").absolute() for number in range(count)]
    for place in found:
        place.mkdir(mode=0o700)
    return found


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    found = play(16, 20.0, hosts("host", 2))
    count, seconds, machines = (40, 20.0, 2) if quick else (200, 60.0, 5)
    light = play_light(count, seconds, hosts("light", machines), shared=True)
    alone = play_light(count, seconds, hosts("alone", machines), shared=False)
    figures = []
    for name, one, runs in (("W&B's client", found, 16), (f"{count} runs", light, count)):
        figures += [
            Figure(f"{name}: file stream, requests refused / taken", one["stream"], "", at_most=0.25),
            Figure("  beginnings, requests refused / taken", one["begin"], "", at_most=0.25),
            Figure("  all requests, refused / taken", one["all"], ""),
            Figure("  requests a second, most in 20 s after an outage", one["first"], "/s", at_most=10 * STREAM),
            Figure("  mean of these", one["usual"], "/s"),
            Figure("  from the runs' end until all was delivered", one["seconds"], "s"),
            Figure("  runs that the server has whole, and ended", one["whole"], f"of {runs}", at_least=runs),
            Figure("  rows lost or doubled", one["wrong"], f"of {one['records']:.0f}", at_most=0),
        ]
    return [
        *figures,
        Figure("each run for itself: file stream, refused / taken", alone["stream"], ""),
        Figure("  beginnings, refused / taken", alone["begin"], ""),
        Figure("  requests a second, most in 20 s after an outage", alone["first"], "/s"),
        Figure(f"  runs whole and ended {ALONE_S:.0f} s after training", alone["whole"], f"of {count}"),
        Figure("cores", cores()),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
