"""Runs that threads of one process begin, log and finish at once have nothing to do with each other."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import forked
from trackers.configuration import kconfig
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader
from trackers.records import Console, Metrics, Record, Summary
from trackers.training import console_capture
from trackers.training.exit_hooks import ending

THREADS = 8
LOCAL = {"TRACKER_RELAY": False, "TRACKER_CONSOLE_CAPTURE": "python"}


def in_threads(work: Callable[[int], None], count: int = THREADS) -> None:
    """Call ``work`` with 0, 1, … in a thread each, to their ends; the first exception of any is raised here."""
    failed: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def records_of(directory: str, writer: str = "rank") -> list[Record]:
    reader = StreamReader(RunDirectory(Path(directory)).stream(StreamName(writer, 0, 1)))
    return reader.read(10**6, max_bytes=1 << 30)


@pytest.mark.parametrize("way", ["the run's methods", "the module's functions"])
def test_runs_of_threads_keep_their_own(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which threads begin, log and finish, each run has what its own thread logged."""
    monkeypatch.setattr(kconfig, "_unused", [])  # each thread parses the options' file
    together = threading.Barrier(THREADS, timeout=60)
    directories: dict[int, str] = {}

    def work(number: int) -> None:
        try:
            for repetition in range(2):
                together.wait()
                run: Any = trackers.init("json", project="p", mode="offline", options=LOCAL)
                target: Any = run if way == "the run's methods" else trackers
                together.wait()
                value = number + THREADS * repetition
                for step in range(3):
                    target.log({"value": value}, step=step)
                    together.wait()
                target.summary["result"] = value
                together.wait()
                target.finish()
                directories[value] = run.dir
        except BaseException:
            together.abort()
            raise

    in_threads(work)
    assert len(directories) == 2 * THREADS
    for value, directory in directories.items():
        found = records_of(directory)
        assert [record.values for record in found if isinstance(record, Metrics)] == [{"value": value}] * 3
        assert [record.values for record in found if isinstance(record, Summary)] == [{"result": value}]
    assert trackers.run is None
    assert not ending.runs()


def test_init_leaves_runs_of_other_threads_open() -> None:
    """A run is finished by a further ``init`` of its own thread, or of any thread once its own has ended."""
    main: Any = trackers.init("json", mode="offline", options=LOCAL)
    others: list[Any] = []

    def work(_: int) -> None:
        assert trackers.run is main
        others.append(trackers.init("json", mode="offline", options=LOCAL))
        assert trackers.run is others[-1]

    in_threads(work, 1)
    assert trackers.run is main
    assert not main.finished
    assert not others[0].finished
    main.finish()
    assert trackers.run is others[0]
    again: Any = trackers.init("json", mode="offline", options=LOCAL)
    assert others[0].finished
    again.finish()
    assert trackers.run is None


def test_thread_without_a_run_speaks_of_the_latest(capfd: pytest.CaptureFixture[str]) -> None:
    """A thread that began no run, as a script's helper, logs into the one that is open."""
    run: Any = trackers.init("json", mode="offline", options=LOCAL)
    in_threads(lambda number: trackers.log({f"helper-{number}": 1}), 2)
    run.finish()
    logged = {name for record in records_of(run.dir) if isinstance(record, Metrics) for name in record.values}
    assert logged == {"helper-0", "helper-1"}
    assert "no run" not in capfd.readouterr().err


def test_console_of_a_run_survives_the_ends_of_others() -> None:
    """Runs that begin and end in threads take nothing away from what another run keeps of the output."""
    run: Any = trackers.init("json", mode="offline", options=LOCAL)

    def work(number: int) -> None:
        for repetition in range(5):
            other: Any = trackers.init("json", mode="offline", options=LOCAL)
            print(f"<{number}-{repetition}>")
            other.finish()

    in_threads(work, 4)
    print("<last>")
    run.finish()
    assert not any(tap.stream is sys.stdout for tap in console_capture._taps)
    kept = "".join("".join(record.lines) for record in records_of(run.dir, "console") if isinstance(record, Console))
    printed = [f"<{number}-{repetition}>" for number in range(4) for repetition in range(5)]
    assert [text for text in [*printed, "<last>"] if text not in kept] == []


PROGRAM = """
import json, sys, threading, trackers
gate = threading.Barrier(8, timeout=120)
failed, made = [], {}

def work(number):
    gate.wait()
    for repetition in range(50):
        value = number * 1000 + repetition
        try:
            run = trackers.init("json", project="p", name=f"r{value}", config={"value": value})
            for step in range(10):
                trackers.log({"value": value}, step=step)
            trackers.summary["result"] = value
            trackers.finish()
            made[value] = run.dir
        except BaseException as error:
            failed.append(repr(error))

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps([failed, made]))
"""


HANDED = """
import json, trackers
from concurrent.futures import ThreadPoolExecutor
failed, made = [], {}

def guarded(stage):
    def call(value, *before):
        try:
            return stage(value, *(one.result() for one in before))
        except BaseException as error:
            failed.append(repr(error))
    return call

@guarded
def begin(value):
    name = f"r{value}"
    return trackers.init("json", project="p", name=name, config={"value": value}, reinit="create_new")

@guarded
def log(value, run):
    for step in range(10):
        run.log({"value": value}, step=step)
    run.summary["result"] = value
    return run

@guarded
def finish(value, run):
    run.finish()
    made[value] = run.dir

with ThreadPoolExecutor(8) as first, ThreadPoolExecutor(8) as second, ThreadPoolExecutor(8) as third:
    for value in range(400):
        begun = first.submit(begin, value)
        third.submit(finish, value, second.submit(log, value, begun))
print(json.dumps([failed, made]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [PROGRAM, HANDED], ids=["own", "handed on"])
def test_fifty_runs_in_each_of_eight_threads_are_delivered(program: str, tmp_path: Path) -> None:
    """400 runs of a process's threads, also where another thread logs, and another one finishes: no call fails, and
    each file that a relay writes holds its own run."""
    Path(tmp_path, "train.py").write_text(program)
    done = forked.run([sys.executable, "train.py"], preload=forked.HELPERS, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
    failed, made = json.loads(done.stdout)
    assert failed == []
    assert len(made) == 400
    for value, directory in made.items():
        (path,) = Path(tmp_path, directory).glob(f"r{value}_*.json")
        log = json.loads(path.read_text())
        assert [entry["value"] for entry in log["training_iterations"]] == [int(value)] * 10
        assert log["summary"]["result"] == int(value)


SIGNALLED = """
import os, signal, threading, trackers
os.environ |= {"SLURM_JOB_ID": "1", "TRACKER_RELAY": "n"}
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
run = trackers.init("json", mode="offline")
thread = threading.Thread(target=run.finish)
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGTERM)
run = trackers.init("json", mode="offline")
os.kill(os.getpid(), signal.SIGTERM)
run.finish()
"""


def test_signal_after_a_thread_finished_the_run() -> None:
    """A run that another thread finishes than began it leaves nothing behind that Python's signal handling meets."""
    done = forked.run([sys.executable, "-c", SIGNALLED], preload=forked.HELPERS, check=True)
    assert done.stdout == "handled\nhandled\n"
    assert "Exception ignored" not in done.stderr
