"""How a run is shown in a notebook: link, status, delivery and charts; written anew while it goes on."""

from __future__ import annotations

import math
import re
import sys
import threading
import types
import xml.etree.ElementTree as tree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trackers
from trackers.support import script
from trackers.training import notebook, notebook_cells
from trackers.training.notebook import NEWEST_BYTES, POINTS, LatestValues, NotebookCurve, Shown
from trackers.training.run import Run


def test_run_shows_its_status_its_trackers_and_charts(run: Run) -> None:
    """Losses first; hardware has no chart. Names are text, whoever chose them."""
    run.log({"<b>acc</b>": 0.5, "system.cpu": 3.0, "val_loss": 2.0, "loss": 1.0}, step=0)
    run.log({"loss": 0.25}, step=1)
    html = run._repr_html_()
    assert f"<b>{run.name}</b> (p/{run.id}), running for" in html
    assert re.findall(r"<title>(.*?)</title>", html) == ["loss", "val_loss", "&lt;b&gt;acc&lt;/b&gt;"]
    assert "<td>json</td>" in html
    assert ">0.25</tspan>" in html
    run.finish()
    assert "), finished" in run._repr_html_()


def test_link_of_a_tracker_is_one() -> None:
    """An address of another kind is text."""
    wandb = {"state": "waiting", "url": "https://w/a?b=1&c", "waiting_bytes": 12345, "rejected": 2, "error": "no <x>"}
    rows = notebook._rows({"wandb": wandb, "mlflow": {"state": "delivered", "url": "javascript:alert(1)"}})
    assert '<a href="https://w/a?b=1&amp;c" target="_blank">' in rows
    assert "waiting, 12,345 bytes wait, 2 rejected, no &lt;x&gt;" in rows
    assert rows.count("<a ") == 1


@pytest.mark.heavy
@given(st.lists(st.tuples(st.integers(0, 10**12), st.floats()), max_size=50))
def test_any_values_make_a_chart(points: list[tuple[int, float]]) -> None:
    """Well-formed, with finite places only."""
    curve = NotebookCurve()
    for step, value in points:
        curve.add(float(step), value)
    found = tree.fromstring(curve.svg("m<&>"))
    for line in found.iter("{http://www.w3.org/2000/svg}polyline"):
        assert all(math.isfinite(float(part)) for part in re.split("[ ,]", line.attrib["points"]))


@pytest.mark.slow
def test_long_curve_keeps_its_spikes() -> None:
    """Few points are left of a million, the smallest and the largest among them, NaN as a gap."""
    curve = NotebookCurve()
    for step in range(100_000):
        curve.add(step, 1000.0 if step == 31_234 else -7.0 if step == 77_777 else math.nan if step == 50 else 1.0)
    values = [value for _, value in curve.points]
    assert len(values) <= 3 * POINTS
    assert {1000.0, -7.0} <= set(values)
    assert any(map(math.isnan, values))
    assert [step for step, _ in curve.points] == sorted(step for step, _ in curve.points)


@pytest.mark.heavy
def test_only_the_end_of_a_large_journal_is_read(run: Run) -> None:
    """And later what was logged since."""
    run.log({"early": 1.0, "loss": 5.0}, step=0)
    stream = Path(run._recorder.writer.path)
    line = stream.read_bytes().splitlines(keepends=True)[-1].replace(b'"early"', b'"later"')
    with stream.open("ab") as file:
        file.write(line * (NEWEST_BYTES // len(line) + 1))
    values = LatestValues(stream)
    values.read()
    assert set(values.curves) == {"later", "loss"}
    run.log({"loss": 4.0}, step=1)
    values.read()
    assert values.curves["loss"].last == 4.0


class Handle:
    """A display's handle that keeps what it gets."""

    def __init__(self, wanted: int) -> None:
        self.shown: list[str] = []
        self.enough, self._wanted = threading.Event(), wanted

    def update(self, bundle: dict[str, str], raw: bool) -> None:
        """Take what is shown now."""
        self.shown.append(bundle["text/html"])
        if len(self.shown) >= self._wanted:
            self.enough.set()


def test_shown_run_is_written_anew_until_it_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread that ends with the run."""
    handle = Handle(2)
    module: Any = types.ModuleType("IPython")
    module.display = types.ModuleType("IPython.display")
    module.display.display = lambda bundle, raw, display_id: handle
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    monkeypatch.setattr(notebook, "is_notebook", lambda: True)
    monkeypatch.setattr(notebook, "PERIOD_S", 0.01)
    run._ipython_display_()
    assert handle.enough.wait(60)
    run.log({"loss": 0.125}, step=0)
    run.finish()
    for thread in threading.enumerate():
        if thread.name == "trackers notebook":
            thread.join(60)
            assert not thread.is_alive()
    assert "finished" in handle.shown[-1]
    assert "0.125" in handle.shown[-1]


@pytest.mark.processes
@pytest.mark.parametrize("wanted", [True, False])
def test_cells_that_ran_are_kept_with_the_run(wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, as they were typed, secrets masked; the last one by ``finish``. ``TRACKER_CODE=n``: none."""
    history = ["", "%pip list", "key = 'hf_abcdefghijklmnopqrstuvwxyz01234567'\nrun = 1", "  "]
    module: Any = types.ModuleType("IPython")
    shell = types.SimpleNamespace(history_manager=types.SimpleNamespace(input_hist_raw=history), config={})
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr(script, "program", lambda: ("<notebook>", []))
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", project="p", id="nb", mode="offline", options={"TRACKER_CODE": wanted})
    path = Path("runs/p/nb/notebook-1.py")
    assert path.is_file() is wanted
    history.append("run.finish()")
    run.finish()
    if wanted:
        first, second, last = path.read_text().split("# %% ")[1:]
        assert (first, last) == ("[1]\n%pip list\n\n", "[4]\nrun.finish()\n")
        assert "hf_abcdef" not in second
        assert second.startswith("[2]\nkey = ")
        assert path.stat().st_mode & 0o777 == 0o600
    else:
        assert not path.exists()


def test_cells_have_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no room is named by its number."""
    monkeypatch.setattr(notebook_cells, "MOST_CHARACTERS", 10)
    assert notebook_cells.as_python(["", "a = 1", "b" * 50]) == "# %% [1]\na = 1\n\n# %% [2] is left out\n"


def test_broken_display_stops_nothing(run: Run) -> None:
    """A run directory that has gone is shown as far as it is known."""
    shown = Shown(run, Path("nowhere.jsonl"))
    assert run.id in shown.bundle()["text/html"]
    assert "trackers.Run" in shown.bundle()["text/plain"]
