"""How long a plot of 50 runs with 100,000 points each takes, and how large and how smooth a report of 20 such is."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.analysis import age, timed
from benchmarks.common import Figure, main
from tests import browser
from trackers import records
from trackers.journal.run_directory import RunDirectory
from trackers.records import Config, Finish, Metrics, Record, Start
from trackers.tracker import RunInfo

T0 = 1_763_688_000.0
PLOT_S, REPORT_MB = 3.0, 5.0
FRAME_MS = 1000 / 30
"""Thirty pictures a second look like one that moves."""
PAN = """
const chart = charts[0], took = [];
const turn = (name, value) => chart.canvas.dispatchEvent(new WheelEvent("wheel", {[name]: value, cancelable: true}));
for (let frame = 0; frame < 60; frame++) {
  const began = performance.now();
  turn(frame < 10 ? "deltaY" : "deltaX", frame < 10 ? -20 : 20);
  chart.canvas.getContext("2d").getImageData(0, 0, 1, 1);  // what was drawn is there
  took.push(performance.now() - began);
}
return took.slice(10);
"""
"""Zooms in with the wheel, then moves sideways."""
VARIANTS = 10


def write(root: Path, runs: int, points: int) -> None:
    """Runs of one loss with noise, as training leaves them on disk."""
    import numpy as np

    source = np.random.default_rng(0)
    bodies = []
    for _ in range(VARIANTS):
        loss = 3 / (1 + np.arange(points) / points * 9) + source.normal(0, 0.05, points)
        bodies.append(b"".join(records.encode(Metrics(step=step, time=T0 + step / 10, values={"train_loss": value}))
                               for step, value in enumerate(loss.tolist())))  # fmt: skip
    for number in range(runs):
        directory = RunDirectory(root / "long" / f"run{number:03d}")
        directory.make()
        info = RunInfo(id=directory.path.name, name=f"run {number}", project="long", created=T0 + number,
                       trackers=["json"])  # fmt: skip
        directory.write_info(info)
        head: list[Record] = [Start(time=T0, rank=0, pid=1), Config(time=T0, values={"lr": 0.1, "seed": number})]
        end = records.encode(Finish(time=T0 + points, status="finished", exit_code=0))
        parts = (*map(records.encode, head), bodies[number % VARIANTS], end)
        (directory.streams / "rank-0.1.jsonl").write_bytes(b"".join(parts))


def drawn(root: Path, picture: Path) -> float:
    """Seconds that the picture alone takes, its runs being read."""
    from trackers.analysis.curves import open_runs
    from trackers.plotting import matplotlib_figure, presets

    runs = open_runs([str(root)])
    for run in runs:
        run.data.blocks()
    began = time.perf_counter()
    matplotlib_figure.save(presets.metrics(runs, presets.PlotOptions()), picture)
    return time.perf_counter() - began


def panned(page: Path) -> float:
    """Milliseconds from a turn of the wheel to the moved picture, in Chromium that draws without a GPU; the median."""
    with tempfile.TemporaryDirectory() as profile, browser.browser(Path(profile)) as window:
        window.open(page)
        return float(statistics.median(window.script(PAN)))


def measure(quick: bool, plotted: int = 50, reported: int = 20) -> list[Figure]:
    """The figures; a hundredth of the points for a try."""
    points = 1000 if quick else 100_000
    many, few = Path("many"), Path("few")
    write(many, plotted, points)
    age(many)
    first = timed("plot", str(many), "-o", "cold.png")
    again = timed("plot", str(many), "-o", "warm.png")
    if Path("cold.png").read_bytes() != Path("warm.png").read_bytes():
        raise RuntimeError("the second picture is another one")
    alone = drawn(many, Path("alone.png"))
    write(few, reported, points)
    age(few)
    report = timed("report", str(few), "-o", "report.html")
    figures = [
        Figure(f"plot of {plotted} runs x {points:,} points, read before", alone, "s", at_most=PLOT_S),
        Figure("  the whole command, warm", again.wall_s, "s"),
        Figure("    processor time", again.processor_s, "s"),
        Figure("  the whole command, every run read for the first time", first.wall_s, "s"),
        Figure(f"report.html of {reported} runs x {points:,} points", report.wall_s, "s"),
        Figure("  its size", Path("report.html").stat().st_size / 1e6, "MB", at_most=REPORT_MB),
    ]
    if not browser.missing():
        figures.append(Figure("  a frame while it pans", panned(Path("report.html")), "ms", at_most=FRAME_MS))
    return figures


if __name__ == "__main__":
    main(measure, __doc__ or "")
