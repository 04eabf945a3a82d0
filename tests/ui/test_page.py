"""The live page in a real browser: curves a moment after ``log``, every view, a silent console, nothing obeyed."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import trackers
from tests import browser as chromium
from tests.analysis.support import T0, write_run
from tests.browser import Browser
from tests.plotting.test_presets import NASTY
from tests.ui.support import Site, site, until
from trackers.analysis.curves import open_runs
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.plotting import figure, presets
from trackers.records import Console, Media, MediaFile, Summary, Text, encode
from trackers.training.run import Run

pytestmark = pytest.mark.skipif(
    bool(chromium.missing()) and "CI" not in os.environ,
    reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
)


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Browser]:
    """A browser."""
    with chromium.browser(tmp_path) as found:
        yield found


def visit(window: Browser, found: Site, state: str = "") -> None:
    """Open the page in a state, else the table of runs; no error may have been on the console."""
    window.visit("about:blank")
    window.console()
    window.visit(found.address + (state or "#tab=runs"))


def wait(window: Browser, script: str) -> Any:
    """What an expression gives, once that is something."""
    return until(lambda: window.script(f"return {script}"))


def losses(run_id: str, size: int = 300, **fields: Any) -> Path:
    """A run with two metrics, one of the machine, and a NaN."""
    rows: list[Any] = []
    for step in range(size):
        rows.append(
            (step, step, {"loss": float("nan") if step == 7 else 1 / (1 + step), "accuracy": 1 - 1 / (1 + step)})
        )
    rows.append((None, 5, {"system.cpu": 50.0}))
    return write_run(run_id, rows, **fields)


LINES = "[...charts.values()].find(panel => panel.name === 'loss').chart.lines"


@pytest.mark.slow
def test_curve_grows_a_moment_after_log(window: Browser, run: Run) -> None:
    """Without a reload: the next values are in the chart, and in the table."""
    run.log({"loss": 1.0}, step=0)
    with site(runs=1) as found:
        visit(window, found, "#tab=charts")
        assert wait(window, "window.charts && charts.size && main.dataset.drawn && " + LINES + "[0]?.y") == [1.0]
        run.log({"loss": 0.5}, step=1)
        run.log({"loss": 0.25, "accuracy": 0.1}, step=2)
        assert wait(window, LINES + "[0].y.length === 3 && " + LINES + "[0].y") == [1.0, 0.5, 0.25]
        wait(window, "charts.has('accuracy')")
        visit(window, found)
        wait(window, "document.querySelector('tbody')?.textContent.includes('0.25')")
        run.log({"loss": 0.125}, step=3)
        wait(window, "document.querySelector('tbody').textContent.includes('0.125')")
        assert window.console() == []


def hold(window: Browser, wanted: str, problem: str = "") -> None:
    """Keep back the answer to the next question that is like this, until :func:`release`.

    Args:
        wanted: a regular expression that fits the question's address. problem: it is answered with this error instead.
    """
    window.script(
        """
        const ask = window.fetch, [wanted, problem] = arguments, held = {};
        window.held = held;
        window.fetch = async (address, ...rest) => {
          const mine = !held.asked && new RegExp(wanted).test(decodeURIComponent(address));
          if (mine) held.asked = true;
          const answer = await ask(address, ...rest);
          if (!mine) return answer;
          await new Promise(done => { held.release = done; });
          setTimeout(() => { held.answered = true; }, 300);
          return problem ? new Response(JSON.stringify({error: problem}), {status: 400}) : answer;
        }""",
        wanted, problem,
    )  # fmt: skip


def release(window: Browser) -> None:
    """Let the answer come that :func:`hold` kept back, and the page do with it what it does."""
    wait(window, "Boolean(held.release)")
    window.script("held.release()")
    wait(window, "held.answered")


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ['"sort"', '^(?!.*"sort").*"most"'], ids=["the-table", "the-newest-runs"])
@pytest.mark.parametrize("problem", ["", "too late"])
def test_late_answer_isnt_drawn_over_a_newer_one(window: Browser, wanted: str, problem: str) -> None:
    """Of two drawings at once the one that began later stays, however far the earlier had come; errors too."""
    for number in range(3):
        losses(f"r{number}", 3, created=T0 + number)
    names = "[...document.querySelectorAll('tbody td.first a')].map(one => one.textContent)"
    with site(runs=3) as found:
        visit(window, found)
        assert wait(window, f"{names}.length === 3 && {names}") == ["r2", "r1", "r0"]
        hold(window, wanted, problem)
        window.script("document.querySelectorAll('th')[0].click()")
        wait(window, "Boolean(held.release)")
        window.script("[...document.querySelectorAll('tbody .star')].at(-1).click()")
        assert wait(window, f"{names}[0] !== 'r2' && {names}") == ["r0", "r2", "r1"]
        release(window)
        assert window.script(f"return {names}") == ["r0", "r2", "r1"]
        assert window.script("return document.getElementById('problem').textContent") == ""
        assert window.console() == []


@pytest.mark.slow
def test_table_is_searched_sorted_grouped_and_pinned(window: Browser) -> None:
    """By hand; and the address shows the same to somebody else."""
    for number in range(12):
        losses(f"r{number:02}", 3, created=T0 + number, tags=["even"] if number % 2 == 0 else [])
    names = "[...document.querySelectorAll('tbody td.first a')].map(one => one.textContent)"
    with site(runs=12) as found:
        visit(window, found)
        wait(window, f"{names}.length === 12")
        window.script("""
            const box = document.querySelector("input[type=search]");
            box.value = "even -r04"; box.dispatchEvent(new Event("input"))""")
        wait(window, f"{names}.length === 5")
        window.script("[...document.querySelectorAll('th')].find(one => one.textContent === 'name').click()")
        assert wait(window, f"{names}[0] === 'r10' && {names}") == ["r10", "r08", "r06", "r02", "r00"]
        window.script("[...document.querySelectorAll('tbody tr')].at(-1).querySelector('.star').click()")
        wait(window, f"{names}[0] === 'r00'")
        ticked = "document.querySelectorAll('tbody input:checked').length"
        window.script("document.querySelectorAll('tbody input')[0].click()")
        wait(window, f"{ticked} === 4 && location.hash.includes('sel=')")
        window.script("[...document.querySelectorAll('button')].find(one => one.textContent === 'newest').click()")
        wait(window, f"{ticked} === 5 && !location.hash.includes('sel=')")
        window.script("[...document.querySelectorAll('button')].find(one => one.textContent === 'tick all').click()")
        wait(window, f"{ticked} === 5 && location.hash.split('%2C').length === 5")
        state = window.script("return location.hash")
        visit(window, found, state)
        assert wait(window, f"{names}.length === 5 && {names}") == ["r00", "r10", "r08", "r06", "r02"]
        visit(window, found, "#by=tags")
        assert wait(window, "document.querySelectorAll('tr.group').length === 3")  # the star is a tag
        assert window.console() == []


@pytest.mark.slow
def test_charts_zoom_together_and_name_all_lines(window: Browser) -> None:
    """A drag zooms all charts and asks for finer points; hovering names each run, sorted; double click shows all."""
    for number in range(3):
        losses(f"r{number}", 2000, created=T0 + number)
    with site(runs=3) as found:
        visit(window, found, "#tab=charts")
        wait(window, f"window.charts?.get('loss')?.chart.lines.length === 3 && {LINES}[0].x.length")
        whole = window.script("const b = charts.get('loss').chart.box; return b.x1 - b.x0")
        window.drag("canvas", -50, 50)
        for name in ("loss", "accuracy"):
            wait(window, f"(b => b.x1 - b.x0)(charts.get('{name}').chart.box) < {whole / 2}")
        wait(window, f"{LINES}[0].x.length < 900")
        assert "zoom=" in window.script("return location.hash")
        assert wait(window, "document.querySelector('.note').textContent").count(": ") == 3
        assert window.script("return document.querySelectorAll('.cross.on').length") >= 2
        state = window.script("return location.hash")
        visit(window, found, state)
        wait(window, f"window.charts?.get('loss')?.chart.box && {LINES}.length === 3 && {LINES}[0].x.length < 900")
        window.script("charts.get('loss').chart.canvas.dispatchEvent(new MouseEvent('dblclick'))")
        wait(window, f"(b => b.x1 - b.x0)(charts.get('accuracy').chart.box) >= {whole}")
        assert window.script(f"return {LINES}[0].nans") == [7]
        assert window.console() == []


STATES = (
    "",
    "#tab=charts&smooth=0.9&logy=1",
    "#tab=charts&axis=time&logx=1",
    "#tab=charts&axis=relative&band=project",
    "#tab=charts&sel=none",
    "#tab=compare",
    "#tab=params",
    "#tab=run",
    "#tab=run&run=none",
    "#tab=nothing",
)
SETTLED = "document.getElementById('live').textContent === 'live' && document.body.innerText.length > 60"


@pytest.mark.slow
def test_every_view_fits_screens_and_phones(window: Browser) -> None:
    """Dark on a phone of 390 pixels, then light and 1400 wide: nothing is wider than that, nothing on the console."""
    for number in range(3):
        losses(f"a-run-with-a-rather-long-name-{number}" * 2, 50, created=T0 + number, summary={"best": number})
    with site(runs=3) as found:
        for state in STATES:
            for width, dark in ((390, True), (1400, False)):
                window.emulate(width, 900, dark=dark)
                if dark:
                    visit(window, found, state)
                wait(window, SETTLED)
                assert window.script("return document.documentElement.scrollWidth <= innerWidth"), (width, state)
                back = window.script("return getComputedStyle(document.body).backgroundColor")
                assert (back == "rgb(20, 24, 29)") == dark
                said = [line for line in window.console() if "404" not in line or "run=none" not in state]
                assert said == [], state


@pytest.mark.slow
def test_values_and_picture_of_a_chart_are_saved(window: Browser, tmp_path: Path) -> None:
    """All values of the runs drawn as CSV; the chart with its title and its legend as PNG, in the page's colours."""
    for number in range(2):
        losses(f"r{number}", 5, created=T0 + number)
    saved = tmp_path / "saved"
    saved.mkdir()
    with site(runs=2) as found:
        window.emulate(1400, 900, dark=True)
        window.save_to(saved)
        visit(window, found, "#tab=charts")
        wait(window, f"window.charts?.get('loss')?.chart.box && {LINES}.length === 2")
        for kind in ("csv", "png"):
            buttons = "[...charts.get('loss').chart.caption.querySelectorAll('button')]"
            window.script(f"{buttons}.find(one => one.textContent === arguments[0]).click()", kind)
            until((saved / f"loss.{kind}").is_file)
        lines = (saved / "loss.csv").read_text().splitlines()
        assert (lines[0], len(lines)) == ("run,step,time,loss", 11)
        with Image.open(saved / "loss.png") as picture:
            size = window.script("const c = charts.get('loss').chart.canvas; return [c.width, c.height]")
            assert picture.width == size[0]
            assert picture.height > size[1] + 40
            assert picture.convert("RGB").getpixel((0, 0)) == (20, 24, 29)
        assert window.console() == []


@pytest.mark.slow
def test_colours_of_runs_are_the_same_in_each_view(window: Browser) -> None:
    """A ticked run has the colour of its curves in the table and above its column; what is best is marked."""
    for number in range(2):
        losses(f"r{number}", 5, created=T0 + number, summary={"loss": 1.0 + number, "note": "x"})
    with site(runs=2) as found:
        visit(window, found, "")
        wait(window, "document.querySelectorAll('tbody input').length === 2")
        heads = window.script("return [...document.querySelectorAll('th')].map(one => one.textContent)")
        assert {"loss", "final/loss"} <= set(heads)
        ticks = "[...document.querySelectorAll('tbody input')].map(one => one.style.accentColor)"
        first, second = wait(window, ticks)
        assert first != second
        window.script("document.querySelector('tbody input').click()")
        assert wait(window, ticks)[1] == second  # not that of the first, which is free
        visit(window, found, "#tab=charts")
        legend = "[...document.querySelectorAll('.legend i')].map(one => one.style.borderTopColor)"
        assert wait(window, f"{legend}.length === 2 && {legend}") == [first, second]
        visit(window, found, "#tab=compare")
        colours = "[...document.querySelectorAll('details[open] th.number')].map(one => one.style.borderBottomColor)"
        assert wait(window, f"{colours}.length === 2 && {colours}") == [first, second]
        best = "[...document.querySelectorAll('.best')].map(one => one.parentNode.cells[0].textContent + one.cellIndex)"
        assert wait(window, best) == ["final/loss2"]
        assert window.console() == []


@pytest.mark.slow
def test_same_run_has_the_same_colour_in_page_and_plot(window: Browser, tmp_path: Path) -> None:
    """Where no other one that is drawn has it, and in the same groups of colours; so have groups of runs."""

    def rgb(style: int) -> str:
        parts = bytes.fromhex(figure.colour(style)[1:])
        return f"rgb({parts[0]}, {parts[1]}, {parts[2]})"

    for number in range(5):
        losses(f"r{number}", 5, created=T0 + number, config={"lr": number % 3})
    runs = open_runs([f"r{number}" for number in range(5)])
    with site(runs=5) as found:
        visit(window, found, "#tab=charts")
        styles = f"{LINES}.map(line => [line.label, line.style])"
        wait(window, f"window.charts?.get('loss')?.chart.lines.length === 5 && {styles}")
        assert dict(window.script(f"return {styles}")) == {run.label: run.style for run in runs}
        colour = "one.firstChild.style.borderTopColor"
        legend = f"[...document.querySelectorAll('.legend button')].map(one => [one.innerText, {colour}])"
        painted = dict(window.script(f"return {legend}"))
        for run in runs:
            assert painted[run.label] == rgb(run.style)
        visit(window, found, "#tab=charts&band=config.lr")
        groups = presets.metrics(runs, presets.PlotOptions(by="config.lr"), ["loss"]).legend
        assert len(groups) == 3
        painted = dict(wait(window, f"{legend}.length === 3 && {legend}"))
        assert painted == {label: rgb(style) for label, style in groups}


@pytest.mark.slow
def test_line_that_flattens_the_others_is_cut(window: Browser) -> None:
    """The axis says so, and one click shows it; where all lines are alike nothing is said."""
    for number in range(4):
        rows: list[Any] = [
            (step, step, {"loss": 1.0 + step / 10 if number else 10.0**step, "other": step}) for step in range(6)
        ]
        write_run(f"r{number}", rows, created=T0 + number)
    with site(runs=4) as found:
        visit(window, found, "#tab=charts")
        top = "charts.get('loss').chart.box.y1"
        wait(window, f"window.charts?.get('loss')?.chart.box && {LINES}.length === 4 && {top} < 3")
        button = "charts.get('loss').chart.beyond"
        assert window.script(f"return {button}.innerText") == "1 line goes beyond (1 to 100,000): show"
        assert window.script("return charts.get('other').chart.beyond.hidden") is True
        window.script(f"{button}.click()")
        assert window.script(f"return {top}") > 90_000
        assert window.console() == []


@pytest.mark.slow
def test_lines_over_powers_of_ten_are_all_there(window: Browser) -> None:
    """Learning rates, constant or by a schedule, are no outliers, whatever grid they are of; what leaps off is."""
    grids = {
        "lr": [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 3e-2],
        "lr/few": [1e-1, 1e-3, 1e-4],
        "lr/fine": [1e-3, 1.1e-3, 1.2e-3, 5e-3, 2e-3, 8e-3],
        "decay": [1e-2, 1e-3, 1e-4, 1e-1, 1e-2, 1e-3],
        "diverged": [2.1, 2.4, 1.9, 1e5, 2.2, 2.0],
        "reward": [10.0, -12.0, 8.0, -1e5, 9.0, 0.0],
        "zeros": [0.0, 1.0, 2.0, 1e5, 1.0, 0.0],
        "low": [1000.0, 1010.0, 990.0, 1.0, 1005.0, 995.0],
    }
    for number in range(6):
        rows: list[Any] = []
        for step in range(6):
            values = {name: grid[number] for name, grid in grids.items() if number < len(grid)}
            rows.append((step, step, {**values, "decay": grids["decay"][number] * (5 - step) / 5}))
        write_run(f"r{number}", rows, created=T0 + number)
    with site(runs=6) as found:
        visit(window, found, "#tab=charts")
        cut = "[...charts].filter(([, one]) => !one.chart.beyond.hidden).map(([name]) => name)"
        ready = "[...window.charts || []].filter(([, one]) => one.chart.lines?.length && one.chart.box).length === 8"
        wait(window, ready)
        assert set(window.script(f"return {cut}")) == {"diverged", "reward", "zeros", "low"}
        assert window.script("return charts.get('lr').chart.box.y1") >= 0.1
        assert window.console() == []


@pytest.mark.slow
def test_button_says_how_many_of_many_runs_it_ticks(window: Browser) -> None:
    """One click ticks at most a hundred, and its name says so where more fit; with fewer it ticks all."""
    for number in range(101):
        write_run(f"r{number}", [(0, 0, {"loss": 1.0})], config={"odd": number % 2})
    button = "document.querySelector('button.all')"
    ticked = "new URLSearchParams(location.hash.slice(1)).get('sel')?.split(',').length"
    with site(runs=101) as found:
        for where, name, count in (("", "tick first 100", 100), ("&q=odd%3D1", "tick all", 50)):
            visit(window, found, f"#tab=runs{where}")
            wait(window, f"{button}?.textContent === '{name}' && document.querySelector('tbody tr')")
            window.script(f"{button}.click()")
            assert wait(window, ticked) == count
        assert window.console() == []


@pytest.mark.slow
def test_panels_are_chosen_combined_and_folded(window: Browser) -> None:
    """A panel with two metrics, hidden and first panels, and parts of many names that begin alike; a link keeps it."""
    names = [f"grad/layer{layer}/{part}" for layer in range(2) for part in ("a", "b", "c", "d", "e")]
    for number in range(2):
        rows: list[Any] = [
            (step, step, {"loss": 1.0, "val": 2.0, "lr": 0.1, **dict.fromkeys(names, 1.0)}) for step in range(3)
        ]
        write_run(f"r{number}", rows, created=T0 + number)
    with site(runs=2) as found:
        visit(window, found, "#tab=charts&hide=lr&first=val&mix=loss%0Aval")
        wait(window, "window.charts?.has('loss\\nval') && charts.get('loss\\nval').chart.lines.length === 4")
        lines = "charts.get('loss\\nval').chart.lines"
        assert window.script(f"return {lines}.map(line => line.label)") == [
            "r1 · loss",
            "r0 · loss",
            "r1 · val",
            "r0 · val",
        ]
        dashed = f"{lines}.map(line => charts.get('loss\\nval').chart.dash(line, 1).length > 0)"
        assert window.script(f"return {dashed}") == [False, False, True, True]
        assert window.script("return charts.has('lr')") is False
        heads = "[...document.querySelectorAll('[data-part] > summary')].map(one => one.innerText)"
        assert window.script(f"return {heads}") == ["Chosen (2)", "Training (11)"]
        window.script(
            "[...document.querySelectorAll('main p button')].find(one => one.innerText === 'show them').click()"
        )
        wait(window, "charts.has('lr')")
        assert "hide=" not in window.script("return location.hash")
        assert window.console() == []


@pytest.mark.slow
def test_run_page_opens_with_its_curves(window: Browser) -> None:
    """Above results and settings; of a run that failed the last lines of its console come next."""
    losses("one", 20, config={"lr": 0.1}, summary={"best": 0.5})
    with site(runs=1) as found:
        visit(window, found, "#tab=run")
        wait(window, f"window.charts?.get('loss')?.chart.lines.length && {LINES}[0].y.length === 20")
        text = window.script("return main.innerText")
        assert text.index("Training (2)") < text.index("Results") < text.index("Configuration")
        assert window.console() == []


@pytest.mark.slow
def test_project_is_chosen_at_the_top(window: Browser) -> None:
    """All views show its runs alone, and a link keeps it."""
    for number in range(4):
        losses(f"r{number}", 3, created=T0 + number, project=f"p{number % 2}")
    names = "[...document.querySelectorAll('tbody td.first a')].map(one => one.textContent)"
    with site(runs=4) as found:
        visit(window, found)
        wait(window, f"{names}.length === 4 && !document.getElementById('project').hidden")
        window.script(
            "const box = document.getElementById('project'); box.value = 'p1'; box.dispatchEvent(new Event('change'))"
        )
        assert wait(window, f"{names}.length === 2 && {names}") == ["r3", "r1"]
        visit(window, found, "#tab=charts&project=p0")
        wait(window, "window.charts?.get('loss')?.chart.lines.length === 2")
        assert window.script(f"return {LINES}.map(line => line.label)") == ["r2", "r0"]
        assert window.console() == []


@pytest.mark.slow
def test_run_page_begins_with_results_and_has_files(window: Browser, run: Run, tmp_path: Path) -> None:
    """Results and settings above media, and a link to each file of an artifact."""
    (tmp_path / "model.npz").write_bytes(b"abc")
    run.log({"loss": 1.0, "text": "hello"}, step=0)
    run.log_artifact(tmp_path / "model.npz", name="model", type="model")
    with site(runs=1) as found:
        visit(window, found, "#tab=run")
        wait(window, "document.querySelector('.media pre') && document.querySelector('.facts a[download]')")
        text = window.script("return main.innerText")
        assert text.index("Results") < text.index("Configuration") < text.index("Media") < text.index("Artifacts")
        window.save_to(tmp_path / "saved")
        window.script("document.querySelector('.facts a[download]').click()")
        until((tmp_path / "saved/model.npz").is_file)
        assert (tmp_path / "saved/model.npz").read_bytes() == b"abc"
        assert window.console() == []


@pytest.mark.slow
def test_run_page_names_what_it_was_forked_from(window: Browser) -> None:
    """Beside the command; what a fork has of its parent is no attempt of its own."""
    offline = {"project": "digits", "mode": "offline", "options": {"TRACKER_RELAY": False}}
    first = trackers.init("json", id="parent", **offline)
    first.log({"loss": 1.0}, step=0)
    first.finish()
    trackers.init("json", id="kid", fork_from="parent@0", **offline).finish()
    with site(runs=2) as found:
        visit(window, found, f"#tab=run&run={found.key('kid')}")
        wait(window, "document.querySelector('main')?.innerText.includes('Attempts')")
        lines = window.script("return main.innerText").splitlines()
        facts = {line.split("\t")[0]: line for line in lines if "\t" in line}
        assert facts["forked from"] == "forked from\tdigits/parent@0"
        assert "parent's part" in facts
        assert "attempt 1" in facts
        assert "attempt 2" not in facts
        assert window.console() == []


@pytest.mark.slow
def test_run_page_shows_what_training_prints(window: Browser) -> None:
    """Lines as they come, standard error apart, found by a word; markup is text; without any there is no panel."""
    run = RunDirectory(losses("printing"))
    with site(runs=1) as found:
        visit(window, found, "#tab=run")
        wait(window, "main.dataset.run")
        assert window.script("return main.innerText.includes('Console')") is False
        writer = StreamWriter(run.stream(StreamName("console", 0, 1)))
        lines = [f"step {number} <b>bold</b>" for number in range(100)]
        writer.write(encode(Console(time=T0, lines=lines)))
        writer.write(encode(Console(time=T0 + 1, lines=["careful", "ValueError: no"], stream="stderr")))
        visit(window, found, "#tab=run")
        count = "document.querySelectorAll('pre.console > div').length"
        wait(window, f"{count} === 102")
        shown = (
            "return [...document.querySelectorAll('pre.console .stderr')].map(one => [one.textContent, one.className])"
        )
        assert window.script(shown) == [["careful", "stderr "], ["ValueError: no", "stderr wrong"]]
        said = window.script("return document.querySelector('pre.console .wrong').title")
        assert said == f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(T0 + 1))}, stderr"
        at = "document.querySelector('pre.console')"
        assert window.script(f"return {at}.scrollTop + {at}.clientHeight >= {at}.scrollHeight - 4")
        window.script(
            "const box = document.querySelector('[aria-label=\"search the console\"]');"
            "box.value = 'STEP 7'; box.dispatchEvent(new Event('input'))"
        )
        wait(window, f"{count} === 11")
        assert window.script(f"return {at}.querySelector('div').textContent") == "step 7 <b>bold</b>"
        assert window.console() == []
        writer.release()


COLOURED = """
    const canvas = document.querySelector('.wide canvas');
    if (!canvas?.width) return 0;
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), found = [];
    for (let k = 0; k < data.length; k += 4) {
        const [r, g, b, a] = data.slice(k, k + 4);
        if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 60) found.push(0.2126 * r + 0.7152 * g + 0.0722 * b);
    }
    return found.length ? Math.min(...found) : 0"""
"""The smallest luminance of a dot, of 255."""


@pytest.mark.slow
def test_dots_are_seen_on_a_dark_page(window: Browser) -> None:
    """Those of the lowest values, too, which are blue."""
    for number in range(2):
        losses(f"r{number}", 3, created=T0 + number, config={"lr": 0.1 + number}, summary={"loss": 1.0 + number})
    with site(runs=2) as found:
        darkest = {}
        for dark in (False, True):
            window.emulate(1400, 900, dark=dark)
            visit(window, found, "#tab=params")
            darkest[dark] = until(lambda: window.script(COLOURED))
        assert darkest[False] < 70 < darkest[True]


@pytest.mark.slow
def test_theme_can_be_chosen(window: Browser) -> None:
    """Whatever the system says; and a link keeps it."""
    with site() as found:
        visit(window, found)
        wait(window, "document.getElementById('tabs').children.length")
        window.script("document.getElementById('theme').click()")
        assert window.script("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
        assert window.script("return location.hash") == "#theme=dark"


@pytest.mark.slow
def test_run_page_shows_media_over_steps(window: Browser) -> None:
    """Pictures, tables, histograms and texts, each with a slider; a new one is shown when it comes."""
    path = losses("one", 5)
    (path / "media").mkdir(exist_ok=True)
    more: list[Any] = []
    for step in range(3):
        np.save(path / f"media/{step}.npy", np.full((8, 8), step * 100, np.uint8))
        Image.new("RGB", (30, 20), "red").save(path / f"media/{step}.png")
        items = [MediaFile(format="npy", file=f"media/{step}.npy"), MediaFile(format="png", file=f"media/{step}.png")]
        table = {"columns": ["a", "b"], "rows": [[step, "<b>x</b>"]]}
        more += [
            Media(step=step, time=T0, name="pictures", type="image", items=items),
            Media(step=step, time=T0, name="table", type="table", items=[MediaFile(format="json", data=table)]),
            Text(step=step, time=T0, values={"note": f"step {step} <script>x</script>"}),
        ]
    losses("one", 5, more=more)
    with site(runs=1) as found:
        visit(window, found, f"#tab=run&run={found.key('one')}")
        loaded = "[...document.querySelectorAll('.media img')].filter(one => one.naturalWidth > 0).length"
        wait(window, f"{loaded} === 2")
        assert "step 2 <script>x</script>" in wait(window, "document.querySelector('.media pre')?.textContent")
        assert wait(window, "document.querySelector('.player td:last-child')?.textContent") == "<b>x</b>"
        window.script("""
            const slide = document.querySelectorAll("input[type=range]")[2];
            slide.value = 0; slide.dispatchEvent(new Event("input"))""")
        wait(window, "document.querySelector('.media pre')?.textContent.startsWith('step 0')")
        assert window.console() == []


@pytest.mark.slow
def test_late_step_isnt_shown_for_a_newer_one(window: Browser) -> None:
    """A slider that was moved on while an answer was under way."""
    losses("one", 5, more=[Text(step=step, time=T0, values={"note": f"step {step}"}) for step in range(3)])
    with site(runs=1) as found:
        visit(window, found, f"#tab=run&run={found.key('one')}")
        shown = "document.querySelector('.player .media pre')?.textContent"
        wait(window, f"{shown} === 'step 2'")
        hold(window, "api/items")
        for place in (0, 1):
            window.script(
                """const slide = document.querySelector(".player input[type=range]");
                slide.value = arguments[0]; slide.dispatchEvent(new Event("input"))""",
                place,
            )
        wait(window, f"{shown} === 'step 1'")
        release(window)
        assert window.script(f"return {shown}") == "step 1"
        assert window.console() == []


@pytest.mark.slow
def test_long_captions_and_names_fit_phones(window: Browser) -> None:
    """A caption, a text or a name of thousands of characters makes nothing wider than the screen, nor very long."""
    path = losses("one", 5)
    Image.new("RGB", (30, 20), "red").save(path / "one.png")
    long = "c" * 5000
    item = MediaFile(format="png", file="one.png", caption=long)
    table = MediaFile(format="json", data={"columns": ["a"], "rows": [[long]]})
    more = [
        Media(step=0, time=T0, name="pictures", type="image", items=[item]),
        Text(step=0, time=T0, values={"t": long}),
        Media(step=0, time=T0, name=f"table {long}", type="table", items=[table]),
    ]
    losses("one", 5, name=long[:300], config={"long": long}, more=more)
    window.emulate(390, 844)
    with site(runs=1) as found:
        visit(window, found, f"#tab=run&run={found.key('one')}")
        wait(window, "document.querySelectorAll('.player pre, .player td:last-child, .player img').length === 3")
        assert window.script("return document.documentElement.scrollWidth") == 390
        assert window.script("return document.querySelector('.media img').parentElement.clientHeight") < 400
        assert window.console() == []


@pytest.mark.slow
def test_media_that_can_not_be_had_are_a_line(window: Browser) -> None:
    """Why a picture can't be shown stands in its place."""
    item = MediaFile(format="png", file="media/gone.png")
    losses("one", 5, more=[Media(step=0, time=T0, name="pictures", type="image", items=[item])])
    with site(runs=1) as found:
        visit(window, found, f"#tab=run&run={found.key('one')}")
        line = wait(window, "document.querySelector('.media p')?.textContent")
        assert line == "media/gone.png can't be read: No such file or directory"


@pytest.mark.slow
def test_results_have_the_name_that_commands_give_them(window: Browser) -> None:
    """In the table, before last values, on the run's page, in choices and in the search."""
    for number in range(2):
        write_run(f"r{number}", [(1, 1, {"loss": 1.0})], config={"lr": number},
                  more=[Summary(time=T0, values={"final/acc": number / 2})])  # fmt: skip
    with site(runs=2) as found:
        visit(window, found, "#q=final/acc>0")
        assert "1 of 2" in wait(
            window, "[...document.querySelectorAll('.bar')].map(one => one.innerText).find(one => /1 of 2/.test(one))"
        )
        heads = "[...document.querySelectorAll('thead th')].map(one => one.innerText.trim())"
        names = wait(window, f"{heads}.includes('final/acc') && {heads}")
        assert names.index("final/acc") < names.index("loss")
        visit(window, found, f"#tab=run&run={found.key('r1')}")
        assert wait(window, "document.querySelector('.facts td')?.innerText") == "final/acc"
        hold(window, "api/settings")
        window.script("location.hash = '#tab=params'")
        wait(window, "Boolean(held.release)")
        chosen = "[...main.querySelectorAll('select')].map(one => [one.selectedOptions[0]?.innerText, one.disabled])"
        assert window.script(f"return {chosen}") == [["reading …", True], ["final/acc", True]]
        release(window)
        assert wait(window, f"!{chosen}[0][1] && {chosen}") == [["config.lr", False], ["final/acc", False]]


@pytest.mark.slow
def test_nasty_names_are_text(window: Browser) -> None:
    """Names of runs, metrics, settings and texts of a run never become markup or scripts."""
    bad = "<img src=x onerror=\"document.title='boom'\">"
    for number, name in enumerate((*NASTY, bad, "</script><script>document.title='boom'</script>")):
        said = [Text(step=0, time=T0, values={bad: bad})]
        write_run(f"r{number}", [(0, 0, {bad: 1.0, "loss": 1.0})], name=name, config={bad: bad}, tags=[bad],
                  summary={bad: 1.0}, more=said, notes=bad, group=bad)  # fmt: skip
    with site() as found:
        until(lambda: found.ask("runs")["all"] == len(NASTY) + 2)
        page = f"#tab=run&run={found.key('r0')}"
        states = [
            "",
            f"#by=group&col={bad}",
            "#tab=charts",
            "#tab=compare",
            "#tab=params",
            page,
            f"#q={bad}&keys={bad}",
        ]
        for state in states:
            visit(window, found, state)
            wait(window, SETTLED)
            assert window.script("return document.querySelectorAll('main img, main script').length") == 0
            assert "boom" not in window.script("return document.title")
            assert window.console() == []


@pytest.mark.slow
def test_status_of_any_words_hides_no_other_run(window: Browser, tmp_path: Path) -> None:
    """What a file says of its run's status is shown, whatever it is; the other runs are there."""
    path = tmp_path / "odd.json"
    odd = {"run_id": "odd", "summary": {"status": "not\na class"}, "training_iterations": [{"step": 1, "x": 2}]}
    path.write_text(json.dumps(odd))
    losses("one", 3)
    with site("runs", f"json:{path}", runs=2) as found:
        visit(window, found, "#sort=created")
        wait(window, "document.querySelectorAll('tbody tr').length === 2")
        assert "not" in window.script("return document.querySelector('tbody').textContent")
        assert window.script("return document.getElementById('problem').textContent") == ""
        assert window.console() == []


@pytest.mark.slow
def test_groups_fold_in_the_table_of_runs(window: Browser) -> None:
    """A group's row has its count, mean and spread; a click folds it, and the address keeps that."""
    for number in range(6):
        write_run(
            f"r{number}", [(1, 1, {"loss": 1.0})], config={"opt": ("adam", "sgd")[number % 2]}, summary={"acc": number}
        )
    with site(runs=6) as found:
        visit(window, found, "#tab=runs&by=config.opt&col=result.acc")
        wait(
            window,
            "document.querySelectorAll('tr.group').length === 2 && document.querySelectorAll('tbody tr').length === 8",
        )
        wait(window, "document.querySelector('tr.group').innerText.includes('±')")
        said = window.script(
            "return [...document.querySelectorAll('tr.group')].map(one => one.innerText.replace(/\\s+/g, ' '))"
        )
        assert said == ["▾ opt: adam (3) 2 ± 2", "▾ opt: sgd (3) 3 ± 2"]
        window.script("document.querySelector('tr.group button').click()")
        wait(window, "document.querySelectorAll('tbody tr').length === 5")
        assert window.script("return location.hash.includes('fold=adam')")
        assert (
            window.script("return document.querySelector('tr.group button').getAttribute('aria-expanded')") == "false"
        )
        assert window.console() == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 150])
def test_compare_is_sorted_and_says_what_bold_means(count: int, window: Browser) -> None:
    """Few runs are columns, 150 are rows; a click on a setting or a result sorts the runs, a second one turns them."""
    for number in range(count):
        write_run(
            f"r{number:03}",
            [(1, 1, {"loss": 1.0})],
            config={"lr": (number * 7) % count, "opt": "adam" if number else "sgd"},
            summary={"acc": number},
        )
    with site(runs=count) as found:
        keys = [found.key(f"r{number:03}") for number in range(count)]
        visit(window, found, f"#tab=compare&sel={','.join(keys)}")
        wait(window, f"main.dataset.drawn === '{count}'")
        sides = (
            "[...document.querySelectorAll('.compared td:nth-child(2)')].map(one => getComputedStyle(one).textAlign)"
        )
        assert count > 3 or set(window.script(f"return {sides}")) == {
            "right"
        }  # texts below the runs' names, as numbers
        texts = "return [...document.querySelectorAll('.compared')][0].innerText"
        assert "bold: not as in the first run" in window.script("return main.innerText")
        assert "green: the best of these runs" in window.script("return main.innerText")
        names = "return [...document.querySelectorAll('.compared')[0].querySelectorAll('a')].map(one => one.innerText)"
        ordered = sorted(range(count), key=lambda number: (number * 7) % count)
        for turned in (False, True):
            window.script(
                "[...document.querySelectorAll('.compared button')].find(one => one.innerText.startsWith('lr')).click()"
            )
            expected = [f"r{number:03}" for number in (reversed(ordered) if turned else ordered)]
            wait(window, f"JSON.stringify((() => {{ {names} }})()) === '{json.dumps(expected, separators=(',', ':'))}'")
        assert window.script(texts)
        assert window.script("return document.documentElement.scrollWidth <= innerWidth")
        assert window.console() == []


@pytest.mark.slow
def test_run_that_diverged_is_seen(window: Browser) -> None:
    """NaN is red in the table, a group's mean says of how many runs it is, a chart names the lines that go beyond."""
    for number in range(6):
        rows: list[Any] = [(step, step, {"loss": 1.0 + (10.0**step if number == 3 else step)}) for step in range(6)]
        write_run(f"r{number}", rows, created=T0 + number, summary={"loss": math.nan if number == 3 else 1.0})
    with site(runs=6) as found:
        visit(window, found, "#tab=runs&by=project&col=result.loss")
        red = (
            "[...document.querySelectorAll('td.bad')].map(one => one.parentNode.innerText.trim().split(/\\s+/).join())"
        )
        assert wait(window, f"{red}.length && {red}") == ["☆,r3,NaN"]
        assert window.script("return document.querySelector('tr.group').innerText.includes('1 ± 0 (5 of 6)')")
        visit(window, found, "#tab=charts")
        wait(window, f"window.charts?.get('loss')?.chart.box && {LINES}.length === 6")
        assert window.script("return charts.get('loss').chart.beyond.title") == "r3"
        assert window.console() == []


@pytest.mark.slow
def test_no_runs_and_one_run_are_told(window: Browser) -> None:
    """Each view of a directory without runs, and of one with a single run, has words rather than empty axes."""
    tabs = ("runs", "charts", "media", "tables", "compare", "params", "run")
    with site(runs=0) as found:
        for tab in tabs:
            visit(window, found, f"#tab={tab}")
            wait(
                window, "[...document.querySelectorAll('.empty')].some(one => one.innerText.startsWith('no runs yet'))"
            )
            assert "undefined" not in window.script("return document.body.innerText")
            assert window.script("return [...document.querySelectorAll('.plot')].every(one => !one.clientHeight)")
    losses("alone", 3)
    with site(runs=1) as found:
        visit(window, found, "#tab=params")
        wait(window, "document.querySelector('.empty')?.innerText.startsWith('one run:')")
        assert "1 run" in window.script("return main.innerText").split("\n")
        visit(window, found, "#tab=media")
        wait(window, "main.dataset.drawn === 'empty'")
        assert window.script(
            "return [...document.querySelectorAll('input[type=range]')].every(one => !one.clientWidth)"
        )
        assert window.console() == []


@pytest.mark.slow
def test_losses_stay_first_beside_parts(window: Browser) -> None:
    """Charts keep their order where names that begin alike are folded; the machine's are offered where some are."""
    names = [f"grad/{place}" for place in range(20)]
    rows: list[Any] = [
        (step, step, {"train/loss": 1.0, "tokens": 5.0, **dict.fromkeys(names, 1.0)}) for step in range(3)
    ]
    write_run("plain", rows)
    losses("sampled", 3, created=T0 + 1)
    with site(runs=2) as found:
        keys = {name: found.key(name) for name in ("plain", "sampled")}
        visit(window, found, f"#tab=charts&sel={keys['plain']}")
        titles = "[...document.querySelectorAll('figcaption .title')].map(one => one.innerText)"
        assert wait(window, f"{titles}.length && {titles}.slice(0, 2)") == ["train/loss", "tokens"]
        links = "[...document.querySelectorAll('main .bar a')].map(one => one.innerText)"
        for name, expected in (("plain", ["charts"]), ("sampled", ["charts", "system metrics"])):
            visit(window, found, f"#tab=run&run={keys[name]}")
            wait(window, f"main.dataset.run === '{keys[name]}'")
            assert window.script(f"return {links}") == expected
        assert window.console() == []


@pytest.mark.slow
def test_charts_of_150_runs_are_readable(window: Browser) -> None:
    """The legend scrolls, the line of the name at the pointer is drawn strongly, a panel's size and the baseline are in
    the address; the buttons beside a long name stay whole."""
    long = "grad/very/deeply/nested/name/of_a_parameter_group.weight_norm_and_more_of_it"
    for number in range(150):
        rows: list[Any] = [(step, step, {long: 1.0 + number}) for step in range(3)]
        write_run(f"run-with-a-longer-name-{number:03}", rows, created=T0 + number)
    chart = f"charts.get('{long}')?.chart"
    with site(runs=150) as found:
        keys = [row["key"] for row in found.rows(most=200)]
        window.emulate(1400, 900)
        visit(window, found, f"#tab=charts&sel={','.join(keys)}")
        wait(window, f"window.charts && {chart}?.lines.length === 150 && {chart}.box")
        legend = "document.querySelector('.legend')"
        assert window.script(f"return [{legend}.children.length, {legend}.scrollHeight > {legend}.clientHeight]") == [
            150,
            True,
        ]
        window.script(f"{legend}.children[7].dispatchEvent(new PointerEvent('pointerenter'))")
        name = window.script(f"return {legend}.children[7].innerText")
        lit = f"{chart}.lines.find(line => line.style === {chart}.look.lit)?.label"
        assert wait(window, lit) == name
        window.script(f"{legend}.children[7].dispatchEvent(new PointerEvent('pointerleave'))")
        tall = "[...document.querySelectorAll('figcaption .tools button')].map(one => one.clientHeight)"
        assert max(window.script(f"return {tall}")) < 30
        assert window.script("return document.querySelector('figcaption .title').clientHeight") > 30
        before = window.script("return document.querySelector('figure').clientWidth")
        window.script("""
            const labels = [...document.querySelectorAll('.bar label')];
            const slide = labels.find(one => one.innerText === 'size').children[0];
            slide.value = 900; slide.dispatchEvent(new Event('input'))""")
        wait(window, f"document.querySelector('figure').clientWidth > {before} && location.hash.includes('psize=900')")
        window.script(
            """
            const box = [...document.querySelectorAll('.bar select')].at(-1);
            box.value = arguments[0]; box.dispatchEvent(new Event('change'))""",
            keys[-1],
        )
        wait(window, f"{chart}.title.textContent.endsWith(', % from the baseline')")
        percent = f"{chart}.lines.find(line => line.label.endsWith('149'))?.y[0]"
        assert wait(window, percent) == pytest.approx(14_900)
        assert f"base={keys[-1]}" in window.script("return location.hash")
        assert window.console() == []


DRAWN = """
    window.drawn = {words: [], dashed: 0, bars: 0};
    const kept = CanvasRenderingContext2D.prototype, {fillText, setLineDash, fillRect} = kept;
    kept.fillText = function (words, ...rest) { drawn.words.push(words); return fillText.call(this, words, ...rest); };
    kept.setLineDash = function (dash) { drawn.dashed += dash.length ? 1 : 0; return setLineDash.call(this, dash); };
    kept.fillRect = function (...box) { drawn.bars += 1; return fillRect.call(this, ...box); };"""


@pytest.mark.slow
def test_parallel_coordinates_cross_gaps_and_have_a_colour_bar(window: Browser) -> None:
    """A setting that one run lacks is crossed by a dashed line; ticks are values that occur; a bar has the colours."""
    for number, lr in enumerate((0.001, 0.003, 0.01)):
        config = {"lr": lr, "seed": number, **({"warmup": 10 * number} if number else {})}
        write_run(f"r{number}", [(0, 0, {"loss": 1.0})], config=config, summary={"acc": 0.5 + number / 10})
    with site(runs=3) as found:
        visit(window, found, "#tab=params")
        wait(window, "main.dataset.drawn === '3'")
        window.script(DRAWN)
        axes = "axes=config.lr&axes=config.warmup&axes=config.seed&axes=result.acc"
        window.script(f"location.hash = '#tab=params&x=config.lr&{axes}'")
        words = set(wait(window, "main.dataset.drawn === '3' && drawn.bars >= 60 && drawn.words"))
        assert {"0.001", "0.003", "0.01", "10", "20", "lr", "warmup"} <= words
        assert {"0.5", "0.7"} <= words
        assert window.script("return drawn.dashed") >= 1
        assert window.console() == []


@pytest.mark.slow
def test_best_run_and_last_lines_of_a_failure_are_a_click_away(window: Browser) -> None:
    """A column of losses begins with the smallest, one of accuracies with the largest; the page of a run that failed
    begins with why, and the end of what it printed."""
    for number in range(4):
        losses(f"r{number}", 3, created=T0 + number, summary={"val_loss": number, "val_acc": abs(number - 1)})
    night = RunDirectory(losses("night", 3, created=T0 + 9, status="failed"))
    writer = StreamWriter(night.stream(StreamName("console", 0, 1)))
    lines = [*(f"step {step}" for step in range(500)), "RuntimeError: shard 17 is damaged"]
    writer.write(encode(Console(time=T0, lines=lines, stream="stderr")))
    writer.release()
    names = "[...document.querySelectorAll('tbody td.first a')].map(one => one.textContent)"
    with site(runs=5) as found:
        visit(window, found)
        wait(window, f"{names}.length === 5 && document.querySelectorAll('th').length > 5")
        for column, best in (("final/val_loss", "r0"), ("final/val_acc", "r3")):
            head = f"[...document.querySelectorAll('th')].find(one => one.textContent.startsWith('{column}'))"
            window.script(f"{head}.click()")
            wait(window, f"{head}.getAttribute('aria-sort') !== 'none' && {names}[0] === '{best}'")
        window.script("[...document.querySelectorAll('tbody a')].find(one => one.textContent === 'night').click()")
        wait(window, "document.querySelector('pre.console .wrong')?.textContent.startsWith('RuntimeError: shard 17')")
        seen = """
            const box = document.querySelector('pre.console');
            const line = box.querySelector('.wrong').getBoundingClientRect();
            return line.top >= box.getBoundingClientRect().top && line.bottom <= innerHeight"""
        until(lambda: window.script(seen))
        text = window.script("return main.innerText")
        assert text.index("RuntimeError") < text.index("Training (2)")
        assert window.console() == []
