"""200 runs of one machine on an MLflow server with PostgreSQL that takes few requests a second, and is away a while.

Each run writes ten records a second. A proxy answers 429 (``Retry-After: 1``) beyond its limit. Measured with the limit
shared between the runs and without, and how they come back after the server was away.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, cores, main
from tests.chaos.fleet import Plan, Processes, write
from tests.fakes import servers
from tests.fakes.fault_proxy import Fault, FaultProxy
from tests.helpers import begun_run
from trackers.journal.run_directory import RunDirectory, StreamName

LIMIT = 20
"""Requests that the server takes in a second."""
RELAYS = 4
AWAY_S = 8.0
LAST_S, ALONE_S = 600.0, 60.0
"""How long is waited for the rest, where the limit is shared and where it isn't: then it doesn't come to an end."""
SLICE_S = 0.5


class Limited(FaultProxy):
    """Takes so many requests a second; remembers when each came, and whether it was taken."""

    def __init__(self, target: str, limit: int) -> None:
        super().__init__(target)
        self.limit = limit
        self.times: list[tuple[float, bool]] = []
        self._window: collections.deque[float] = collections.deque()
        self._guard = threading.Lock()

    def forget(self) -> None:
        """In a fork: the place where it listens is the other process's, which leaves it and comes back."""
        if self._http is not None:
            self._http.socket.close()

    def due(self, what: str) -> Fault | None:
        fault = super().due(what)
        with self._guard:
            now = time.monotonic()
            while self._window and self._window[0] < now - 1.0:
                self._window.popleft()
            taken = fault is None and len(self._window) < self.limit
            if taken:
                self._window.append(now)
            self.times.append((now, taken))
        return fault or (None if taken else Fault("status", status=429, retry_after_s=1))


def relay(runs: Sequence[RunDirectory], shared: bool, proxy: Limited) -> None:
    """Deliver runs until they have ended."""
    proxy.forget()
    from trackers.relay.delivery.delivery import Delivery, Stop

    if not shared:
        os.environ["XDG_RUNTIME_DIR"] = "/nowhere"
    works: dict[RunDirectory, Any] = dict.fromkeys(runs)
    due = dict.fromkeys(runs, 0.0)
    while works:
        for run in list(works):
            if due[run] > time.monotonic():
                continue
            work = works[run] = works[run] or Delivery(run, "mlflow", say=lambda text: None, alone=False)
            try:
                pause = work.step()
            except Stop:
                works[run], pause = None, 5.0
            if pause is None:
                del works[run]
            else:
                due[run] = time.monotonic() + max(pause, 1.0)
        time.sleep(0.02)


def play(count: int, seconds: float, url: str, place: Path, *, shared: bool) -> dict[str, float]:
    """One fleet; what the proxy saw, and values that MLflow lacks or has twice."""
    place.mkdir()
    os.environ["XDG_RUNTIME_DIR"] = str(place)
    with Limited(url, LIMIT) as proxy:
        runs = []
        for number in range(count):
            options = {"MLFLOW_TRACKING_URI": proxy.url}
            name = f"{place.name}-{number}"
            run, writer = begun_run(place / "p" / name, trackers=["mlflow"], options=options, id=name, name=name)
            writer.release()
            runs.append(run)
        processes = Processes()
        plan = Plan(rate=10.0)
        until = time.time() + seconds
        try:
            for number in range(RELAYS):
                processes.start(f"relay {number}", lambda n=number: relay(runs[n::RELAYS], shared, proxy))  # type: ignore[misc]
            processes.start("writer", lambda: (proxy.forget(), write(runs, plan, until))[1])
            time.sleep(seconds * 0.6)
            proxy.fault = Fault("refuse")
            time.sleep(AWAY_S)
            back = time.monotonic()
            proxy.fault = None
            deadline = time.monotonic() + (LAST_S if shared else ALONE_S)
            while processes.names() and time.monotonic() < deadline:
                time.sleep(0.2)
                processes.look()
            done = time.monotonic()
        finally:
            processes.end()
        times = list(proxy.times)
    wrong, begun = audit(runs, url)
    refused = sum(not taken for _, taken in times)
    counts = collections.Counter(int((at - back) / SLICE_S) for at, _ in times if at >= back)
    later = [counts[number] for number in range(int(20 / SLICE_S))]
    return {
        "refused": refused / max(1, len(times) - refused),
        "first": max(later[: int(2 / SLICE_S)]) / SLICE_S,
        "usual": sum(later) / len(later) / SLICE_S,
        "seconds": done - back,
        "wrong": wrong,
        "begun": begun,
    }


def audit(runs: Sequence[RunDirectory], url: str) -> tuple[int, int]:
    """Values that MLflow lacks, or has twice; and how many runs it has."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=url)
    wrong = begun = 0
    for run in runs:
        path = run.stream(StreamName("rank", 0, 1))
        steps = [line for line in path.read_text().splitlines() if '"kind":"metrics"' in line]
        account = run.delivery / "mlflow.json"
        native = json.loads(account.read_text())["state"].get("native_id") if account.exists() else ""
        found = [metric.step for metric in client.get_metric_history(native, "loss")] if native else []
        begun += bool(native)
        wrong += len(set(range(len(steps))) - set(found)) + len(found) - len(set(found))
    return wrong, begun


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    count, seconds = (20, 15.0) if quick else (200, 60.0)
    here = Path.cwd()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(servers.postgresql()) if servers.postgresql_programs() is not None else None
        server = servers.mlflow_server(here, store)
        stack.callback(server.stop)
        server.start()
        together = play(count, seconds, server.url, here / "shared", shared=True)
        alone = play(count, seconds, server.url, here / "alone", shared=False)
    return [
        Figure("requests refused / taken, limit shared", together["refused"], "", at_most=0.25),
        Figure("  each run for itself", alone["refused"], ""),
        Figure("requests a second, most in the first 2 s after an outage", together["first"], "/s", at_most=10 * LIMIT),
        Figure("  each run for itself", alone["first"], "/s"),
        Figure("  mean of the first 20 s, shared", together["usual"], "/s"),
        Figure("from the server's return until all was delivered, shared", together["seconds"], "s"),
        Figure("runs that MLflow has then", together["begun"], f"of {count}", at_least=count),
        Figure(f"  each run for itself, {ALONE_S:.0f} s after the return", alone["begun"], f"of {count}"),
        Figure("cores", cores()),
        Figure("values lost or doubled, shared", together["wrong"], "", at_most=0),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
