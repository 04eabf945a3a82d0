"""What ``trackers watch`` finds: which runs, which metrics, in which order; samples in words; lines of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trackers_watch import looking
from trackers_watch.looking import RunWatcher, ViewOptions, ViewState, delivery, line, machine_lines, table
from watch_support import GPU, catalogue, sweep

from tests.analysis.support import T0, write_run
from trackers.errors import UsageError
from trackers.training.run import Run
from trackers.ui.table import Row


def ids(found: ViewState) -> list[str]:
    """The runs whose curves are drawn, by style."""
    names = {row.key: row.id for row in found.rows}
    return [names[key] for key in sorted(found.styles, key=found.styles.__getitem__)]


def test_running_runs_are_drawn_else_the_newest(run: Run) -> None:
    """And all that were named, whatever their state."""
    run.log({"loss": 1.0}, step=0)
    sweep(5)
    with catalogue() as found:
        look = RunWatcher(found, named=False).view(ViewOptions(), 0, 1, 100)
        assert ids(look) == [run.id]
        assert (look.total, look.running) == (6, 1)
    with catalogue("digits") as found:
        assert len(ids(RunWatcher(found, named=True).view(ViewOptions(), 0, 1, 100))) == 5
    run.finish()
    with catalogue() as found:
        assert ids(RunWatcher(found, named=False).view(ViewOptions(), 0, 1, 100)) == [run.id, "sweep-4", "sweep-3"]


def test_run_that_ends_keeps_its_place_and_its_colour() -> None:
    """A new one gets the next."""
    write_run("one", [(0, 0, {"loss": 1.0})])
    with catalogue() as found:
        watched = RunWatcher(found, named=False)
        assert ids(watched.view(ViewOptions(), 0, 1, 100)) == ["one"]
        rows = dict(found.state().rows)
        rows["two"] = Row("two", "x", "two", "two", status="running", created=T0 + 5)
        watched._choose(sorted(rows.values(), key=lambda row: -row.created), rows)
        assert [rows[key].id for key in watched._selected] == ["one", "two"]


def test_metrics_are_losses_then_the_rest_then_hardware() -> None:
    """Results aren't curves. Patterns choose; what no run has yet is a panel that says so."""
    sweep(1)
    with catalogue() as found:
        watched = RunWatcher(found, named=False)
        look = watched.view(ViewOptions(), 0, 100, 100)
        assert look.names[:3] == ["loss", "val_loss", "lr"]
        assert set(look.names[3:]) == set(GPU)
        assert [panel.x_label for panel in look.panels[:4]] == ["step", "step", "step", "time (min)"]
        (share,) = [panel for panel in look.panels if panel.title == "gpu/compute_util_avg"]
        assert (share.floor, share.ceiling) == (0.0, 100.0)
        look = watched.view(ViewOptions(["*loss", "later"]), 0, 100, 100)
        assert look.names == ["loss", "val_loss", "later"]
        assert [panel.blank for panel in look.panels] == [False, False, True]


def test_other_sources_are_watched() -> None:
    """Whatever the live page reads."""
    Path("a.csv").write_text("step,loss\n0,3\n1,2\n")
    with catalogue("csv:a.csv") as found:
        look = RunWatcher(found, named=True).view(ViewOptions(), 0, 1, 100)
        assert look.panels[0].lines[0].y.tolist() == [3.0, 2.0]


def test_filter_that_makes_no_sense_is_told() -> None:
    """As an error with what was meant."""
    sweep(1)
    with catalogue() as found, pytest.raises(UsageError, match="needs a number"):
        RunWatcher(found, named=False).view(ViewOptions(where="lr>x"), 0, 1, 100)


def test_damaged_run_is_a_problem_and_no_end() -> None:
    """The others are drawn."""
    sweep(2)
    (stream,) = Path("runs/digits/sweep-1/streams").glob("*.jsonl")
    with catalogue() as found:
        stream.unlink()
        stream.mkdir()
        look = RunWatcher(found, named=False).view(ViewOptions(), 0, 1, 100)
        assert len(look.panels[0].lines) == 1
        assert look.problems


@pytest.mark.parametrize(
    ("last", "lines"),
    [
        ({}, []),
        ({"system.cpu": 34.0}, ["CPU 34 %"]),
        (GPU, ["GPU 95 %  71.2 of 80 GB  412 W  61 °C   CPU 34 %  memory 41 %", "GPU 0 ██████████ 95 %  412 W"]),
        ({"system.gpu.node1.3.gpu": 12.0}, ["GPU node1.3 █░░░░░░░░░ 12 %"]),
        ({"gpu/memory_used_total_gb": 3.25}, ["3.25 GB"]),
        ({"system.gpu.0.gpu": float("nan")}, ["GPU 0 ░░░░░░░░░░ nan %"]),
    ],
)
def test_samples_in_words(last: dict[str, float], lines: list[str]) -> None:
    """One line for all, one for each GPU; what isn't sampled isn't said."""
    assert machine_lines(last) == lines


def test_samples_of_a_run() -> None:
    """The last ones, which have no step."""
    sweep(1)
    with catalogue() as found:
        (key,) = found.state().rows
        assert RunWatcher(found, named=False).machine(key)[0].startswith("GPU 95 %")


def row(**fields: Any) -> Row:
    """A row of the table."""
    return Row("k", "s", "id1", "name", **fields)


def test_delivery_groups_trackers_of_one_state() -> None:
    """Those that have everything have a ✓."""
    found = row(tracker={"json": "delivered", "csv": "delivered", "wandb": "waiting, 2.1 KB wait, no answer"})
    assert delivery(found) == "json, csv ✓; wandb waiting, 2.1 KB wait, no answer"


def test_plain_line_of_a_run() -> None:
    """Name, status, step, values, results and delivery; nothing that a terminal would obey."""
    found = row(project="p", status="running", step=1200, last={"loss": 0.5, "text": "\x1b[0m"}, result={"acc": 0.9})
    found.tracker = {"json": "delivered"}
    assert line(found, ["loss", "text", "lr"]) == "p/id1 name running step 1,200 loss 0.5 final/acc 0.9 json ✓"


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_table_fits_the_terminal(width: int) -> None:
    """Results where there is room; names, status and step always."""
    sweep(3)
    with catalogue() as found:
        look = RunWatcher(found, named=False).view(ViewOptions(), 0, 2, 100)
    header, rows = table(look, width, T0 + 208, colored=False)
    assert max(map(len, [*header, *rows])) <= width
    assert len(rows) == 3
    assert ("best_val_loss" in "".join(header)) == (width >= looking.WIDE)
    assert all("finished" in text and "99" in text for text in rows)
