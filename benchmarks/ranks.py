"""What values across ranks cost: 8 ranks that log 50 of them at 100 steps/s, and whether the relay keeps up."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, cores, main

RANKS = 8
VALUES = 50
WORK_S = 0.0005
STEP_S = 0.01
BLOCK_S = 1.0
"""All ranks log in every other second of the clock."""
LIMIT = 1.01
LAG_S = 2.0
"""How long the relay may take for the rest, once training has ended."""


def values(rank: int, step: int) -> dict[str, Any]:
    """What a rank logs: half means, half maxima."""
    from trackers import Max, Mean

    half = VALUES // 2
    means = {f"train/mean_{number}": Mean(float(step + rank + number), 2) for number in range(half)}
    return {**means, **{f"train/max_{number}": Max(float(rank * step + number)) for number in range(half)}}


def expected(step: int, ranks: int) -> dict[str, float]:
    """The same of all ranks, by plain sums."""
    half = VALUES // 2
    means = {
        f"train/mean_{number}": sum(step + rank + number for rank in range(ranks)) / (2 * ranks)
        for number in range(half)
    }
    return {**means, **{f"train/max_{number}": float((ranks - 1) * step + number) for number in range(half)}}


def work(turns: int) -> float:
    """A step's own work."""
    total = 0.0
    for turn in range(turns):
        total += (turn % 7) * 0.5
    return total


def one_rank(rank: int, seconds: float) -> dict[str, Any]:
    """A training loop: seconds and processor seconds of its steps, logged in every other block."""
    import trackers

    run = trackers.init("json", project="bench", name="ranks")
    turns = _turns()
    run.log(values(rank, 0), step=0)
    until = time.time() + seconds
    step = 1
    spent: dict[bool, list[float]] = {True: [], False: []}
    used: dict[bool, list[float]] = {True: [], False: []}
    while (now := time.time()) < until:
        logging = int(now / BLOCK_S) % 2 == 0
        row = values(rank, step)
        began, cpu = time.perf_counter(), time.thread_time()
        work(turns)
        if logging:
            run.log(row, step=step)
            step += 1
        used[logging].append(time.thread_time() - cpu)
        time.sleep(STEP_S - WORK_S)
        spent[logging].append(time.perf_counter() - began)
    ended = time.monotonic()
    run.finish(timeout=60)
    return {
        "steps": step,
        "finish_s": time.monotonic() - ended,
        "directory": run.dir,
        **{f"wall_{word}": statistics.median(spent[on]) for word, on in (("on", True), ("off", False))},
        **{f"mean_{word}": statistics.fmean(spent[on]) for word, on in (("on", True), ("off", False))},
        **{f"cpu_{word}": statistics.median(used[on]) for word, on in (("on", True), ("off", False))},
    }


def _turns() -> int:
    best = min(_took() for _ in range(100))
    return int(1000 * WORK_S / best)


def _took() -> float:
    began = time.perf_counter()
    work(1000)
    return time.perf_counter() - began


def measure(quick: bool, ranks: int = RANKS, seconds: float | None = None) -> list[Figure]:
    """The figures."""
    seconds = seconds or (6.0 if quick else 40.0)
    environment = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": "29400"}
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent.parent)!r}); "
    processes = []
    for rank in range(ranks):
        call = f"from benchmarks import ranks as r; import json; print(json.dumps(r.one_rank({rank}, {seconds})))"
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code + call],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**environment, "RANK": str(rank)},
                text=True,
            )
        )
    share = _reducer_share(seconds)
    answers = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    wrong, steps = audit(Path(answers[0]["directory"]), min(a["steps"] for a in answers), ranks)
    wall = [answer["wall_on"] / answer["wall_off"] for answer in answers]
    processor = [1 + (answer["cpu_on"] - answer["cpu_off"]) / STEP_S for answer in answers]
    mean = sum(answer["mean_on"] for answer in answers) / sum(answer["mean_off"] for answer in answers)
    return [
        Figure("slowest rank: step with logging / without, median", max(wall), "x", at_most=LIMIT),
        Figure("  the median rank", statistics.median(wall), "x"),
        Figure("  mean of all steps, all ranks", mean, "x"),
        Figure("  its processor time, as a share of a step of 10 ms", max(processor), "x", at_most=LIMIT),
        Figure("log, 50 values: processor time, median", 1e6 * (statistics.median(a["cpu_on"] - a["cpu_off"]
                                                                                  for a in answers)), "us"),
        Figure("steps logged by the slowest rank", min(a["steps"] for a in answers)),
        Figure("finish of the main rank", answers[0]["finish_s"], "s", at_most=LAG_S + 2.0),
        Figure("reducer: cores it needs", share, "", at_most=0.5),
        Figure("cores", cores()),
        Figure("values lost, doubled or wrong", wrong, f"of {steps * VALUES}", at_most=0),
    ]  # fmt: skip


def _reducer_share(seconds: float) -> float:
    """How much of one core the reducer needed, over the middle of the time."""
    time.sleep(seconds * 0.5)
    here = str(Path.cwd())
    lines = [(p, p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    found = [p for p, line in lines if "reduce" in line and any(here in part for part in line)]
    if len(found) != 1:
        return float("inf")
    before, began = sum(found[0].cpu_times()[:2]), time.monotonic()
    time.sleep(seconds * 0.3)
    return float((sum(found[0].cpu_times()[:2]) - before) / (time.monotonic() - began))


def audit(directory: Path, steps: int, ranks: int) -> tuple[int, int]:
    """How many values of the first steps are missing, doubled or wrong, and of how many steps."""
    found: dict[int, list[dict[str, float]]] = {}
    for line in (directory / "streams/reducer-0.1.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "metrics":
            found.setdefault(record["step"], []).append(record["values"])
    wrong = 0
    for step in range(steps):
        merged: dict[str, list[float]] = {}
        for part in found.get(step, []):
            for name, value in part.items():
                merged.setdefault(name, []).append(value)
        wrong += sum(merged.get(name, []) != [value] for name, value in expected(step, ranks).items())
    return wrong, steps


if __name__ == "__main__":
    main(measure, __doc__ or "")
