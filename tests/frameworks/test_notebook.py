"""A real notebook, executed by a kernel: a run is shown, written anew while it goes on; answers are tables."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests import ROOT
from trackers.journal.run_directory import RunDirectory
from trackers.readers.console import RunConsole, lines_of

CELLS = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport threading, trackers\n"
    "run = trackers.init('json', project='p', id='r', inline=True)\nrun",
    "for step in range(50):\n    run.log({'loss': 1 / (step + 1)}, step=step)\nrun.finish()\n"
    "[thread.join(60) for thread in threading.enumerate() if thread.name == 'trackers notebook']\n",
    "trackers.compare_runs(['r'])",
    "trackers.sql('select name, status from runs')",
)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The name of a kernel that is this Python."""
    place = tmp_path / "jupyter/kernels/this"
    place.mkdir(parents=True)
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(json.dumps({"argv": words, "display_name": "this", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    return "this"


def html(cell: Any) -> str:
    """What a cell shows."""
    (found,) = [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]
    return str(found)


@pytest.mark.processes
def test_notebook_shows_runs_and_tables(kernel: str) -> None:
    """The first cell's output is that of the end, although it was displayed before anything was logged."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    NotebookClient(book, timeout=150, kernel_name=kernel, resources={"metadata": {"path": os.getcwd()}}).execute()
    shown = html(book.cells[0])
    assert "(p/r), finished" in shown
    assert re.search(r"<title>loss</title>.*>0.02</tspan>.*<polyline", shown)
    assert "<td>delivered</td>" in shown
    assert "<td" in html(book.cells[2])
    assert "finished" in html(book.cells[3])


PRINTING = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport os, trackers\n"
    "run = trackers.init('json', project='p', id='printing')\nprint('in the first cell')",
    "print('careful', file=sys.stderr)\nfor percent in range(3):\n    print(f'\\r{percent}', end='', flush=True)",
    "print()\nrun.finish()\nprint('after')",
)


@pytest.mark.processes
def test_notebook_keeps_what_cells_print(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And shows it as before; what is printed after the end is no part of the run."""
    monkeypatch.setenv("TRACKER_CONSOLE_CAPTURE", "auto")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in PRINTING]
    NotebookClient(book, timeout=150, kernel_name=kernel, resources={"metadata": {"path": os.getcwd()}}).execute()
    shown = "".join(output["text"] for cell in book.cells for output in cell.outputs if output.get("name") == "stdout")
    assert shown.startswith("in the first cell\n")
    assert shown.endswith("after\n")
    found = lines_of(RunConsole(RunDirectory(Path("runs/p/printing"))).read())
    lines = [(line.stream, line.text) for line in found if not line.text.startswith("trackers:")]
    assert lines == [("stdout", "in the first cell"), ("stderr", "careful"), ("stdout", "2")]
