"""What the benchmarks share: a place of their own, figures with bounds, busy cores, an audit of the stores."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow", "json")
NAMES = tuple(f"train/metric_{number}" for number in range(10))
BUSY_LOOP = "while True: pass"
FOREIGN = ("TRACKER", "WANDB_", "TRACKIO_", "MLFLOW_", "HF_", "SLURM_", "OMPI_", "RANK", "WORLD_SIZE",
           "PYTHONDONTWRITEBYTECODE")  # fmt: skip
"""Variables that programs start without, by their beginnings: installed programs have their modules compiled."""


@dataclasses.dataclass
class Figure:
    """One measured number. at_most, at_least: the bound it must keep; neither: reported beside the others."""

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def verdict(self) -> str:
        """pass or miss, or "" without a bound."""
        if self.at_most is None and self.at_least is None:
            return ""
        kept = (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )
        return "pass" if kept else "miss"

    @property
    def bound(self) -> str:
        """The bound in words."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else ""


def main(measure: Callable[..., Sequence[Figure]], text: str, runs: int = 0) -> None:
    """Run one benchmark as a script: ``--quick`` for a try, ``--json`` for machines; exit code 1 for a miss.

    Args:
        measure: answers with the figures; its argument is True for a quick try, whose bounds mean little.
        runs: how many runs it measures where ``--runs`` doesn't say, which it gets as ``runs``; 0: there is no such
            option.
    """
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; too short to judge")
    parser.add_argument("--json", action="store_true", help="print JSON")
    if runs:
        parser.add_argument("--runs", type=int, default=runs, help="how many runs (default %(default)s)")
    options = parser.parse_args()
    with place_of_its_own():
        figures = list(measure(options.quick, options.runs) if runs else measure(options.quick))
    if options.json:
        print(json.dumps([{**dataclasses.asdict(figure), "verdict": figure.verdict} for figure in figures]))
    else:
        print(table(text, figures))
    if not options.quick and any(figure.verdict == "miss" for figure in figures):
        sys.exit(1)


def helpers(place: Path | None = None) -> list[psutil.Process]:
    """What works for the runs below a directory (default: the working directory), and the agent: nobody's children."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[1:2] == ["-c"] and any(word.startswith(str(place or Path.cwd())) for word in words[4:5]):
                found.update({one.pid: one for one in (process, *process.children(recursive=True))})
    return list(found.values())


def table(title: str, figures: Sequence[Figure]) -> str:
    """Figures as aligned text."""
    width = max(len(figure.name) for figure in figures)
    lines = [title]
    for figure in figures:
        line = f"  {figure.name:{width}}  {figure.value:10.4g} {figure.unit:9} {figure.bound:9} {figure.verdict}"
        lines.append(line.rstrip())
    return "\n".join(lines)


@contextlib.contextmanager
def place_of_its_own() -> Iterator[Path]:
    """A temporary directory as working directory, home and place of every tracker; no account, no telemetry."""
    kept, here = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="trackers-bench-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        for variable in list(os.environ):
            if variable.startswith(FOREIGN):
                del os.environ[variable]
        os.environ.update(
            HOME=name,
            XDG_CACHE_HOME=f"{name}/.cache",
            XDG_CONFIG_HOME=f"{name}/.config",
            XDG_DATA_HOME=f"{name}/.local/share",
            TRACKIO_DIR=f"{name}/trackio",
            WANDB_MODE="offline",
            WANDB_ERROR_REPORTING="false",
            MLFLOW_TRACKING_URI=f"sqlite:///{name}/mlflow.db",
            MLFLOW_DISABLE_TELEMETRY="true",
            GRADIO_ANALYTICS_ENABLED="False",
            HF_HUB_OFFLINE="1",
            HF_HUB_DISABLE_TELEMETRY="1",
            DO_NOT_TRACK="1",
        )
        os.chdir(place)
        try:
            yield place
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(kept)


def rows(count: int, seed: int = 0) -> list[dict[str, float]]:
    """``count`` mappings of ten floats with all their digits."""
    source = random.Random(seed)
    return [{name: source.gauss(0.0, 1.0) for name in NAMES} for _ in range(count)]


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value below which the fraction of all values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep ``count`` cores busy with loops at ordinary priority."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def audit(run: Any, logged: Mapping[int, Mapping[str, float]], trackers: Sequence[str] = TRACKERS) -> int:
    """How many values are missing, doubled or wrong in the stores, read without our writers.

    Args:
        run: a finished run. logged: values by step; TensorBoard keeps them as float32.
    """
    from tests import stores
    from trackers.journal.run_directory import RunDirectory

    info = RunDirectory(Path(run.dir)).read_info()
    wrong = 0
    for tracker in trackers:
        if tracker == "json":
            found = _json_values(info)
        else:
            reader = getattr(stores, {"wandb": "read_wandb_file"}.get(tracker, f"read_{tracker}"))
            stored = reader(info).metrics
            found = {name: [(point.step, point.value) for point in points] for name, points in stored.items()}
        bad = sum(_differences(found.get(name, []), logged, name, tracker == "tensorboard") for name in NAMES)
        if bad:
            print(f"audit: {tracker} has {bad} values missing, doubled or wrong", file=sys.stderr)
        wrong += bad
    return wrong


def _differences(
    points: Sequence[tuple[int | None, float]], logged: Mapping[int, Mapping[str, float]], name: str, single: bool
) -> int:
    expected = {step: values[name] for step, values in logged.items()}
    left = dict(expected)
    wrong = 0
    for step, value in points:
        wanted = left.pop(step, None) if step is not None else None
        wrong += wanted is None or not _same(value, _as_float32(wanted) if single else wanted)
    return wrong + len(left)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _as_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _json_values(info: Any) -> dict[str, list[tuple[int | None, float]]]:
    from tests.stores import named_float

    (path,) = [file for file in Path(info.directory).rglob("*.json") if file.name.startswith(info.name)]
    content = json.loads(path.read_text())
    found: dict[str, list[tuple[int | None, float]]] = {}
    for row in content["training_iterations"]:
        step = row.get("iteration", row.get("iter", row.get("step")))
        for name in NAMES:
            if name in row:
                found.setdefault(name, []).append((step, named_float(row[name])))
    return found
