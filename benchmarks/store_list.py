"""The first `trackers ls`, `best` and page of 10,000 runs in a store with a catalogue: requests, and seconds at 50 ms
each.

Each run has ten metrics, three settings and a result; five projects share them. The store is a stand-in for S3 on
loopback that counts. ``trackers lake catalogue`` fills the catalogue. Then ten runs go on, ten are new and one is
removed. Without a catalogue a tenth of the runs is listed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

import msgspec
from typer.testing import CliRunner

from benchmarks.common import Figure, main
from benchmarks.fleet import install_lake
from tests.fakes.counting_s3 import KINDS, CountingS3
from trackers.analysis import collect
from trackers.cli.app import app
from trackers.object_storage import layout, removal
from trackers.object_storage.layout import Piece
from trackers.object_storage.store import Store
from trackers.records import Config, Finish, Metrics, Start, Summary, encode
from trackers.ui import catalogue as page

T0, DELAY_S, RUNS, PROJECTS = 1_763_688_000.0, 0.05, 10_000, 5
MOST_REQUESTS, MOST_S = 20, 2.0
WHERE, FEW = "s3://bucket/runs", "s3://bucket/few"
THREADS = 32


def stored(store: Store, number: int, *, ended: bool = True) -> None:
    """A run as the store's tracker leaves it; of one that goes on, its account isn't closed."""
    run_id, project, begin = f"r{number:05d}", f"p{number % PROJECTS:02d}", T0 + number * 60
    lines: list[Any] = [Start(time=begin, rank=0, world_size=1, pid=1)]
    lines.append(Config(time=begin, values={"lr": 1e-4 * number, "layers": number % 7, "data": "digits"}))
    for step in range(20):
        values = {f"train/metric_{name}": (number * 31 + step * 7 + name) % 1000 / 999 for name in range(10)}
        lines.append(Metrics(step=step, time=begin + step, values=values))
    if ended:
        lines.append(Summary(time=begin + 20, values={"final/best_acc": number / RUNS}))
        lines.append(Finish(time=begin + 20, status="finished", exit_code=0))
    content, home = b"".join(map(encode, lines)), f"{project}/{run_id}"
    info = {"id": run_id, "name": f"run {number}", "project": project, "created": begin, "trackers": ["storage"]}
    store.put(f"{home}/@claims/000001", b"0000 host\n")
    store.put(f"{home}/run.json", msgspec.json.encode(info))
    store.put(f"{home}/streams/rank-0.1.jsonl/{Piece.of(0, content)}", content)
    store.put(f"{home}/delivery/storage.json", msgspec.json.encode({"closed": "finished" if ended else ""}))


def run_cli(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output or done.exception
    return done.stdout


def shown(runs: int) -> None:
    """The table of the page."""
    catalogue = page.Catalogue([f"store:{WHERE}"], Path("runs"))
    catalogue.open()
    catalogue.wait()
    rows = catalogue.state().rows.values()
    catalogue.close()
    assert len(rows) == runs, len(rows)
    assert all(row.last and row.config for row in rows)


def measured(server: CountingS3, name: str, work: Callable[[], Any], bounds: bool = True) -> list[Figure]:
    """Requests and seconds of work on a machine that has read nothing before."""
    shutil.rmtree("cache", ignore_errors=True)
    os.environ["AWS_ACCESS_KEY_ID"] = name
    began = time.monotonic()
    work()
    took, counts = time.monotonic() - began, server.counts()[name]
    most = {"at_most": MOST_REQUESTS}, {"at_most": MOST_S}
    return [
        Figure(f"{name}: requests", sum(counts[kind] for kind in KINDS), **(most[0] if bounds else {})),
        Figure(name, took, "s", **(most[1] if bounds else {})),
        Figure(f"{name}: loaded", counts["out"] / 1e6, "MB"),
    ]


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    install_lake(Path("site").absolute())
    runs = 500 if quick else RUNS
    os.environ["XDG_CACHE_HOME"] = str(Path("cache").absolute())
    figures = []
    with CountingS3() as server:
        os.environ.update(server.variables("writer"))
        store, few = Store(WHERE), Store(FEW)
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda number: stored(store, number), range(runs)))
            list(pool.map(lambda number: stored(few, number), range(runs // 10)))
        server.delay(DELAY_S)
        for name in (f"lake catalogue, {runs:,} new runs", "lake catalogue, nothing new"):
            figures += measured(server, name, lambda: run_cli("lake", "catalogue", WHERE), False)
        packs = list(store.objects(".catalogue/packs"))
        figures.append(Figure("objects of the catalogue", len(packs)))
        figures.append(Figure("bytes of the catalogue a run", sum(pack.size for pack in packs) / runs, "B"))
        works: dict[str, Callable[[], Any]] = {
            f"ls of {runs:,} runs": lambda: run_cli("ls", WHERE, "-n", "20"),
            f"best of {runs:,} runs": lambda: run_cli("best", WHERE, "--metric", "final/best_acc"),
            f"heads of {runs:,} runs, for compare": lambda: collect.gather([WHERE]),
            f"the page's table of {runs:,} runs": lambda: shown(runs),
        }
        next(iter(works.values()))()  # imports what it needs
        for name, work in works.items():
            figures += measured(server, name, work)
        for number in range(10):
            stored(store, runs + number, ended=False)
            stored(store, number, ended=False)
            store.put(layout.mark(f"p{number % PROJECTS:02d}/r{number:05d}"), b"")
        removal.remove(store, "p00/r00100")
        name = f"ls of {runs:,} runs, of which 20 go on"
        figures += measured(server, name, next(iter(works.values())), False)
        name = f"ls of {runs // 10:,} runs without a catalogue"  # at the end: it follows the store from then on
        figures += measured(server, name, lambda: run_cli("ls", "--dir", FEW, "-n", "20"), False)
    return figures


if __name__ == "__main__":
    main(measure, "a store's list")
