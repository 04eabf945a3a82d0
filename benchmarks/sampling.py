"""What sampling the hardware costs: the sampler's own processor time, training's steps, and the end of a run."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, cores, helpers, main
from benchmarks.training_step import BLOCK_STEPS, STEP_S, block, turns_for

GPUS = 8
SHARE = 0.01
"""Of one core."""
SLOWER = 1.02
"""What training may take with the sampler at work, against the same with the sampler stopped: noise."""
LATER_S = 0.1
"""How much later a run may end for its last samples: one turn of the relay."""
HUNG_LATER_S = 1.0
"""The same where the driver hangs."""

END = """
import sys, time, trackers
from pathlib import Path
run = trackers.init("json", project="bench", name="end", options={"TRACKER_SAMPLE": sys.argv[1] != "off"})
run.log({"loss": 1.0}, step=0)
stream = Path(run.dir, "streams", "sampler-0.1.jsonl")
until = time.monotonic() + (60 if sys.argv[1] != "off" else 2.5)
while time.monotonic() < until and not (stream.exists() and b"gpu/" in stream.read_bytes()):
    run.log({"loss": 1.0})
    time.sleep(0.05)
if sys.argv[1] == "hung":
    Path(sys.argv[2]).write_text("hang.power 1\\n")
    time.sleep(2.5)
began = time.perf_counter()
run.finish(timeout=60)
print("took:", time.perf_counter() - began)
"""


@contextlib.contextmanager
def stand_ins(**knobs: int) -> Iterator[dict[str, str]]:
    """Environment in which NVIDIA's library is a stand-in with these values."""
    from tests.fakes.gpu_drivers.standin import Drivers, build, compiler

    if compiler() is None:
        raise RuntimeError("needs a C compiler: the GPU driver's stand-in is compiled")
    place = Path.cwd() / "drivers"
    build(place)
    drivers = Drivers(place, Path.cwd() / "knobs")
    drivers.set(**knobs)
    found = drivers.environment("new")
    kept = {name: os.environ.get(name) for name in found}
    os.environ.update(found)
    try:
        yield found
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def sampler_of(run: Any) -> psutil.Process:
    """The sampler's process of a run of this process, once it has written something."""
    stream = Path(str(run.dir), "streams", "sampler-0.1.jsonl")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if stream.exists() and b"gpu/" in stream.read_bytes():
            for helper in helpers():
                with contextlib.suppress(psutil.Error):  # one that has just ended
                    if "sample" in helper.cmdline():
                        return helper
        run.log({"loss": 1.0})
        time.sleep(0.05)
    run.finish(timeout=60)
    raise RuntimeError("the sampler wrote nothing within 60 s: see relay.log")


def cost(seconds: float, detail: str = "basic") -> list[Figure]:
    """The sampler's processor time over a while, and what a sample takes of it."""
    import trackers

    options = {"TRACKER_GPU_DETAIL": detail}
    run: Any = trackers.init("json", project="bench", name=f"sampling-{detail}", options=options)
    sampler = sampler_of(run)
    try:
        before, began = sampler.cpu_times(), time.monotonic()
        until = began + seconds
        while time.monotonic() < until:
            run.log({"loss": 1.0})
            time.sleep(0.1)
        after, took = sampler.cpu_times(), time.monotonic() - began
        memory = sampler.memory_info().rss
    finally:
        run.finish(timeout=60)
    # The system rounds each of the two down, so their sum may seem to shrink by a tick.
    used = max(0.0, after.user + after.system - before.user - before.system)
    return [
        Figure(f"sampler, {GPUS} GPUs at 1 Hz, details {detail}: processor time / time", used / took, "of a core",
               at_most=SHARE),
        Figure("  one sample", used / took * 1e3, "ms"),
        Figure("  resident memory", memory / 1e6, "MB"),
    ]  # fmt: skip


def training(pairs: int) -> list[Figure]:
    """Blocks of training's steps, in turn while the sampler works and while it is stopped."""
    import trackers

    run: Any = trackers.init("json", project="bench", name="training")
    sampler = sampler_of(run)
    turns = turns_for(STEP_S)
    ratios = []
    for number in range(pairs):
        times = {}
        for working in (True, False) if number % 2 else (False, True):
            sampler.resume() if working else sampler.suspend()
            times[working] = sum(block(turns, None, 0, []))
        ratios.append(times[True] / times[False])
    sampler.resume()
    run.finish(timeout=60)
    return [
        Figure(f"blocks of {BLOCK_STEPS} steps, sampler at work / stopped: median", statistics.median(ratios), "x",
               at_most=SLOWER),
        Figure("cores", cores()),
    ]  # fmt: skip


def ending(times: int) -> list[Figure]:
    """How long ``finish`` takes without a sampler, with one, and with one that hangs in the driver."""
    took: dict[str, list[float]] = {"off": [], "on": [], "hung": []}
    knobs = Path.cwd() / "knobs"
    for _ in range(times):
        for kind, found in took.items():
            knobs.write_text(f"count {GPUS}\n")
            done = subprocess.run(
                [sys.executable, "-c", END, kind, str(knobs)], capture_output=True, text=True, check=True
            )
            found.append(float(done.stdout.split("took:")[1]))
    knobs.write_text(f"count {GPUS}\n")
    off, on, hung = (statistics.median(found) for found in took.values())
    return [
        Figure("finish with a sampler: later than without", on - off, "s", at_most=LATER_S),
        Figure("  without", off, "s"),
        Figure("finish with one that has hung for 2.5 s: later than without", hung - off, "s", at_most=HUNG_LATER_S),
    ]


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    gpm = {f"gpm{number}": 50_000 for number in (2, 3, 5, 7, 10, 11, 12, 13, 20, 21, 60, 61)}
    fields = {f"field{number}": 1 for number in (3, 4, 5, 6, 74, 82, 94, 142, 143, 144, 145)}
    with stand_ins(count=GPUS, gpm=1, **gpm, **fields):
        seconds = 5.0 if quick else 60.0
        return [
            *cost(seconds, "basic"),
            *cost(seconds, "full"),
            *training(2 if quick else 30),
            *ending(1 if quick else 7),
        ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
