"""Pages of plots in a real browser: no console error, zoom, legend, a phone; escaped, small, without network."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import browser as chromium
from tests.analysis.support import write_run
from tests.plotting.test_presets import NASTY, POOR, losses
from trackers.analysis.curves import open_runs
from trackers.plotting import curve_math, html_page, presets
from trackers.plotting.curve_math import Scale
from trackers.plotting.figure import Panel, Picture
from trackers.plotting.presets import PlotOptions

needs_browser = pytest.mark.skipif(
    bool(chromium.missing()) and "CI" not in os.environ,
    reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
)


def data_of(content: str) -> Any:
    """The data that a page holds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', content, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.slow
def test_page_of_twenty_long_runs_is_small_and_keeps_spikes(tmp_path: Path) -> None:
    """Six panels of 20 runs with 100,000 points each: below 5 MB, and every run's spike is in it."""
    source = np.random.default_rng(0)
    panels = []
    for name in range(6):
        lines = []
        for style in range(20):
            y = source.normal(1, 0.1, 100_000)
            y[1000 * style + 7] = 50.0 + style
            lines.append(curve_math.line(f"run {style}", np.arange(100_000), y, Scale(), style=style))
        panels.append(Panel(f"metric {name}", "step", lines=lines))
    path = tmp_path / "new" / "page.html"
    html_page.save(Picture(panels, 3, [(f"run {style}", style) for style in range(20)]), path)
    assert path.stat().st_size < 5_000_000
    for panel in data_of(path.read_text())["picture"]["panels"]:
        for style, line in enumerate(panel["lines"]):
            peak = max(value for value in line["y"] if value is not None)
            assert (peak, line["x"][line["y"].index(peak)]) == (50.0 + style, 1000 * style + 7)


def test_nasty_names_are_text(tmp_path: Path) -> None:
    """No name ends a script or becomes markup; the page names no address."""
    names = (*NASTY, "</script><script>boom()</script>", "<!--<script>", "\u2028", "&amp;")
    for number, name in enumerate(names):
        write_run(f"r{number}", [(0, 0, {"loss": 1.0, "</script><b>": 1.0})], name=name)
    content = html_page.page(presets.metrics(open_runs(["digits"]), PlotOptions()), title="<b>'\"&", text="")
    assert content.count("<script") == content.count("</script>") == 2
    assert "<b>" not in content
    assert not re.search(r"https?://|src=|@import|url\(", content)
    assert {label for label, _ in data_of(content)["picture"]["legend"]} >= {
        "$x_{$",
        "</script><script>boom()</script>",
    }


@pytest.mark.slow
@needs_browser
def test_page_works_in_a_browser(tmp_path: Path) -> None:
    """No word on the console; dragging zooms, the wheel pans, double click shows all, the legend hides a run."""
    for number in range(3):
        write_run(f"r{number}", losses(300, number), name=NASTY[number])
    path = tmp_path / "page.html"
    html_page.save(presets.metrics(open_runs(["digits"]), PlotOptions()), path)
    with chromium.browser(tmp_path) as window:
        window.open(path)
        assert window.console() == []
        assert int(window.script("return document.body.dataset.drawn")) == 3
        assert window.script("return document.querySelectorAll('#legend button').length") == 3
        whole = window.script("return [charts[0].box.x0, charts[0].box.x1]")
        window.drag("canvas", -50, 50)
        zoomed = window.script("return [charts[0].box.x0, charts[0].box.x1]")
        assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
        window.script("charts[0].canvas.dispatchEvent(new WheelEvent('wheel', {deltaX: 40, cancelable: true}))")
        panned = window.script("return [charts[0].box.x0, charts[0].box.x1]")
        assert panned[0] > zoomed[0]
        assert panned[1] - panned[0] == pytest.approx(zoomed[1] - zoomed[0])
        window.script("charts[0].canvas.dispatchEvent(new MouseEvent('dblclick'))")
        assert window.script("return [charts[0].box.x0, charts[0].box.x1]") == whole
        ink = "const c = charts[0].canvas; return c.toDataURL()"
        before = window.script(ink)
        window.script("document.querySelector('#legend button').click()")
        assert window.script("return charts[0].visible().length") == 2
        assert window.script(ink) != before
        window.drag("canvas", -50, 50)
        assert ": " in window.script("return charts[0].note.textContent")
        assert window.console() == []


@pytest.mark.slow
@needs_browser
def test_logarithmic_axes_on_a_page(tmp_path: Path) -> None:
    """Asked for, equal ratios are equal lengths, and what is written beside them are the values; else it is not so."""
    write_run("long", [(step, step, {"loss": 10.0 / step}) for step in range(1, 3001)])
    with chromium.browser(tmp_path) as window:
        for log_x, log_y in ((False, False), (True, False), (False, True)):
            path = tmp_path / f"{log_x}{log_y}.html"
            html_page.save(presets.metrics(open_runs(["long"]), PlotOptions(log_x=log_x, log_y=log_y)), path)
            window.open(path)
            x1, y0, y1 = window.script("const b = charts[0].box; return [b.x1, b.y0, b.y1]")
            assert (x1 < 4) == log_x
            assert (y0 < -2 and y1 < 1.5) == log_y
            labels = window.script(LABELS)
            assert ({"10", "100", "1000"} <= set(labels)) == log_x
            assert ({"0.01", "0.1", "1", "10"} <= set(labels)) == log_y


LABELS = """
const said = [], draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  said.push(text);
  draw.call(this, text, ...more);
};
dispatchEvent(new Event("resize"));
return said;
"""


@pytest.mark.slow
@needs_browser
def test_whole_numbers_have_whole_ticks_on_a_page(tmp_path: Path) -> None:
    """An axis of a few steps or epochs has no ticks between them; one of fractions has, and so has a narrow view."""
    for name, scale in (("epoch", 1.0), ("loss", 0.5)):
        write_run(name, [(step, step, {name: step * scale}) for step in range(3)])
    with chromium.browser(tmp_path) as window:
        for name, fractions in (("epoch", set()), ("loss", {"0.2", "0.4", "0.6", "0.8"})):
            path = tmp_path / f"{name}.html"
            html_page.save(presets.metrics(open_runs([name]), PlotOptions(smooth=0)), path)
            window.open(path)
            labels = set(window.script(LABELS))
            assert {"0", "1", "2"} <= labels
            assert {text for text in labels if "0." in text} == fractions
        assert len(window.script("return ticks(0.2, 0.4, false, 4, null, true)")) > 1
        assert window.script("return ticks(0, 199, false, 4, 'number')") == [0, 50, 100, 150]
        assert window.script("return ticks(0, 199, false, 4, 'duration')") == [0, 60, 120, 180]


OUTSIDE = """
const cut = [], draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, ...more) {
  const share = {left: 0, center: 0.5, right: 1}[this.textAlign], width = this.measureText(text).width;
  const from = x - share * width;
  if (from < -0.5 || from + width > this.canvas.clientWidth + 0.5) cut.push(text);
  draw.call(this, text, x, ...more);
};
dispatchEvent(new Event("resize"));
return cut;
"""


@needs_browser
def test_labels_of_axes_are_whole(tmp_path: Path) -> None:
    """Neither a long number beside an axis nor the last one below it is cut by the picture's edge."""
    rows = [(step, step, {"tokens": 1e9 + 1e5 * step, "small": -1e-7 * step, "loss": 1.0}) for step in range(2901)]
    write_run("one", rows)
    path = tmp_path / "page.html"
    html_page.save(presets.metrics(open_runs(["digits"]), PlotOptions()), path)
    with chromium.browser(tmp_path) as window:
        window.open(path)
        assert window.script(OUTSIDE) == []


@pytest.mark.slow
@needs_browser
def test_pages_of_poor_runs_and_all_panels_open(tmp_path: Path) -> None:
    """Nothing to draw, huge values, bars, distributions, bands and logarithmic axes: no word on the console; on a
    phone nothing is wider than the screen."""
    write_run("whole", losses(30), config={"global_batch_size": 4, "seq_length": 8})
    for kind, rows in POOR.items():
        write_run(kind, rows)
    runs = open_runs(["digits"])
    views = (PlotOptions(), PlotOptions(log_x=True, log_y=True), PlotOptions(by="seed", x="time"))
    pictures = [draw(runs, view) for draw in (presets.metrics, *presets.PANELS.values()) for view in views]
    pictures.append(presets.benchmark(runs, PlotOptions()))
    with chromium.browser(tmp_path, width=500, height=900) as window:  # no window of Chromium's is narrower
        for number, picture in enumerate(pictures):
            path = tmp_path / f"{number}.html"
            html_page.save(picture, path)
            window.open(path)
            assert window.console() == []
            assert int(window.script("return document.body.dataset.drawn")) == len(picture.panels)
            assert window.script("return document.documentElement.scrollWidth <= innerWidth")


def test_gaps_and_marks_survive_thinning() -> None:
    """A broken line is broken on the page too, and where NaN was is still marked."""
    y = [math.nan if 400 <= k < 500 else float(k) for k in range(1000)]
    line = curve_math.thinner(curve_math.line("run", range(1000), y, Scale(smooth=0)), 50, False)
    assert np.isnan(line.y).any()
    assert 400 <= line.nans.min() <= line.nans.max() < 500
    assert len(line.x) < 300


@needs_browser
def test_value_without_a_neighbour_is_a_dot(tmp_path: Path) -> None:
    """One value, or one between NaN, can be seen: four pixels wide, in its run's colour."""
    write_run("one", [(0, 0, {"loss": 1.0})])
    path = tmp_path / "page.html"
    html_page.save(presets.metrics(open_runs(["one"]), PlotOptions()), path)
    with chromium.browser(tmp_path) as window:
        window.open(path)
        inked = window.script("""
            const chart = charts[0], scale = devicePixelRatio;
            const [x, y] = [chart.px(0) - 4, chart.py(1) - 4].map(place => Math.round(place * scale));
            const pixels = chart.context.getImageData(x, y, 8 * scale, 8 * scale).data;
            let count = 0;
            for (let k = 0; k < pixels.length; k += 4) count += pixels[k + 2] - pixels[k] > 100 && pixels[k + 3] > 200;
            return count""")
        assert inked >= 7


@pytest.mark.slow
@needs_browser
def test_pointer_names_all_lines_sorted(tmp_path: Path) -> None:
    """Beside the pointer stand the step and each run's value there, the largest first, the nearest strongest."""
    for number in range(3):
        write_run(f"r{number}", [(step, step, {"loss": 1.0 + number}) for step in range(300)])
    path = tmp_path / "page.html"
    html_page.save(presets.metrics(open_runs(["digits"]), PlotOptions(smooth=0)), path)
    with chromium.browser(tmp_path) as window:
        window.open(path)
        said = window.script("""
            const chart = charts[0], box = chart.canvas.getBoundingClientRect();
            const [clientX, clientY] = [box.left + chart.px(150), box.top + chart.py(2)];
            chart.canvas.dispatchEvent(new PointerEvent("pointermove", {clientX, clientY}));
            const rows = [...chart.note.children];
            return [rows.map(row => row.textContent), rows.find(row => row.className === "near").textContent]""")
        assert said == [["step 150", "r2: 3", "r1: 2", "r0: 1"], "r1: 2"]
        window.script("charts[0].canvas.dispatchEvent(new PointerEvent('pointerleave'))")
        assert window.script("return charts[0].note.textContent") == ""
