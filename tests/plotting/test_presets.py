"""``trackers plot``: what is drawn is what was logged, every spike of it, and bad input is one line."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trackers
from tests.analysis.support import said_in_one_line, write_run
from tests.cli.test_scripts import benchmark as whole_benchmark
from tests.cli.test_scripts import write_benchmark
from trackers.analysis import benchmark_results
from trackers.analysis.curves import open_runs, with_tokens
from trackers.analysis.tables import fitting_time
from trackers.cli import plot as command
from trackers.cli.scripts import compare_results
from trackers.errors import MissingPackage, NotFound, UsageError
from trackers.metrics.roles import GIB
from trackers.metrics.styles import COLOURS
from trackers.plotting import curve_math, figure, matplotlib_figure, presets, terminal
from trackers.plotting.curve_math import Scale
from trackers.plotting.figure import Panel, Picture, as_builtins
from trackers.plotting.presets import PlotOptions
from trackers.support.optional import need

PNG = b"\x89PNG\r\n\x1a\n"


def pixels(path: Path) -> Any:
    """A picture's pixels, red, green and blue."""
    from PIL import Image

    with Image.open(path) as opened:
        return np.asarray(opened.convert("RGB"))


FIRST = tuple(bytes.fromhex(COLOURS[0][1:]))


def first_above(picture: Any) -> int:
    """How many pixels of the diagram's upper half are of the first colour; the legend, at the right, left out."""
    part = picture[: len(picture) // 2, : int(0.8 * picture.shape[1])].astype(int)
    return int((abs(part - FIRST).sum(axis=2) < 90).sum())


def losses(count: int = 300, seed: int = 0) -> list[Any]:
    """Rows of a run: a falling loss, validation every tenth step, step times, MFU, and two GPUs' samples."""
    source = random.Random(seed)
    rows: list[Any] = []
    for step in range(count):
        values = {"train_loss": 2.0 / (1 + step / 50) + source.random() / 10, "perf/iter_time_sec": 0.1, "mfu": 40.0}
        if step % 10 == 9:
            values["val_loss"] = 2.1 / (1 + step / 50)
        rows.append((step, step * 0.1, values))
        rows.append((None, step * 0.1, {"system.gpu.0.gpu": 90.0, "system.gpu.1.gpu": 80.0, "system.gpu.1.temp": 50.0}))
    return rows


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as users start it."""
    return subprocess.run([sys.executable, "-m", "trackers", "plot", *arguments], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL)  # fmt: skip


@pytest.mark.slow
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=300),
    st.integers(1, 40),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_thinning_keeps_every_extreme(values: list[float], bins: int, log_x: bool) -> None:
    """Of each part of the axis the smallest and largest value stay, and nothing that wasn't logged appears."""
    x, y = np.arange(1.0, len(values) + 1), np.array(values)
    scale = Scale(smooth=0, log_x=log_x, bins=bins)
    found = curve_math.line("run", x, y, scale)
    logged = {(float(a), float(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)}
    drawn = {(float(a), float(b)) for a, b in zip(found.x, found.y, strict=True) if math.isfinite(b)}
    assert drawn <= logged
    frame = pd.DataFrame({"bin": curve_math.bins_of(x, scale), "y": y})[np.isfinite(y)]
    kept = pd.DataFrame(sorted(drawn), columns=["x", "y"], dtype=np.float64)
    kept["bin"] = curve_math.bins_of(x, scale)[(kept["x"] - 1).astype(int)]
    for of in ("min", "max", "first", "last"):
        pd.testing.assert_series_equal(frame.groupby("bin")["y"].agg(of), kept.groupby("bin")["y"].agg(of))
    assert len(found.x) <= 5 * bins
    marks = {name: {int(at) for at in getattr(found, name)} for name in ("nans", "highs", "lows")}
    assert all(math.isnan(values[at - 1]) for at in marks["nans"])
    assert bool(marks["nans"]) == any(map(math.isnan, values))
    assert bool(marks["highs"]) == (math.inf in values)
    assert bool(marks["lows"]) == (-math.inf in values)


def test_line_is_broken_where_a_value_is_nan() -> None:
    """A gap stays a gap: between two values with a NaN between them nothing is drawn."""
    found = curve_math.line("run", [0, 1, 2, 3, 4], [1.0, 2.0, math.nan, 3.0, 4.0], Scale())
    assert np.isnan(found.y).tolist() == [False, False, True, False, False]
    assert found.x.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("weight", [0.01, 0.5, 0.9, 0.999, 0.99999])
def test_smoothing_is_pandas(weight: float) -> None:
    """The moving average is the one pandas computes, term by term, over thousands of values of any size."""
    values = np.random.default_rng(0).normal(0, 1, 5000) * np.geomspace(1e-6, 1e6, 5000)
    expected = pd.Series(values).ewm(alpha=1 - weight, adjust=True).mean().to_numpy()
    np.testing.assert_allclose(curve_math.smooth(values, weight), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("value", [1e-3, 0.1, -3e-5, 1e9])
def test_smoothing_leaves_a_constant_alone(value: float) -> None:
    """A learning rate that never changes has one value: rounding would stretch it over the whole axis."""
    assert set(curve_math.smooth(np.full(3000, value), 0.97).tolist()) == {value}


def test_band_is_mean_and_deviation() -> None:
    """Known answers: of 1 and 3 the mean is 2 and the deviation the root of 2; where only one run is, it is itself."""
    lines = [
        curve_math.line("a", [0, 1, 2], [1.0, 1.0, 1.0], Scale()),
        curve_math.line("b", [0, 2, 4], [3.0, 3.0, 3.0], Scale()),
    ]
    found = curve_math.band("both", lines)
    assert found.x.tolist() == [0, 1, 2, 4]
    assert found.y.tolist() == [2, 2, 2, 3]
    np.testing.assert_allclose(found.high - found.y, [math.sqrt(2)] * 3 + [0])


@pytest.mark.parametrize("scale", [Scale(smooth=0), Scale(smooth=0, log_x=True), Scale()])
def test_band_of_long_curves_keeps_spikes(scale: Scale) -> None:
    """One step of one of three runs that is far off shows in the mean and in the band of 20,000 steps, as it is."""
    x, lines = np.arange(1, 20_001), []
    for spike in (1.0, 301.0, 1.0):
        y = np.ones(20_000)
        y[7776] = spike
        lines.append(curve_math.line("run", x, y, scale))
    found = curve_math.band("all", lines, log_x=scale.log_x)
    highest = max((one.smooth_y if len(one.smooth_y) else one.y).max() for one in lines)
    at = int(np.argmax(found.y))
    assert found.x[at] == 7777
    assert found.y[at] == pytest.approx((highest + 2) / 3)
    assert found.high[at] - found.y[at] == pytest.approx((highest - 1) / math.sqrt(3))
    assert len(found.x) < 2000


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_spike_of_one_step_is_seen(ending: str, tmp_path: Path) -> None:
    """Of 20,000 steps a single one is 50 times as high: the picture has ink there, and none without it."""
    drawn = []
    for spike in (1.0, 50.0):
        y = np.ones(20_000)
        y[12_345] = spike
        line = curve_math.line("run", np.arange(20_000), y, Scale(smooth=0))
        assert line.y.max() == spike
        low = curve_math.line("other", [0, 20_000], [0.0, 50.0], Scale(smooth=0), style=1)
        path = tmp_path / "new" / f"{spike:g}.{ending}"
        matplotlib_figure.save(Picture([Panel("loss", lines=[line, low])], 1, [("run", 0), ("other", 1)]), path)
        drawn.append(path)
    assert drawn[0].read_bytes()[:4] == {"png": PNG[:4], "svg": b"<?xm", "pdf": b"%PDF"}[ending]
    if ending == "png":
        flat, spiked = (pixels(path) for path in drawn)
        assert first_above(spiked) > 100
        assert first_above(flat) == 0


def test_values_are_the_journals() -> None:
    """Every panel's curve is pandas' own of the run's metrics, over steps and over time."""
    write_run("a", losses())
    (run,) = open_runs(["a"])
    frame = run.data.metrics("train_loss").to_pandas()
    picture = presets.metrics([run], PlotOptions(smooth=0), ["train_loss"])
    line = picture.panels[0].lines[0]
    assert line.x.tolist() == frame["step"].tolist()
    assert line.y.tolist() == frame["train_loss"].tolist()
    timed = presets.metrics([run], PlotOptions(smooth=0, x="time"), ["train_loss"]).panels[0]
    assert timed.x_label == "time (s)"
    np.testing.assert_allclose(timed.lines[0].x, frame["step"] * 0.1, atol=1e-6)


def test_unreadable_run_among_others_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One damaged identity doesn't keep a project's other runs from being drawn; it is named."""
    write_run("one", losses(5))
    identity = Path(write_run("two", losses(5)), "run.json")
    identity.unlink()
    identity.mkdir()
    assert [run.label for run in open_runs(["digits"])] == ["one"]
    assert "left out" in caplog.text
    assert "two" in caplog.text


def test_tokens_are_counted_or_computed() -> None:
    """Tokens come from a counter, else from batch, length and steps; a run that says neither is named."""
    write_run("counted", [(step, step, {"loss": 1.0, "consumed_tokens": step * 7}) for step in range(5)])
    write_run("computed", losses(5), config={"global_batch_size": 4, "seq_length": 8})
    write_run("silent", losses(5))
    for name, each in (("counted", 7), ("computed", 32)):
        picture = presets.metrics(open_runs([name]), PlotOptions(x="tokens"), ["*loss"])
        assert picture.panels[0].lines[0].x.tolist() == [each * step for step in range(5)]
    with pytest.raises(UsageError, match=r"silent.*doesn't say its tokens"):
        presets.metrics(open_runs(["silent"]), PlotOptions(x="tokens"))
    runs, notes = with_tokens(open_runs(["counted", "silent", "computed"]))
    assert [run.label for run in runs] == ["counted", "computed"]
    assert [note.partition(" doesn't")[0] for note in notes] == ["left out: run 'silent'"]
    with pytest.raises(UsageError, match="silent"):
        with_tokens(open_runs(["silent"]))
    write_run("silent2", losses(5))
    with pytest.raises(UsageError, match="no run says its tokens"):
        with_tokens(open_runs(["silent", "silent2"]))


def test_legend_has_the_runs_that_are_drawn() -> None:
    """A run that has nothing of what is drawn is named below; where nothing is drawn at all, each panel says so."""
    write_run("one", losses(5))
    write_run("two", [(0, 0, {"other": 1.0})])
    runs = open_runs(["one", "two"])
    both = [(run.label, run.style) for run in runs]
    for picture, legend, notes in (
        (presets.metrics(runs, PlotOptions(), ["train_loss"]), both[:1], ["nothing of this in two"]),
        (presets.metrics(runs, PlotOptions(), ["train_loss", "other"]), both, []),
        (presets.validation(runs[1:], PlotOptions()), both[1:], []),
    ):
        picture.leave_out_absent()
        assert (picture.legend, picture.notes) == (legend, notes)
    assert "trackers: nothing of this in two\n" in program("one", "two", "--keys", "train_loss").stderr


def test_seeds_make_bands() -> None:
    """Runs that differ in nothing but seeds are one line with a band; the legend says of how many."""
    for number in range(6):
        write_run(f"r{number}", losses(50, number), config={"seed": number % 3, "lr": 0.1 if number < 3 else 0.2})
    picture = presets.metrics(open_runs(["digits"]), PlotOptions(by="seed"), ["train_loss"])
    assert sorted(label for label, _ in picture.legend) == ["lr=0.1 (n = 3)", "lr=0.2 (n = 3)"]
    assert len(picture.panels[0].lines) == 2
    assert (picture.panels[0].lines[0].high > picture.panels[0].lines[0].low).all()


def test_training_has_its_panels() -> None:
    """Loss, the distribution of step times without the first five, and MFU above zero."""
    cold: dict[str, float] = {"loss": 1.0, "time_ms": 1e6, "mfu": -100.0}
    rows = [
        (step, step, cold if step < 5 else {"loss": 1.0, "time_ms": 100.0 + step, "mfu": 41.0}) for step in range(50)
    ]
    write_run("a", rows)
    loss, times, mfu = presets.training(open_runs(["a"]), PlotOptions()).panels
    assert len(loss.lines[0].y) == 50
    assert times.distributions[0].counts.sum() == 45
    assert times.distributions[0].edges[-1] <= 150
    assert mfu.lines[0].y.tolist() == [41.0] * 45


def test_gpus_have_a_row_each() -> None:
    """A row for each GPU, a column for each field that any has; what wasn't sampled says so."""
    write_run("a", losses(20))
    picture = presets.gpu(open_runs(["a"]), PlotOptions())
    assert picture.columns == 2
    assert [panel.title for panel in picture.panels] == ["GPU 0", "GPU 0", "GPU 1", "GPU 1"]
    assert [panel.blank for panel in picture.panels] == [False, True, False, False]
    write_run("none", [(1, 1, {"loss": 1.0})])
    with pytest.raises(NotFound, match="no run has samples of single GPUs"):
        presets.gpu(open_runs(["none"]), PlotOptions())


def test_axes_of_utilisation_do_not_exaggerate(tmp_path: Path) -> None:
    """Utilisation is drawn from 0 to 100, memory, power and MFU from 0; a loss as it is; zooming isn't bounded."""
    rows = [
        (step, step, {"loss": 1.0 + step / 1e4, "mfu": 38.0 + step / 10, "gpu/compute_util_avg": 97.0 + step % 2})
        for step in range(9)
    ]
    gpus = {"system.gpu.0.gpu": 98.0, "system.gpu.0.memoryAllocatedBytes": 6e10, "system.gpu.0.temp": 61.0}
    write_run("a", [*rows, (None, 9, gpus), (None, 10, gpus)])
    runs = open_runs(["a"])
    keys = ["loss", "mfu", "gpu/compute_util_avg"]
    loss, mfu, use = presets.metrics(runs, PlotOptions(), keys).panels
    assert (loss.heights, use.floor, use.ceiling) == (None, 0.0, 100.0)
    assert [panel.heights and round(panel.heights[0], 3) for panel in (mfu, use)] == [0.0, 0.0]
    assert use.heights is not None
    assert 100 < use.heights[1] < 110
    assert mfu.heights is not None
    assert 38.8 < mfu.heights[1] < 42
    ends = [panel.heights for panel in presets.gpu(runs, PlotOptions()).panels]
    assert [end and end[0] for end in ends] == [0.0, 0.0, 0.0]
    assert presets.metrics(runs, PlotOptions(log_y=True), keys).panels[2].heights is None
    picture = presets.metrics(runs, PlotOptions(), keys)
    axes = matplotlib_figure._figure(picture).axes
    assert axes[2].get_ylim() == use.heights
    assert axes[0].get_ylim()[0] > 0.9


@pytest.mark.parametrize(
    ("name", "values", "ends"),
    [
        ("system/cpu_utilization_percentage", [3.0, 60.0], (0.0, 100.0)),
        ("cpu_percent", [0.2, 0.9], (0.0, 1.0)),
        ("gpu_util", [150.0], (None, None)),
        ("utilization_cost", [3.0], (None, None)),
        ("gpu/power_total_w", [411.0, 412.0], (0.0, None)),
        ("system.gpu.0.powerWatts", [411.0], (0.0, None)),
        ("system.gpu.0.memoryAllocatedBytes", [6e10], (0.0, None)),
        ("gpu/memory_used_total_gb", [60.0], (0.0, None)),
        ("system.cpu", [60.0], (0.0, 100.0)),
        ("powerful", [3.0], (None, None)),
    ],
)
def test_shares_are_known_by_their_names(name: str, values: list[float], ends: tuple[float | None, ...]) -> None:
    """Percentages and fractions of something; what is beyond 100 is neither. Memory and power begin at 0."""
    write_run("a", [(step, step, {name: value}) for step, value in enumerate(values)])
    (panel,) = presets.metrics(open_runs(["a"]), PlotOptions(), [name]).panels
    assert (panel.floor, panel.ceiling) == ends


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [
        ([0.35, 0.2], "Milliseconds"),
        ([1.5, 0.1], "Seconds"),
        ([300.0], "Minutes"),
        ([3e-5], "Microseconds"),
        ([], "Seconds"),
    ],
)
def test_times_are_in_the_unit_that_makes_them_short(seconds: list[float], unit: str) -> None:
    """A step of 0.0031 s is 3.1 ms; one of 19 s is no 19,130 ms."""
    assert fitting_time(seconds)[0] == unit


def test_time_of_steps_is_shown_in_its_unit() -> None:
    """The bars, their whiskers and the distribution of one picture have one unit, and name it."""
    rows = [(step, step, {"loss": 1.0, "perf/iter_time_sec": 19.0 + step / 100}) for step in range(20)]
    write_run("slow", rows)
    bars = presets.benchmark(open_runs(["slow"]), PlotOptions()).panels[1]
    assert bars.title == "Seconds a step (mean; min to max)"
    assert (bars.bars[0].low, bars.bars[0].high) == pytest.approx((19.01, 19.19))
    times = presets.training(open_runs(["slow"]), PlotOptions()).panels[1]
    assert times.x_label == "s a step"
    assert 19 < times.distributions[0].edges[0] < times.distributions[0].edges[-1] < 20


@pytest.mark.slow
def test_pictures_have_titles_and_no_empty_panels(tmp_path: Path) -> None:
    """A picture says what it is of; what nobody logged takes no room, unless there is nothing at all."""
    write_run("a", losses(9), project="digits")
    write_run("b", [(step, step, {"loss": 1.0}) for step in range(9)], config={"lr": 1})
    one, both = open_runs(["b"]), open_runs(["digits"])
    assert presets.metrics(one, PlotOptions()).title == "b"
    assert presets.benchmark(both, PlotOptions()).title == "digits: 2 runs"
    assert presets.metrics(both, PlotOptions(by="seed")).title == "digits: 2 runs, means over seeds"
    picture = presets.training(one, PlotOptions())
    assert picture.leave_out_blank() == ["Step times", "Model FLOPs utilization"]
    assert ([panel.title for panel in picture.panels], picture.columns) == (["Training loss"], 1)
    done = program("b", "--panel", "training", "-o", "out.png")
    assert done.stderr.splitlines() == [
        "trackers: Step times: nothing to draw", "trackers: Model FLOPs utilization: nothing to draw",
    ]  # fmt: skip
    shown = json.loads(program("b", "--panel", "training", "--json").stdout)
    assert [panel["title"] for panel in shown["panels"]] == ["Training loss"]
    assert shown["title"] == "b"
    empty = Picture([Panel("x"), Panel("y")], 2, [])
    assert (empty.leave_out_blank(), len(empty.panels)) == (["x", "y"], 2)


def test_validation_stands_against_training() -> None:
    """Both losses of a run have its colour; training's is dashed."""
    write_run("a", losses(50))
    (run,) = open_runs(["a"])
    (panel,) = presets.validation([run], PlotOptions()).panels
    expected = [(False, run.style, 5), (True, run.style, 50)]
    assert [(line.dashed, line.style, line.count) for line in panel.lines] == expected


NASTY = (
    "$x_{$",
    "_hidden",
    "<script>alert(1)</script>",
    "a|b*_`",
    "\\textbf{x} 100 %",
    "line\nbreak \x1b[31m",
    "名前 🚀",
)


def test_nasty_names_are_drawn_as_they_are() -> None:
    """Names with characters of LaTeX, Markdown, HTML and terminals: a picture, no warning, no markup in the svg."""
    for number, name in enumerate(NASTY):
        write_run(f"r{number}", [(step, step, {name: step, "$\\frac{": 1.0}) for step in range(3)], name=name)
    runs = open_runs(["digits"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ending in ("png", "svg"):
            matplotlib_figure.save(presets.metrics(runs, PlotOptions()), Path(f"out.{ending}"))
    svg = Path("out.svg").read_text()
    assert "<script>" not in svg
    assert "\x1b" not in svg
    assert "_hidden" in svg


@pytest.mark.slow
def test_marks_are_named_without_hiding_any(tmp_path: Path) -> None:
    """A loss that diverges at the end has its mark in the corner, with nothing over it; the legend says what it is."""
    drawn = []
    for last in (math.inf, 1.0):
        line = curve_math.line("run", np.arange(10), [1.0] * 9 + [last], Scale())
        path = tmp_path / f"{last:g}.png"
        matplotlib_figure.save(Picture([Panel("loss", lines=[line])], 1, [("other", 1)]), path)
        blue = abs(pixels(path).astype(int) - FIRST).sum(axis=2) < 90
        drawn.append(int(blue[: len(blue) // 6].sum()))
        assert np.ptp(np.flatnonzero(blue.any(axis=0))) > 0.6 * blue.shape[1]  # the diagram is as wide as ever
    assert drawn[1] == 0
    assert drawn[0] > 20
    matplotlib_figure.save(Picture([Panel("loss", lines=[line])], 1, [("run", 0)]), tmp_path / "none.svg")
    assert "∞" not in (tmp_path / "none.svg").read_text()
    line = curve_math.line("run", np.arange(10), [1.0] * 9 + [math.inf], Scale())
    matplotlib_figure.save(Picture([Panel("loss", lines=[line])], 1, [("run", 0)]), tmp_path / "some.svg")
    assert "∞" in (tmp_path / "some.svg").read_text()


@pytest.mark.parametrize(
    ("view", "ticks"),
    [
        (PlotOptions(smooth=0), ["500", "1000", "1500"]),
        (PlotOptions(smooth=0, log_x=True), ["1", "10", "100", "1000"]),
        (PlotOptions(smooth=0, log_y=True), ["0.01", "0.1", "1", "10"]),
    ],
)
def test_logarithmic_axes_have_powers_of_ten(view: PlotOptions, ticks: list[str]) -> None:
    """Asked for, an axis has a tick at each power of ten, all as far from each other; else at equal differences."""
    write_run("long", [(step, step, {"loss": 10.0 / step}) for step in range(1, 3001)])
    matplotlib_figure.save(presets.metrics(open_runs(["long"]), view), Path("out.svg"))
    across, _, up = Path("out.svg").read_text().partition('id="matplotlib.axis_2"')
    found = re.findall(r'x="([\d.]+)" y="([\d.]+)"[^>]*>([\d.]+)</text>', up if view.log_y else across)
    places = {text: float(y if view.log_y else x) for x, y, text in found}
    apart = np.diff([places[text] for text in ticks])
    np.testing.assert_allclose(apart, apart[0], rtol=0.02)


@pytest.mark.parametrize(("apart", "unit", "end"), [(1.0, "s", 100), (6.0, "min", 10), (3600.0, "h", 100)])
def test_time_is_in_the_unit_that_people_use(apart: float, unit: str, end: float) -> None:
    """Time since the run began is in seconds, minutes or hours, by how long the run took."""
    write_run("long", [(step, apart * step, {"loss": 1.0}) for step in range(101)])
    (panel,) = presets.metrics(open_runs(["long"]), PlotOptions(x="time")).panels
    assert panel.x_label == f"time ({unit})"
    assert panel.lines[0].x[-1] == pytest.approx(end)


def test_steps_are_whole_numbers() -> None:
    """An axis of few steps has no ticks between them."""
    write_run("short", [(step, step, {"loss": float(step)}) for step in range(5)])
    matplotlib_figure.save(presets.metrics(open_runs(["short"]), PlotOptions()), Path("out.svg"))
    ticks = re.findall(r">([\d.]+)</text>", Path("out.svg").read_text().partition('id="matplotlib.axis_2"')[0])
    assert ticks == ["0", "1", "2", "3", "4"]


def test_whole_numbers_have_whole_ticks() -> None:
    """Epochs have no ticks at halves, in a file and on the terminal; values with fractions have."""
    write_run("short", [(step, step, {"epoch": float(step), "loss": step / 2}) for step in range(4)])
    picture = presets.metrics(open_runs(["short"]), PlotOptions(smooth=0), ["epoch"])
    matplotlib_figure.save(picture, Path("out.svg"))
    up = re.findall(r">([\d.]+)</text>", Path("out.svg").read_text().partition('id="matplotlib.axis_2"')[2])
    assert up[:4] == ["0", "1", "2", "3"]
    assert not re.search(r"\d\.\d", terminal.text(picture, width=80, height=15, coloured=False))
    picture = presets.metrics(open_runs(["short"]), PlotOptions(smooth=0), ["loss"])
    assert "1.5┤" in terminal.text(picture, width=80, height=15, coloured=False)


def test_legend_has_all_of_twenty_runs() -> None:
    """Twenty runs are all named in the legend, and no two of them look alike."""
    for number in range(20):
        write_run(f"run{number:02}", losses(5, number))
    picture = presets.metrics(open_runs(["digits"]), PlotOptions())
    matplotlib_figure.save(picture, Path("out.svg"))
    svg = Path("out.svg").read_text()
    assert all(f"run{number:02}" in svg for number in range(20))
    looks = {(figure.colour(style), figure.dashes(style)) for _, style in picture.legend}
    assert len(looks) == 20


POOR: dict[str, list[Any]] = {
    "nan": [(step, step, {"loss": math.nan}) for step in range(5)],
    "infinite": [(step, step, {"loss": math.inf * (-1) ** step}) for step in range(5)],
    "stepless": [(None, step, {"loss": 1.0 + step}) for step in range(5)],
    "single": [(0, 0, {"loss": 1.0})],
    "huge": [(step, step, {"loss": 10.0**300 * step}) for step in range(5)],
    "largest": [(step, step, {"loss": -1.7e308 if step % 2 else 1.7e308}) for step in range(5)],
    "beyond": [(0, 0, {"loss": 1e308}), (1, 1, {"loss": 10**400}), (2, 2, {"loss": 1.0})],
    "negative": [(step, step, {"loss": -1.0}) for step in range(5)],
    "zeros": [(0, 0, {"loss": 0.0}), (0, 0, {"loss": 0.0})],
}


VIEWS = (PlotOptions(), PlotOptions(log_x=True, log_y=True), PlotOptions(x="time", by="seed", smooth=0.5))
POOR_PANELS = ("", "training", "validation")


def show_poor(kind: str, panel: str, drawn: Collection[PlotOptions]) -> None:
    """Plot a poor run in every view; those of ``drawn`` as a picture, too."""
    write_run("a", POOR[kind])
    for view in VIEWS:
        runs = open_runs(["a"])
        picture = getattr(presets, panel)(runs, view) if panel else presets.metrics(runs, view)
        json.dumps(as_builtins(picture), allow_nan=False)
        assert terminal.text(picture, width=80, height=15, coloured=False)
        if view in drawn:
            matplotlib_figure.save(picture, Path("out.png"))
            assert Path("out.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("kind", POOR)
@pytest.mark.parametrize("panel", POOR_PANELS)
def test_poor_runs_are_drawn(kind: str, panel: str) -> None:
    """All NaN, all infinite, no steps, one value, huge, negative and zero values, on any axes: a picture of each kind
    in each panel and in each view, and of each panel in each view.
    """
    number = list(POOR).index(kind) + POOR_PANELS.index(panel)
    show_poor(kind, panel, [VIEWS[number % len(VIEWS)]])


@pytest.mark.soak
@pytest.mark.parametrize("kind", POOR)
@pytest.mark.parametrize("panel", POOR_PANELS)
def test_poor_runs_are_drawn_in_every_view(kind: str, panel: str) -> None:
    """The same, and each kind's picture in every panel and view together."""
    show_poor(kind, panel, VIEWS)


@pytest.mark.slow
def test_diagrams_keep_their_width_beside_marks_and_legends() -> None:
    """Values without a place on the axis, and names that are long, leave each of two diagrams its width."""
    rows = [(step, step, {"loss": 1.0 / (step + 1), "other": value})
            for step, value in enumerate((1.0, math.nan, math.inf, -math.inf, 2.0))]  # fmt: skip
    for name in ("a", "b" * 60):
        write_run(name[:4], rows, name=name)
    figure = matplotlib_figure._figure(presets.metrics(open_runs(["digits"]), PlotOptions(), ["loss", "other"]))
    figure.canvas.draw()
    assert [axes.get_position().width > 0.3 for axes in figure.axes] == [True, True]


WRONG: list[tuple[tuple[str, ...], int, str]] = [
    (("a", "--keys", "nothing_*", "-o", "o.png"), 1, "no run has a metric 'nothing_*'"),
    (("a", "--keys", "train_los", "-o", "o.png"), 1, "no run has a metric 'train_los': did you mean 'train_loss'?"),
    (("nosuchrun", "-o", "o.png"), 1, "nosuchrun"),
    (("a", "-o", "o.bmp"), 2, "png, svg, pdf"),
    (("a", "-o", "a.txt/o.png"), 2, "a.txt/o.png can't be written: "),
    (("a", "--panel", "all", "-o", "o.png"), 2, "known are training"),
    (("a", "--panel", "gpu", "--keys", "x", "-o", "o.png"), 2, "only one of them"),
    (("a", "--x", "epoch", "-o", "o.png"), 2, "step, time, tokens"),
    (("a", "--smooth", "1", "-o", "o.png"), 2, "below 1"),
    (("a", "--by", "config.none", "-o", "o.png"), 2, "no run has the setting 'none'"),
    (("a", "--panel", "gpu", "--by", "seed", "-o", "o.png"), 2, "--panel gpu can't be drawn with --by"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG, ids=[" ".join(entry[0]) for entry in WRONG])
def test_wrong_input_is_one_line(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is wrong is one line on stderr: 1 not found, 2 wrong usage; and no picture is left half-drawn."""
    write_run("a", losses(5))
    Path("a.txt").write_text("")
    ended, error = said_in_one_line(["plot", *arguments], capsys, monkeypatch)
    assert ended == code
    assert said in error
    assert not [path for path in Path().iterdir() if path.name.startswith((".o.", "o."))]


@pytest.mark.slow
def test_command_draws_and_tells(tmp_path: Path) -> None:
    """The command makes the directory, says where the picture is, and prints what it drew as JSON."""
    write_run("a", losses(20))
    done = program("a", "--keys", "*_loss", "-o", "new/dir/out.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Saved new/dir/out.svg\n", "")
    found = json.loads(program("a", "--keys", "val_loss", "--json").stdout)
    assert found["panels"][0]["lines"][0]["x"] == [9, 19]
    assert "Example: trackers plot" in program("--help").stdout


def test_terminal_shows_a_plot(capsys: pytest.CaptureFixture[str]) -> None:
    """Without -o the panels are text: title, axes, a letter for each run, its name, and where a NaN was."""
    write_run("rise", [(step, step, {"loss": math.nan if step == 5 else 1.0 + step}) for step in range(10)])
    write_run("fall", [(step, step, {"loss": 10.0 - step}) for step in range(10)], name="fall \x1b[31m")
    command.plot(["rise", "fall"], keys="loss")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    rows = [line for line in out.splitlines() if "│" in line or "┤" in line]
    assert "a" in rows[1 if "a" in rows[1] else 0]
    assert "a rise" in out
    assert "×" in out
    assert "b fall \N{REPLACEMENT CHARACTER}" in out


@pytest.mark.parametrize("name", command.PANELS)
@pytest.mark.parametrize("coloured", [False, True])
def test_terminal_shows_every_panel(name: str, coloured: bool) -> None:
    """Bars, distributions and lines, of whole runs and of such as have nothing to draw."""
    write_run("whole", losses(30), config={"global_batch_size": 4, "seq_length": 8})
    for kind, rows in POOR.items():
        write_run(kind, rows)
    panels = {**presets.PANELS, "benchmark": presets.benchmark}
    for source in ("whole", "digits"):
        for view in (PlotOptions(), PlotOptions(log_x=True, log_y=True)):
            picture = panels[name](open_runs([source]), view)
            shown = terminal.text(picture, width=80, height=15, coloured=coloured)
            assert all(panel.title in shown for panel in picture.panels)
            assert ("\x1b" in shown) == coloured


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib one line says what to install."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else find(name, *more)
    )
    with pytest.raises(MissingPackage, match=r"pip install 'trackers-relay\[analysis\]'"):
        need("matplotlib", "an image")
    with pytest.raises(MissingPackage):
        matplotlib_figure.save(Picture([], 1, []), Path("out.png"))


def test_scripts_without_matplotlib_say_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Results are still compared and reported, without a plot; one line says what it needs."""
    write_benchmark("a", whole_benchmark())
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else find(name, *more)
    )
    assert compare_results.main([]) == 0
    said = capsys.readouterr()
    assert "Report saved to benchmark_results/comparison_report.md" in said.out
    assert "no plot: an image needs the matplotlib package: pip install 'trackers-relay[analysis]'" in said.err


@pytest.mark.slow
def test_panels_are_all_drawn() -> None:
    """Each name that --panel takes gives a picture."""
    write_run("a", losses(5))
    for name in command.PANELS:
        command.plot(["a"], panel=name, output=Path(f"{name}.png"))
        assert Path(f"{name}.png").read_bytes().startswith(PNG)


def test_benchmark_has_its_panels() -> None:
    """Six panels and the settings; the bars are what ``compare`` says, and a run that doesn't say has none."""
    rows = losses(50)
    for step, _, values in rows:
        if step is not None:
            values["learning_rate"] = 1e-3
    write_run("whole", rows, config={"global_batch_size": 4, "seq_length": 8})
    write_run("silent", [(1, 1, {"loss": 1.0})])
    picture = presets.benchmark(open_runs(["whole", "silent"]), PlotOptions())
    per_gpu, step, whole, memory, loss, rate = picture.panels
    assert [bar.label for bar in per_gpu.bars] == ["whole"]
    assert [bar.value for panel in (per_gpu, whole, step) for bar in panel.bars] == pytest.approx([160, 320, 100])
    assert memory.blank
    assert [[len(one.y) for one in panel.lines] for panel in (loss, rate)] == [[50, 1], [50, 0]]
    assert picture.about == ["whole: 2 × GPU, global batch 4, sequence 8"]


def test_kinds_of_memory_stand_apart() -> None:
    """Allocated, reserved and the device's memory are bars of their own, named; one kind alone is in the title. What
    others call ``_gb`` are GiB, as torch's bytes over 1024³ are."""
    torch = whole_benchmark()
    torch["memory_metrics"] = {
        "avg_memory_allocated_gb": 60.0, "peak_memory_allocated_gb": 64.0, "avg_memory_reserved_gb": 70.0,
        "peak_memory_reserved_gb": 72.0,
    }  # fmt: skip
    device = whole_benchmark()
    device["memory_metrics"] = {"kind": "device", "peak_memory_allocated_gb": 118.0}
    write_benchmark("one", torch)
    write_benchmark("two", device)
    found, _ = benchmark_results.results(Path("benchmark_results"))
    memory = presets.of_results(found).panels[3]
    assert [(bar.label, bar.value, bar.low, bar.note) for bar in memory.bars] == [
        ("one", 64 * GIB, 60 * GIB, "allocated"), ("one", 72 * GIB, 70 * GIB, "reserved"),
        ("two", 118 * GIB, None, "device"),
    ]  # fmt: skip
    alone = presets.of_results(found[1:]).panels[3]
    assert (alone.title, alone.bars[0].note) == ("Peak memory of one GPU (GB, device)", "")


@pytest.mark.parametrize(
    ("key", "kind", "gb"),
    [
        ("memory/mem-max-allocated-gigabytes", "torch", 10.0),
        ("memory/rank_0/max_allocated_mib", "torch", 10.0 * 1024**2 / 1e9),
        ("memory/mem-max-reserved-gigabytes", "reserved", 10.0),
        ("gpu/max_reserved_memory_gib", "reserved", 10.0 * 1024**3 / 1e9),
        ("gpu/hip_memory_used_gib", "device", 10.0 * 1024**3 / 1e9),
    ],
)
def test_runs_say_which_memory_they_mean(key: str, kind: str, gb: float) -> None:
    """By the metric's name; beside a run that means another, the comparison names both and warns."""
    write_run("a", [(step, step, {"loss": 1.0, key: 10.0}) for step in range(3)])
    other = "memory/mem-max-allocated-gigabytes" if kind != "torch" else "system.gpu.0.memoryAllocatedBytes"
    write_run("b", [(step, step, {"loss": 1.0, other: 10.0}) for step in range(3)])
    (bar,) = presets.benchmark(open_runs(["a"]), PlotOptions()).panels[3].bars
    assert bar.value == pytest.approx(gb)
    comparison = trackers.compare_runs(["a", "b"])
    assert comparison["runs"][0]["memory_kind"] == kind
    assert [line for line in comparison["warnings"] if "memory was measured differently" in line]


@pytest.mark.slow
def test_compare_results_draws(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The plot lies beside the results, or where --output-plot says; without matplotlib that is said, and no more."""
    write_benchmark("a", whole_benchmark())
    write_benchmark("poor", {"performance_metrics": {}, "raw_step_times": [None, "NaN", 1.0]})
    assert compare_results.main(["--output-plot", "new/plot.svg"]) == 0
    assert "Plot saved to new/plot.svg" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(matplotlib_figure, "save", lambda *_: need("no_such_package", "an image"))
        assert compare_results.main([]) == 0
    assert "no plot: an image needs the no_such_package package" in capsys.readouterr().err
    assert compare_results.main([]) == 0
    assert Path("benchmark_results/comparison_plot.png").read_bytes().startswith(PNG)
